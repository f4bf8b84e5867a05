from __future__ import annotations

from typing import Any

import pytest

from fastlane import Hedging
from fastlane.knowledge.sightings import Upstream
from fastlane.plays.hedging.memory import OVER_BUDGET, TOO_FEW, HedgePlan, sightings_of
from fastlane.records import Usage
from tests.plays.hedging.simulated import ORIGIN, attempt, call, record

HERE = Upstream("m", ORIGIN)
COUNTED = Usage(input_tokens=1_000, output_tokens=100, cached_tokens=0)


def planned(play: Hedging, call_id: str, **fields: Any) -> HedgePlan:
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


def end(play: Hedging, *plans: HedgePlan, extra_tokens: float = 0.0, **fields: Any) -> None:
    one = fields.pop("attempt", attempt(1, 50, 52))
    given = {"started_s": 50, "first_token_s": None, "ended_s": 52, "usage": Usage(), "outcome": "failed", **fields}
    play.memory.note(record("1", (one,), **given), plans, extra_tokens)


# The delay


def test_nothing_is_late_before_twenty_first_tokens_were_seen() -> None:
    play = learned(Hedging(), 19)
    assert planned(play, "1", at_s=30).why_not == TOO_FEW
    learned(play, 1)

    plan = planned(play, "2", at_s=30)
    assert plan.why_not is None
    assert 0.4 < (plan.delay_s or 0) < 10


def test_each_model_at_each_place_is_known_by_itself() -> None:
    play = learned(Hedging())

    assert planned(play, "1", at_s=50).delay_s is not None
    assert planned(play, "2", at_s=50, model="other").why_not == TOO_FEW
    assert planned(play, "3", at_s=50, origin="https://b.example:443").why_not == TOO_FEW


# The budget


def test_a_second_attempt_is_paid_out_of_the_tokens_of_all_calls() -> None:
    play = learned(Hedging(budget=0.05))
    plan = planned(play, "1", at_s=50)
    left = play.memory.budget.left
    assert left == pytest.approx(0.05 * 40 * 1_100)

    assert play.memory.reserve(plan) is None
    assert plan.reserved == plan.input_tokens + plan.output_tokens
    assert play.memory.budget.left == pytest.approx(left - plan.reserved)
    assert play.memory.reserve(planned(play, "2", size=10**7)) == OVER_BUDGET


@pytest.mark.parametrize("cost", [0.0, 610.0, 1_400.0])
def test_a_second_attempt_costs_what_it_has_taken(cost: float) -> None:
    play = learned(Hedging(), 60)
    plan, left = planned(play, "1", at_s=50), play.memory.budget.left
    assert play.memory.reserve(plan) is None
    end(play, plan, extra_tokens=cost)

    assert play.memory.budget.left == pytest.approx(left - cost, abs=20)


def test_a_call_that_is_planned_once_more_for_another_upstream_settles_both() -> None:
    play = learned(Hedging())
    left = play.memory.budget.left
    first, second = planned(play, "1", at_s=50), planned(play, "1", at_s=50, model="other")
    assert play.memory.reserve(first) is None
    end(play, first, second, extra_tokens=500)

    assert play.memory.budget.left == pytest.approx(left - 500)


def test_answers_without_counts_count_as_their_prompt_is_estimated_and_their_events() -> None:
    play = learned(Hedging(), 20)
    left = play.memory.budget.left
    plan = planned(play, "1", at_s=50)
    end(play, plan, outcome="completed", first_token_s=50.5)  # of one event

    assert play.memory.budget.left == pytest.approx(left + 0.05 * (plan.input_tokens + 1))


# What is learned of attempts


def test_the_attempt_that_answered_shows_how_long_a_first_token_took() -> None:
    one = record("1", (attempt(1, 10, 12),), started_s=9.9, first_token_s=10.5, ended_s=12, usage=COUNTED)
    (sighting,) = sightings_of(one)

    assert (sighting.model, sighting.origin) == HERE
    assert sighting.first_token_s == pytest.approx(0.5)
    assert sighting.uncached_tokens == 1_000


def test_one_that_lost_shows_for_how_long_it_was_waited_for() -> None:
    attempts = (attempt(1, 10, 13, given_up="lost"), attempt(2, 12, 14, model="other"))
    lost, won = sightings_of(record("1", attempts, started_s=10, first_token_s=12.5, ended_s=14, usage=COUNTED))

    assert lost.model == "m"
    assert lost.first_token_s is None
    assert lost.late_s == pytest.approx(3)
    assert won.model == "other"
    assert won.first_token_s == pytest.approx(0.5)
    assert won.late_s is None


def test_a_second_attempt_that_lost_shows_nothing() -> None:
    attempts = (attempt(1, 10, 14), attempt(2, 12, 12.6, given_up="lost"))
    (only,) = sightings_of(record("1", attempts, started_s=10, first_token_s=12.5, ended_s=14))

    assert only.first_token_s == pytest.approx(2.5)


def test_one_that_came_too_late_for_its_time_out_was_late() -> None:
    attempts = (attempt(1, 10, 13, given_up="late", error="ReadTimeout"), attempt(2, 13, 15, kind="fallback"))
    late, answered = sightings_of(record("1", attempts, started_s=10, first_token_s=13.5, ended_s=15))

    assert late.late_s == pytest.approx(3)
    assert answered.first_token_s == pytest.approx(0.5)


@pytest.mark.parametrize(
    "attempts",
    [
        (),
        (attempt(1, 10, 11, error="ReadError"),),
        (attempt(1, 10, 11), attempt(2, 11, 12, kind="repair")),
        (attempt(1, 11, 12),),
    ],
)
def test_what_does_not_tell_of_a_first_token_is_left_out(attempts: tuple[Any, ...]) -> None:
    assert sightings_of(record("1", attempts, started_s=10, first_token_s=10.5, ended_s=12)) == []


def test_an_answer_without_a_first_token_is_left_out() -> None:
    assert sightings_of(record("1", (attempt(1, 10, 12),), started_s=10, first_token_s=None, ended_s=12)) == []


# Sizes


def test_sizes_are_learned_of_what_was_counted_and_heed_the_callers_limit() -> None:
    play = learned(Hedging(), 60)
    plan = planned(play, "1", at_s=90)

    assert plan.input_tokens == pytest.approx(1_000, rel=0.05)
    assert plan.output_tokens == pytest.approx(100, rel=0.02)
    body = {"model": "m", "messages": [], "max_completion_tokens": 7, "n": 2}
    assert planned(play, "2", at_s=90, body=body).output_tokens == 14


def test_a_body_that_nobody_can_write_is_taken_for_as_long_as_others_and_never_for_nothing() -> None:
    play = Hedging()
    odd = {"model": "m", "messages": [{1: {object()}}]}
    assert planned(play, "1", body=odd).input_tokens > 0
    unwritable = {"model": "m", "messages": [float("nan"), "\ud800"]}
    assert planned(play, "2", body=unwritable).input_tokens == 2_000
    learned(play, 1)

    assert planned(play, "3", body=unwritable).input_tokens == pytest.approx(1_000)


def test_tokens_of_the_cache_are_not_waited_for() -> None:
    play = learned(Hedging(), 60, usage=Usage(input_tokens=1_000, output_tokens=100, cached_tokens=900))

    assert play.memory.lateness(HERE).sizes.uncached_share == pytest.approx(0.1, abs=0.01)


# What is kept
