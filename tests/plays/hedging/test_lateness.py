"""When a call is late, in simulated time: `simulated.py` plays the driver's part."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from fastlane import Hedging
from fastlane.knowledge.sightings import Sighting, Upstream
from fastlane.plays.hedging.memory import MOST_LATE, OVER_BUDGET, TOO_FEW, Lateness
from tests.plays.hedging.simulated import ORIGIN, run, usual

CALLS = 1_000
HERE = Upstream("m", ORIGIN)


def test_where_one_in_sixty_is_late_the_slow_end_is_cut_off() -> None:
    first_token = usual(1 / 60)
    # None of its calls can pay for a second attempt.
    without = run(Hedging(budget=1e-9), first_token, calls=CALLS)
    outcome = run(Hedging(), first_token, calls=CALLS)

    assert without.percentile(0.99) >= 4 * outcome.percentile(0.99)
    assert outcome.extra_tokens <= 0.05 * outcome.tokens
    assert sum(outcome.hedged) <= 0.1 * CALLS


def test_where_one_in_twelve_is_late_they_are_hedged_as_far_as_the_budget_goes() -> None:
    outcome = run(Hedging(), usual(0.08), calls=CALLS)

    assert outcome.most_over_budget <= 0
    assert outcome.extra_tokens >= 0.025 * outcome.tokens
    assert Counter(outcome.why_not)[OVER_BUDGET] > 0


def test_where_three_in_ten_are_late_it_switches_itself_off() -> None:
    outcome = run(Hedging(), usual(0.3), calls=CALLS)

    assert outcome.share_hedged(CALLS // 4, CALLS) <= 0.005
    assert Counter(outcome.why_not)[MOST_LATE] >= 0.2 * CALLS


def test_where_nobody_is_late_it_costs_next_to_nothing() -> None:
    outcome = run(Hedging(minimum_delay_s=3.0), usual(), calls=CALLS)

    assert not any(outcome.hedged)
    assert Counter(outcome.why_not).keys() == {None, TOO_FEW}


def test_when_everybody_is_slow_for_half_a_minute_it_is_off_and_then_on_again() -> None:
    calm = usual(0.0125)

    def first_token(random: Random, at_s: float) -> float:
        return calm(random, at_s) * (10 if 60 <= at_s < 90 else 1)

    per_s = 6
    outcome = run(Hedging(), first_token, calls=240 * per_s, per_s=per_s)
    slow = [number for number in range(60 * per_s, 90 * per_s) if outcome.hedged[number]]

    # A handful until it was noticed, and nothing from then on.
    assert len(slow) <= 10
    assert outcome.most_over_budget <= 0
    assert outcome.share_hedged(150 * per_s, 240 * per_s) >= 0.01


def test_a_lasting_change_of_pace_is_the_new_usual() -> None:
    calm, play = usual(0.0125), Hedging()
    outcome = run(play, lambda random, at_s: calm(random, at_s) * (4 if at_s >= 20 else 1), calls=1_320, per_s=6)
    delay_s: Any = play.memory.lateness(HERE).delay_s(1_000)

    assert outcome.share_hedged(600, 1_320) <= 0.09
    assert 2 < delay_s < 5


@settings(max_examples=6)
@given(
    share=st.floats(0, 0.5),
    budget=st.sampled_from([0.01, 0.05, 0.2]),
    per_s=st.sampled_from([0.5, 10.0, 300.0]),
    seed=st.integers(0, 1_000),
)
def test_whatever_the_load_extra_tokens_stay_within_the_budget(
    share: float, budget: float, per_s: float, seed: int
) -> None:
    outcome = run(
        Hedging(budget=budget),
        usual(share),
        calls=300,
        per_s=per_s,
        seed=seed,
        sizes=lambda random: random.lognormvariate(0, 0.8),
    )

    # An estimate of a size may be wrong: by no more than what a call or two come to.
    assert outcome.most_over_budget <= 2 * 1_300


def test_a_load_that_comes_and_goes_does_not_turn_it_off() -> None:
    quiet, busy = 5.0, 200.0
    play, outcome = Hedging(), None
    for per_s in (quiet, busy, quiet, busy):
        outcome = run(play, usual(0.02), calls=300, per_s=per_s, decode_s=8.0)
        # An answer takes 8 s, a late one is known after one: neither is ahead of the other.
        assert Counter(outcome.why_not)[MOST_LATE] <= 6


def test_long_prompts_may_take_longer() -> None:
    def first_token(random: Random, _: float) -> float:
        return random.lognormvariate(0, 0.1)

    play = Hedging()
    run(play, first_token, calls=120)
    known: Any = play.memory.lateness(HERE)
    short, long = known.delay_s(1_000), known.delay_s(30_000)

    assert 0.1 < short < long


@pytest.mark.parametrize("minimum_delay_s", [0.1, 30.0])
def test_no_first_token_is_late_before_the_least_delay(minimum_delay_s: float) -> None:
    play = Hedging(minimum_delay_s=minimum_delay_s)
    run(play, usual(median_s=0.01), calls=100)
    delay_s: Any = play.memory.lateness(HERE).delay_s(1_000)

    assert delay_s >= minimum_delay_s


# The breaker


def share_open(late_share: float, *, quantile: float = 0.95, calls: int = 4_000) -> float:
    """The share of the second half of the calls that found the breaker open."""
    random, known, found = Random(0), Lateness(quantile=quantile, minimum_delay_s=0.0), 0
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


def test_breaker_opens_after_late_calls_and_closes_after_others() -> None:
    known = Lateness(quantile=0.95, minimum_delay_s=0.0)
    for number in range(11):
        assert not known.is_open, number
        known.count(is_late=True)
    assert known.is_open
    for _ in range(100):
        known.count(is_late=True)
    for _ in range(36):
        known.count(is_late=False)
    assert not known.is_open


# The delay


@pytest.mark.parametrize(
    ("tail", "factor", "most"), [(0.0, 1, 1.9), (0.08, 3, 1.9), (0.08, 1_000, 1.9), (0.3, 20, 3.5)]
)
@pytest.mark.parametrize("seed", range(3))
def test_delay_late_calls_do_not_move_it_far(tail: float, factor: float, most: float, seed: int) -> None:
    """The 95th percentile of the body is 1.51."""
    random, known = Random(seed), Lateness(quantile=0.95, minimum_delay_s=0.0)
    for number in range(1_000):
        seconds = random.lognormvariate(0, 0.25) * (factor if random.random() < tail else 1)
        known.note(Sighting(model="m", origin=ORIGIN, uncached_tokens=1_000, first_token_s=seconds), number * 10**8)
    delay_s: Any = known.delay_s(1_000)

    assert 1.2 <= delay_s <= most
