"""When a call is late, and what its second attempt may cost."""

from __future__ import annotations

import math
from array import array
from random import Random
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane import Call, CallRecord, Hedging
from fastlane.knowledge.sightings import Sighting
from fastlane.plays.hedging.memory import sightings_of
from fastlane.records import Attempt, Timeline, Usage, WireStamps
from tests.with_sections import with_sections

NS = 1_000_000_000
ORIGIN = "https://a.example:443"
CHAT, COMPLETIONS, RESPONSES = "/chat/completions", "/completions", "/responses"
HERE: Any = ("m", ORIGIN)


def call(call_id: str = "1", *, at_s: float = 0.0, model: str = "m", size: int = 4_000, **fields: object) -> Call:
    body = {"model": model, "messages": [{"role": "user", "content": "x" * size}]}
    given = {"endpoint": CHAT, "origin": ORIGIN, "body": body, "stream": True, **fields}
    # As the clients show it.
    given["body"] = MappingProxyType(given["body"])  # type: ignore[arg-type]
    return Call(call_id=call_id, issued_ns=ns(at_s), **given)  # type: ignore[arg-type]


def ns(seconds: float) -> int:
    # Not from 0, where a moment that was never set would not be noticed.
    return 1_000 * NS + round(seconds * NS)


def attempt(number: int, started_s: float, ended_s: float, **fields: object) -> Attempt:
    wire = WireStamps(started_ns=ns(started_s), ended_ns=ns(ended_s))
    given = {"kind": "first" if number == 1 else "hedge", "origin": ORIGIN, "model": "m", **fields}
    return Attempt(number=number, wire=wire, **given)  # type: ignore[arg-type]


def record(
    call_id: str,
    attempts: tuple[Attempt, ...],
    *,
    started_s: float,
    first_token_s: float | None,
    ended_s: float,
    **fields: object,
) -> CallRecord:
    first_ns = None if first_token_s is None else ns(first_token_s)
    timeline = Timeline(
        started_wall_ns=0,
        started_ns=ns(started_s),
        ended_ns=ns(ended_s),
        first_token_ns=first_ns,
        token_ns=array("q", [] if first_ns is None else [first_ns]),
    )
    given = {"model": "m", "stream": True, "outcome": "completed", "method": "POST", "endpoint": CHAT, **fields}
    return CallRecord(call_id=call_id, origin=ORIGIN, timeline=timeline, attempts=attempts, **with_sections(given))


# The breaker


def lateness(quantile: float = 0.95) -> Any:
    """What a new client knows of an upstream."""
    return Hedging(quantile=quantile, minimum_delay_s=0.0).memory.lateness(HERE)


def share_open(late_share: float, *, quantile: float = 0.95, calls: int = 4_000) -> float:
    """The share of the second half of the calls that found the breaker open."""
    random, known, found = Random(0), lateness(quantile), 0
    for number in range(calls):
        known.count(is_late=random.random() < late_share)
        found += known.is_open and number >= calls // 2
    return found / (calls / 2)


@pytest.mark.parametrize(
    ("late_share", "quantile", "least", "most"),
    [
        (0.01, 0.95, 0, 0.04),
        (0.08, 0.95, 0, 0.04),
        (0.12, 0.95, 0, 0.04),
        (0.3, 0.95, 0.95, 1),
        (1.0, 0.95, 0.95, 1),
        # An earlier delay has more late calls of itself.
        (0.2, 0.8, 0, 0.02),
        (0.5, 0.8, 0.95, 1),
        (1.0, 0.9999, 0.9, 1),
    ],
)
def test_breaker_many_late_calls_open_it(late_share: float, quantile: float, least: float, most: float) -> None:
    assert least <= share_open(late_share, quantile=quantile) <= most


# The delay


@pytest.mark.parametrize(
    ("tail", "factor", "most"), [(0.0, 1, 1.9), (0.08, 3, 1.9), (0.08, 1_000, 1.9), (0.3, 20, 3.5)]
)
@pytest.mark.parametrize("seed", range(3))
def test_delay_late_calls_do_not_move_it_far(tail: float, factor: float, most: float, seed: int) -> None:
    """The 95th percentile of the body is 1.51."""
    random, known = Random(seed), lateness()
    for number in range(1_000):
        seconds = random.lognormvariate(0, 0.25) * (factor if random.random() < tail else 1)
        known.note(Sighting(model="m", origin=ORIGIN, uncached_tokens=1_000, first_token_s=seconds), number * 10**8)
    delay_s: Any = known.delay_s(1_000)

    assert 1.2 <= delay_s <= most


