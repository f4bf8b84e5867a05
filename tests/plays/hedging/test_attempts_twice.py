"""Which calls may be made twice, and what second attempts may cost."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from fastlane import Call, Hedging
from fastlane.plays.hedging.memory import Budget
from fastlane.plays.hedging.side_effects import why_only_once

CHAT, COMPLETIONS, RESPONSES = "/chat/completions", "/completions", "/responses"
TOOL = {"type": "function", "function": {"name": "send_mail", "parameters": {}}}
FLAT = {"type": "function", "name": "send_mail", "parameters": {}}
CUSTOM = {"type": "custom", "custom": {"name": "send_mail"}}


@pytest.mark.parametrize(
    ("endpoint", "body", "words"),
    [
        (CHAT, {}, None),
        (CHAT, {"n": 3, "tools": [TOOL], "store": None}, None),
        (CHAT, {"tools": [TOOL, CUSTOM]}, None),
        (CHAT, {"tools": "none at all", "functions": [7]}, None),
        (COMPLETIONS, {"prompt": "x"}, None),
        (RESPONSES, {"store": False, "tools": [FLAT]}, None),
        (CHAT, {"store": True}, "keeps the answer"),
        (RESPONSES, {}, "keeps the answer"),
        (RESPONSES, {"store": None}, "keeps the answer"),
        (RESPONSES, {"store": False, "background": True}, "background"),
        (RESPONSES, {"store": False, "previous_response_id": "resp_1"}, "conversation"),
        (RESPONSES, {"store": False, "conversation": "conv_1"}, "conversation"),
        (RESPONSES, {"store": False, "tools": [FLAT, {"type": "mcp", "server_url": "x"}]}, "runs a tool itself"),
        (RESPONSES, {"store": False, "prompt": {"id": "pmpt_1"}}, "tools of its own"),
        (CHAT, {"web_search_options": {}}, "runs a tool itself"),
    ],
)
def test_call_with_side_effects_is_made_once(endpoint: str, body: dict[str, Any], words: str | None) -> None:
    why = why_only_once(endpoint, body, ())

    assert words in why if words is not None and why is not None else why is words


@pytest.mark.parametrize(
    "tools",
    [
        {"tools": [TOOL]}, {"tools": [FLAT]}, {"functions": [{"name": "send_mail"}]}, {"tools": [CUSTOM]},
        {"tools": [{"type": "custom", "name": "send_mail"}]},
    ],
)  # fmt: skip
def test_named_tools_have_side_effects_however_written(tools: dict[str, Any]) -> None:
    assert why_only_once(CHAT, tools, ("pay", "send_mail")) == "a tool has side effects"
    assert why_only_once(CHAT, tools, ("pay",)) is None


@pytest.mark.parametrize("body", [{"messages": []}, {"model": "m", "messages": [object()]}])
def test_odd_body_is_planned_and_stays_as_it_is(body: dict[str, Any]) -> None:
    asked = Call(call_id="1", endpoint=CHAT, origin="https://a.example:443", body=body, stream=True, issued_ns=1)
    session: Any = Hedging().open(asked)
    planned: Call = session.plan(asked)

    assert (planned.body, planned.changes, planned.streams_for) == (body, (), "Hedging")
    assert Hedging().open(asked.replaced(endpoint="/embeddings")) is None


# What happens to a budget: a call is over, or a second attempt is asked for, or the oldest one under way ends and has
# used this share of what was reserved for it.
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.floats(0, 1e5) | st.just(float("nan"))),
        st.tuples(st.just("second"), st.floats(-5, 2e4) | st.just(float("nan"))),
        st.tuples(st.just("over"), st.floats(0, 1)),
    ),
    max_size=80,
)


@settings(max_examples=60)
@given(EVENTS, st.sampled_from([0.01, 0.05, 0.5, 1.0]))
def test_second_attempts_never_cost_more_than_their_share(events: list[tuple[str, float]], share: float) -> None:
    budget = Budget(share)
    tokens = used = 0.0
    under_way: list[float] = []
    for what, number in events:
        if what == "call":
            budget.earn(number)
            tokens += 0 if math.isnan(number) else number
        elif what == "second" and budget.reserve(number):
            assert number >= 0
            under_way.append(number)
        elif what == "over" and under_way:
            reserved = under_way.pop(0)
            budget.settle(reserved, reserved * number)
            used += reserved * number

        assert used + sum(under_way) <= share * tokens * (1 + 1e-9) + 1e-6


def test_budget_is_used_up_to_its_share_and_saves_up_little() -> None:
    budget = Budget(0.05)
    budget.earn(2_000)
    assert budget.reserve(100)
    budget.settle(100, 30)
    assert budget.reserve(70)
    # What one costs beyond its reserve, the next ones wait for.
    budget.settle(70, 120)
    budget.earn(1_000)
    assert not budget.reserve(1)
    for _ in range(10_000):
        budget.earn(1_000)
    assert budget.left == pytest.approx(0.05 * 400 * 1_000, rel=1e-4)
