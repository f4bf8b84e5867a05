"""The governor in simulated time, with the driver's part played by `tests/hedging/simulated.py`."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from fastlane.knowledge.prediction._upstream import Upstream
from fastlane.plays.hedging._governor import SLOW, SPENT, TOO_LITTLE_SEEN
from fastlane.plays.hedging.play import Hedging
from tests.hedging.simulated import ORIGIN, ns, run, usual

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
    assert Counter(outcome.why_not)[SPENT] > 0


def test_where_three_in_ten_are_late_it_switches_itself_off() -> None:
    outcome = run(Hedging(), usual(0.3), calls=CALLS)

    assert outcome.share_hedged(CALLS // 4, CALLS) <= 0.005
    assert Counter(outcome.why_not)[SLOW] >= 0.2 * CALLS


def test_where_nobody_is_late_it_costs_next_to_nothing() -> None:
    outcome = run(Hedging(minimum_delay_s=3.0), usual(), calls=CALLS)

    assert not any(outcome.hedged)
    assert Counter(outcome.why_not).keys() == {None, TOO_LITTLE_SEEN}


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
    delay_s, _ = play.memory.governor(HERE).delay(1_000, ns(220))

    assert outcome.share_hedged(1_080, 1_320) <= 0.09
    assert delay_s is not None
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
        assert Counter(outcome.why_not)[SLOW] <= 6


def test_long_prompts_may_take_longer() -> None:
    def first_token(random: Random, _: float) -> float:
        return random.lognormvariate(0, 0.1)

    play = Hedging()
    run(play, first_token, calls=120)
    governor = play.memory._governors.items()[0][1]
    short, why_not = governor.delay(1_000, 10**15)
    long, _ = governor.delay(30_000, 10**15)

    assert why_not is None
    assert short is not None
    assert long is not None
    assert 0.1 < short < long


@pytest.mark.parametrize("minimum_delay_s", [0.1, 30.0])
def test_no_first_token_is_late_before_the_least_delay(minimum_delay_s: float) -> None:
    play = Hedging(minimum_delay_s=minimum_delay_s)
    run(play, usual(median_s=0.01), calls=100)
    governor = play.memory._governors.items()[0][1]
    delay_s, _ = governor.delay(1_000, 10**13)

    assert delay_s is not None
    assert delay_s >= minimum_delay_s
