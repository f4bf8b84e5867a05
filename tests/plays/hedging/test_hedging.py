from __future__ import annotations

from typing import Any

import pytest

from fastlane import Call, Hedging
from fastlane.plays.hedging.memory import HedgePlan

CHAT = "/chat/completions"
TOOL = {"type": "function", "function": {"name": "send_mail", "parameters": {}}}


def call(*, endpoint: str = CHAT, body: dict[str, Any] | None = None, **fields: Any) -> Call:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}]} if body is None else body
    return Call(
        call_id="1", endpoint=endpoint, origin="https://a.example:443", body=body, stream=True, issued_ns=1, **fields
    )


def planned_by(play: Hedging, asked: Call) -> Call:
    session: Any = play.open(asked)
    planned: Call = session.plan(asked)
    return planned


def plan_of(play: Hedging, asked: Call) -> HedgePlan:
    return play.memory.plan(asked)


def test_a_call_goes_out_as_it_is_with_a_plan_beside_it() -> None:
    asked = call()
    planned = planned_by(Hedging(), asked)

    assert planned.body is asked.body
    assert planned.changes == ()
    assert plan_of(Hedging(), asked).upstream == ("m", "https://a.example:443")


def test_calls_that_generate_nothing_are_left_alone() -> None:
    asked = call(endpoint="/embeddings", body={"model": "m", "input": "x"})

    assert Hedging().open(asked) is None


def test_a_body_that_only_openai_can_write_is_planned_all_the_same() -> None:
    assert planned_by(Hedging(), call(body={"model": "m", "messages": [object()]})).streams_for == "Hedging"


def test_a_body_without_a_model_is_planned_all_the_same() -> None:
    assert plan_of(Hedging(), call(body={"messages": []})).upstream.model == ""


@pytest.mark.parametrize(
    ("asked", "words"),
    [(call(unread=True), "reads the bytes"), (call(body={"model": "m", "tools": [TOOL]}), "side effects")],
)
def test_a_call_that_may_be_made_once_only_says_why(asked: Call, words: str) -> None:
    plan = plan_of(Hedging(not_with_tools=("send_mail",)), asked)

    assert plan.delay_s is None
    assert words in (plan.why_not or "")