def test_delay_follows_a_lasting_change_of_pace() -> None:
    random, known = Random(0), lateness()
    for number in range(1_320):
        seconds = 0.5 * random.lognormvariate(0, 0.25) * (4 if number >= 120 else 1)
        known.note(Sighting(model="m", origin=ORIGIN, uncached_tokens=1_000, first_token_s=seconds), number * NS // 6)
    delay_s: Any = known.delay_s(1_000)

    assert 2 < delay_s < 5


COUNTED = Usage(input_tokens=1_000, output_tokens=100, cached_tokens=0)


def planned(play: Hedging, call_id: str, **fields: Any) -> Any:
    return play.memory.plan(call(call_id, **fields))


def learned(play: Hedging, calls: int = 40, *, usage: Usage = COUNTED) -> Hedging:
    """The play after calls of 1,100 tokens each, all of them on time."""
    for number in range(calls):
        at = float(number)
        plan = planned(play, f"before{number}", at_s=at)
        first_token_s = at + 0.5 + 0.01 * (number % 5)
        ended = record(
            f"before{number}",
            (attempt(1, at, at + 2),),
            started_s=at,
            first_token_s=first_token_s,
            ended_s=at + 2,
            usage=usage,
        )
        play.memory.note(ended, [plan], 0.0)
    return play


def end(play: Hedging, *plans: Any, extra_tokens: float = 0.0, **fields: Any) -> None:
    one = fields.pop("attempt", attempt(1, 50, 52))
    given = {"started_s": 50, "first_token_s": None, "ended_s": 52, "usage": Usage(), "outcome": "failed", **fields}
    play.memory.note(record("1", (one,), **given), plans, extra_tokens)


# The delay


def test_hedging_needs_twenty_first_tokens() -> None:
    play = learned(Hedging(), 19)
    assert planned(play, "1", at_s=30).why_not.startswith("fewer than 20 first tokens")
    learned(play, 1)

    plan = planned(play, "2", at_s=30)
    assert plan.why_not is None
    assert 0.4 < (plan.delay_s or 0) < 10


# The budget


def test_second_attempt_is_paid_out_of_the_tokens_of_all_calls() -> None:
    play = learned(Hedging(budget=0.05))
    plan = planned(play, "1", at_s=50)
    left = play.memory.budget.left
    assert left == pytest.approx(0.05 * 40 * 1_100)

    assert play.memory.reserve(plan) is None
    assert plan.reserved == plan.input_tokens + plan.output_tokens
    assert play.memory.budget.left == pytest.approx(left - plan.reserved)
    assert play.memory.reserve(planned(play, "2", size=10**7)) == "budget"
    for _ in range(11):
        play.memory.lateness(HERE).count(is_late=True)
    assert play.memory.reserve(planned(play, "3", at_s=50)) == "most calls are late"


@pytest.mark.parametrize("cost", [0.0, 610.0, 1_400.0])
def test_second_attempt_costs_what_it_has_taken(cost: float) -> None:
    play = learned(Hedging(), 60)
    plan, left = planned(play, "1", at_s=50), play.memory.budget.left
    assert play.memory.reserve(plan) is None
    end(play, plan, extra_tokens=cost)

    assert play.memory.budget.left == pytest.approx(left - cost, abs=20)


def test_answers_without_usage_count_estimate_and_events() -> None:
    play = learned(Hedging(), 20)
    left = play.memory.budget.left
    plan = planned(play, "1", at_s=50)
    end(play, plan, outcome="completed", first_token_s=50.5)  # of one event

    assert play.memory.budget.left == pytest.approx(left + 0.05 * (plan.input_tokens + 1))


# What is learned of attempts


@pytest.mark.parametrize(
    ("attempts", "first_token_s", "shown"),
    [
        ([attempt(1, 10, 12)], 10.5, [("m", 0.5, None)]),
        # One that lost shows for how long it was waited for, a second one nothing.
        ([attempt(1, 10, 13, given_up="lost"), attempt(2, 12, 14)], 12.5, [("m", None, 3), ("m", 0.5, None)]),
        ([attempt(1, 10, 14), attempt(2, 12, 12.6, given_up="lost")], 12.5, [("m", 2.5, None)]),
        (
            [attempt(1, 10, 13, given_up="late", error="ReadTimeout"), attempt(2, 13, 15, kind="fallback", model="o")],
            13.5,
            [("m", None, 3), ("o", 0.5, None)],
        ),
        ([], 10.5, []),
        ([attempt(1, 10, 11, error="ReadError")], 10.5, []),
        ([attempt(1, 10, 11), attempt(2, 11, 12, kind="repair")], 10.5, []),
        ([attempt(1, 11, 12)], 10.5, []),
        ([attempt(1, 10, 12)], None, []),
    ],
)
def test_attempts_show_how_long_a_first_token_took(attempts: Any, first_token_s: float | None, shown: Any) -> None:
    one = record("1", tuple(attempts), started_s=9.9, first_token_s=first_token_s, ended_s=15, usage=COUNTED)
    found = sightings_of(one)

    assert [(each.model, each.first_token_s, each.late_s) for each in found] == [
        (name, first_s and pytest.approx(first_s), late_s and pytest.approx(late_s)) for name, first_s, late_s in shown
    ]
    assert {each.uncached_tokens for each in found if each.first_token_s} <= {1_000}


# Sizes


def test_sizes_are_learned_and_capped_by_caller_limit() -> None:
    play = learned(Hedging(), 60)
    plan = planned(play, "1", at_s=90)

    assert plan.input_tokens == pytest.approx(1_000, rel=0.05)
    assert plan.output_tokens == pytest.approx(100, rel=0.02)
    body = {"model": "m", "messages": [], "max_completion_tokens": 7, "n": 2}
    assert planned(play, "2", at_s=90, body=body).output_tokens == 14


# Which calls may be made twice, and what second attempts may cost


TOOL = {"type": "function", "function": {"name": "send_mail", "parameters": {}}}
FLAT = {"type": "function", "name": "send_mail", "parameters": {}}
CUSTOM = {"type": "custom", "custom": {"name": "send_mail"}}


def why_not(play: Hedging, endpoint: str, body: dict[str, Any]) -> str:
    """Why a new client makes no second attempt of a call."""
    session: Any = play.open(call(endpoint=endpoint, body={"model": "m", **body}))
    session.plan(call(endpoint=endpoint, body={"model": "m", **body}))
    ended = record("1", (), started_s=0, first_token_s=None, ended_s=1, outcome="failed")
    reason: str = session.close(SimpleNamespace(record=ended)).why_not
    return reason


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
    why = why_not(Hedging(), endpoint, body)

    assert (words or "fewer than") in why


@pytest.mark.parametrize(
    "tools",
    [
        {"tools": [TOOL]}, {"tools": [FLAT]}, {"functions": [{"name": "send_mail"}]}, {"tools": [CUSTOM]},
        {"tools": [{"type": "custom", "name": "send_mail"}]},
    ],
)  # fmt: skip
def test_named_tools_have_side_effects_however_written(tools: dict[str, Any]) -> None:
    assert why_not(Hedging(not_with_tools=("pay", "send_mail")), CHAT, tools) == "a tool has side effects"
    assert why_not(Hedging(not_with_tools=("pay",)), CHAT, tools).startswith("fewer than")


@pytest.mark.parametrize("body", [{"messages": []}, {"model": "m", "messages": [{1: {object()}}]}])
def test_odd_body_is_planned_and_not_changed(body: dict[str, Any]) -> None:
    asked = Call(call_id="1", endpoint=CHAT, origin="https://a.example:443", body=body, stream=True, issued_ns=1)
    session: Any = Hedging().open(asked)
    planned: Call = session.plan(asked)

    assert (planned.body, planned.changes, planned.streams_for) == (body, (), "Hedging")
    assert Hedging().open(asked.replaced(endpoint="/embeddings")) is None


# What happens to a budget: a call is over, or a hedge is requested, or the oldest one under way ends and has
# used this share of what was reserved for it.
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.floats(0, 1e5) | st.just(float("nan"))),
        st.tuples(st.just("second"), st.floats(-5, 2e4) | st.just(float("nan"))),
        st.tuples(st.just("over"), st.floats(0, 1)),
    ),
    max_size=80,
)


@given(EVENTS, st.sampled_from([0.01, 0.05, 0.5, 1.0]))
def test_second_attempts_never_cost_more_than_their_share(events: list[tuple[str, float]], share: float) -> None:
    budget = Hedging(budget=share).memory.budget
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
    budget = Hedging(budget=0.05).memory.budget
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
