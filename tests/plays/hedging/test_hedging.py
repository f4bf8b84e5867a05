from __future__ import annotations

from typing import Any

import pytest

from fastlane.engine.call import Call
from fastlane.errors import ConfigurationError
from fastlane.plays.hedging.memory import HedgePlan
from fastlane.plays.hedging.play import Hedging

CHAT = "/chat/completions"
TOOL = {"type": "function", "function": {"name": "send_mail", "parameters": {}}}


def call(*, endpoint: str = CHAT, body: dict[str, Any] | None = None, **fields: Any) -> Call:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}]} if body is None else body
    return Call(
        call_id="1", endpoint=endpoint, origin="https://a.example:443", body=body, stream=True, issued_ns=1, **fields
    )


def planned_by(play: Hedging, asked: Call) -> Call:
    session = play.open(asked)
    assert session is not None
    return session.plan(asked)


def plan_of(play: Hedging, asked: Call) -> HedgePlan:
    return play.memory.plan(asked)


# Settings


def test_the_repr_is_the_fingerprint_and_says_nothing_of_what_is_remembered() -> None:
    play = Hedging(budget=0.1, not_with_tools=("pay",))
    planned_by(play, call())

    assert repr(Hedging()) == "Hedging(budget=0.05, quantile=0.95, minimum_delay_s=0.1, not_with_tools=())"
    assert eval(repr(play)) == play == Hedging(budget=0.1, not_with_tools=("pay",))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"budget": 0}, "Hedging(budget=...) takes a share of all tokens above 0, up to 1 (0.05 is 5 %), got 0"),
        ({"budget": 5}, "up to 1 (0.05 is 5 %), got 5"),
        ({"budget": "5%"}, "got '5%'"),
        ({"budget": True}, "got True"),
        ({"budget": float("nan")}, "got nan"),
        ({"quantile": 95}, "Hedging(quantile=...) takes a quantile from 0.5 to below 1"),
        ({"quantile": 1.0}, "from 0.5 to below 1"),
        ({"quantile": 0.4}, "got 0.4"),
        ({"minimum_delay_s": -1}, "Hedging(minimum_delay_s=...) takes seconds from 0, got -1"),
        ({"minimum_delay_s": float("inf")}, "got inf"),
        ({"minimum_delay_s": None}, "got None"),
        ({"not_with_tools": "send_mail"}, "takes names of tools, (\"send_mail\",), got 'send_mail'"),
        ({"not_with_tools": (1,)}, "takes names of tools"),
        ({"not_with_tools": 3}, "takes names of tools"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Hedging(**settings)

    assert words in str(raised.value)


# What it does to a call


def test_a_call_goes_out_as_it_is_with_a_plan_beside_it() -> None:
    asked = call()
    planned = planned_by(Hedging(), asked)

    assert planned.body is asked.body
    assert planned.changes == ()
    assert plan_of(Hedging(), asked).upstream == ("m", "https://a.example:443")


def test_calls_that_generate_nothing_are_left_alone() -> None:
    asked = call(endpoint="/embeddings", body={"model": "m", "input": "x"})

    assert Hedging().open(asked) is None


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (call(unread=True), "reads the bytes"),
        (call(body={"model": "m", "store": True}), "keeps the answer"),
        (call(endpoint="/responses", body={"model": "m"}), "store=False"),
        (call(body={"model": "m", "tools": [TOOL]}), "side effects"),
    ],
)
def test_a_call_with_side_effects_has_no_second_chance_and_says_why(asked: Call, words: str) -> None:
    plan = plan_of(Hedging(not_with_tools=("send_mail",)), asked)

    assert plan.delay_s is None
    assert words in (plan.why_not or "")


def test_a_body_that_only_openai_can_write_is_planned_all_the_same() -> None:
    assert planned_by(Hedging(), call(body={"model": "m", "messages": [object()]})).streams_for == "Hedging"


def test_a_body_without_a_model_is_planned_all_the_same() -> None:
    assert plan_of(Hedging(), call(body={"messages": []})).upstream.model == ""


# On the wire
