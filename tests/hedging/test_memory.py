from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from fastlane.knowledge.call_sizes import CallSizes as Sizes
from fastlane.knowledge.prediction._upstream import Upstream
from fastlane.plays.hedging._governor import SPENT, TOO_LITTLE_SEEN
from fastlane.plays.hedging._memory import only_once, sightings_of
from fastlane.plays.hedging._plan import HedgePlan
from fastlane.plays.hedging.play import Hedging
from fastlane.records.route import HedgingRecord
from fastlane.records.usage import Usage
from tests.hedging.simulated import ORIGIN, attempt, call, ns, record

HERE = Upstream("m", ORIGIN)
COUNTED = Usage(input_tokens=1_000, output_tokens=100, cached_tokens=0)


def planned(play: Hedging, call_id: str, **fields: Any) -> HedgePlan:
    asked = call(call_id, **fields)
    return play.memory.plan(asked, only_once=only_once(asked, play.memory.settings.not_with_tools))


def learned(play: Hedging, calls: int = 40, *, usage: Usage = COUNTED) -> Hedging:
    """The play after calls of 1,100 tokens each, all of them on time."""
    for number in range(calls):
        at = float(number)
        planned(play, f"before{number}", at_s=at)
        one = attempt(1, at, at + 2)
        first_token_s = at + 0.5 + 0.01 * (number % 5)
        play.memory.note(
            record(f"before{number}", (one,), started_s=at, first_token_s=first_token_s, ended_s=at + 2, usage=usage)
        )
    return play


def hedged(won: bool, **extra: Any) -> HedgingRecord:
    return HedgingRecord(delay_s=1.0, hedged=True, won=won, why_not=None, **extra)


def end(play: Hedging, call_id: str, hedging: HedgingRecord | None, **fields: Any) -> None:
    one = attempt(1, 50, 52)
    given = {"started_s": 50, "first_token_s": None, "ended_s": 52, "usage": Usage(), "outcome": "failed", **fields}
    play.memory.note(record(call_id, (one,), hedging=hedging, **given))


# The delay


def test_nothing_is_late_before_twenty_first_tokens_were_seen() -> None:
    play = learned(Hedging(), 19)
    assert planned(play, "1", at_s=30).why_not == TOO_LITTLE_SEEN
    learned(play, 1)

    plan = planned(play, "2", at_s=30)
    assert plan.why_not is None
    assert plan.delay_s is not None
    assert 0.4 < plan.delay_s < 10


def test_each_model_at_each_place_is_known_by_itself() -> None:
    play = learned(Hedging())

    assert planned(play, "1", at_s=50).delay_s is not None
    assert planned(play, "2", at_s=50, model="other").why_not == TOO_LITTLE_SEEN
    assert planned(play, "3", at_s=50, origin="https://b.example:443").why_not == TOO_LITTLE_SEEN


# The budget


def test_a_second_attempt_is_paid_out_of_the_tokens_of_all_calls() -> None:
    play = learned(Hedging(budget=0.05))
    plan = planned(play, "1", at_s=50)
    left = play.memory.budget.left
    assert left == pytest.approx(0.05 * 40 * 1_100)

    assert plan.governor.take(plan.input_tokens + plan.output_tokens, ns(51)) is None
    assert play.memory.budget.left == pytest.approx(left - plan.input_tokens - plan.output_tokens)
    assert planned(play, "2", at_s=51).governor.take(1e6, ns(52)) == SPENT


def test_what_it_did_not_cost_is_given_back_when_the_call_is_over() -> None:
    play = learned(Hedging())
    plan = planned(play, "1", at_s=50)
    left = play.memory.budget.left
    assert plan.governor.take(1_000, ns(51)) is None
    end(play, "1", hedged(won=True, extra_input_tokens=600, extra_output_tokens=10))

    assert play.memory.budget.left == pytest.approx(left - 610)


def test_a_prompt_that_was_sent_counts_as_read() -> None:
    play = learned(Hedging(), 60)
    left = play.memory.budget.left
    plan = planned(play, "1", at_s=50)
    assert plan.governor.take(plan.input_tokens + plan.output_tokens, ns(51)) is None
    lost = attempt(1, 50, 52, given_up="lost")
    sent = dataclasses.replace(lost, wire=dataclasses.replace(lost.wire, send_ended_ns=ns(50)))
    told = hedged(won=True, extra_input_tokens=0, extra_output_tokens=0)
    play.memory.note(
        record(
            "1", (sent,), started_s=50, first_token_s=None, ended_s=52, usage=Usage(), outcome="failed", hedging=told
        )
    )

    assert play.memory.budget.left == pytest.approx(left - plan.input_tokens)


def test_what_was_reserved_is_spent_where_nobody_knows_what_it_cost() -> None:
    play = learned(Hedging())
    left = play.memory.budget.left
    assert planned(play, "1", at_s=50).governor.take(700, ns(51)) is None
    end(play, "1", hedged(won=True))

    assert play.memory.budget.left == pytest.approx(left - 700)


@pytest.mark.parametrize(
    "hedging", [None, HedgingRecord(delay_s=1.0, hedged=False, won=None, why_not="no other connection")]
)
def test_a_second_attempt_that_was_allowed_and_not_made_costs_nothing(hedging: HedgingRecord | None) -> None:
    play = learned(Hedging())
    left = play.memory.budget.left
    assert planned(play, "1", at_s=50).governor.take(700, ns(51)) is None
    end(play, "1", hedging)

    assert play.memory.budget.left == pytest.approx(left)


def test_a_call_that_is_planned_once_more_for_another_upstream_settles_both() -> None:
    play = learned(Hedging())
    left = play.memory.budget.left
    first = planned(play, "1", at_s=50)
    planned(play, "1", at_s=50, model="other")
    assert first.governor.take(700, ns(51)) is None
    end(play, "1", hedged(won=False, extra_input_tokens=500, extra_output_tokens=0))

    assert play.memory.budget.left == pytest.approx(left - 500)


def test_answers_that_nobody_counted_count_as_their_prompt_is_estimated_and_their_events() -> None:
    play = learned(Hedging(), 20)
    left = play.memory.budget.left
    plan = planned(play, "1", at_s=50)
    end(play, "1", None, outcome="completed", first_token_s=50.5)  # of one event

    assert play.memory.budget.left == pytest.approx(left + 0.05 * (plan.input_tokens + 1))


# What is learned of attempts


def test_the_attempt_that_answered_shows_how_long_a_first_token_took() -> None:
    one = record("1", (attempt(1, 10, 12),), started_s=9.9, first_token_s=10.5, ended_s=12, usage=COUNTED)
    ((upstream, sighting),) = sightings_of(one)

    assert upstream == HERE
    assert sighting.first_token_s == pytest.approx(0.5)
    assert sighting.uncached_tokens == 1_000


def test_one_that_lost_shows_for_how_long_it_was_waited_for() -> None:
    attempts = (attempt(1, 10, 13, given_up="lost"), attempt(2, 12, 14, model="other"))
    lost, won = sightings_of(record("1", attempts, started_s=10, first_token_s=12.5, ended_s=14, usage=COUNTED))

    assert lost[0] == HERE
    assert lost[1].first_token_s is None
    assert lost[1].late_s == pytest.approx(3)
    assert won[0].model == "other"
    assert won[1].first_token_s == pytest.approx(0.5)
    assert won[1].late_s is None


def test_a_second_attempt_that_lost_shows_nothing() -> None:
    attempts = (attempt(1, 10, 14), attempt(2, 12, 12.6, given_up="lost"))
    (only,) = sightings_of(record("1", attempts, started_s=10, first_token_s=12.5, ended_s=14))

    assert only[1].first_token_s == pytest.approx(2.5)


def test_one_that_came_too_late_for_its_time_out_was_late() -> None:
    attempts = (attempt(1, 10, 13, given_up="late", error="ReadTimeout"), attempt(2, 13, 15, kind="fallback"))
    late, answered = sightings_of(record("1", attempts, started_s=10, first_token_s=13.5, ended_s=15))

    assert late[1].late_s == pytest.approx(3)
    assert answered[1].first_token_s == pytest.approx(0.5)


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
    assert plan.output_tokens == pytest.approx(100)
    body = {"model": "m", "messages": [], "max_completion_tokens": 7, "n": 2}
    assert planned(play, "2", at_s=90, body=body).output_tokens == 14


def test_one_odd_count_does_not_move_a_size_far() -> None:
    sizes = Sizes()
    sizes.learn(body_bytes=1_000, input_tokens=10**7, cached_tokens=None, output_tokens=None)

    assert 250 <= sizes.input_tokens(1_000) <= 300


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

    assert play.memory.governor(HERE).sizes.uncached_share == pytest.approx(0.1, abs=0.01)


# What is kept


def test_calls_that_never_end_are_forgotten() -> None:
    play = Hedging()
    for number in range(4_200):
        planned(play, str(number), size=10)

    assert len(play.memory._planned) <= 4_096


def test_models_that_change_with_every_call_are_forgotten() -> None:
    play = Hedging()
    for number in range(300):
        planned(play, str(number), size=10, model=f"m{number}")

    assert len(play.memory._governors) <= 256


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda play: pickle.loads(pickle.dumps(play))])
def test_a_copy_has_the_settings_and_remembers_nothing(copied: Any) -> None:
    play = learned(Hedging(quantile=0.9))
    other = copied(play)

    assert other == play
    assert other.memory is not play.memory
    assert planned(other, "1", at_s=50).why_not == TOO_LITTLE_SEEN
