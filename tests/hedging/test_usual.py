from __future__ import annotations

from math import exp
from random import Random
from statistics import NormalDist

import pytest
from hypothesis import given, settings, strategies as st

from fastlane.plays.hedging._usual import Usual

NS = 1_000_000_000
P95 = exp(0.25 * NormalDist().inv_cdf(0.95))


def told(seconds: list[float], *, apart_s: float = 0.05, is_slow: bool = False, usual: Usual | None = None) -> Usual:
    usual = usual or Usual()
    start = usual._taken_ns or NS
    for number, value in enumerate(seconds, 1):
        usual.note(value, start + round(number * apart_s * NS), is_slow=is_slow)
    return usual


@pytest.mark.parametrize("tail", [0.0, 0.01, 0.08])
@pytest.mark.parametrize("factor", [3, 20, 1_000])
def test_the_delay_is_the_quantile_of_the_body_whatever_the_tail(tail: float, factor: float) -> None:
    random = Random(1)
    values = [random.lognormvariate(0, 0.25) * (factor if random.random() < tail else 1) for _ in range(1_000)]

    assert told(values).late_after(0.95) == pytest.approx(P95, rel=0.25)


@pytest.mark.parametrize("seed", range(5))
def test_three_in_ten_that_are_late_are_still_late(seed: int) -> None:
    random = Random(seed)
    values = [random.lognormvariate(0, 0.25) * (20 if random.random() < 0.3 else 1) for _ in range(1_000)]

    assert P95 * 0.9 <= told(values).late_after(0.95) <= 3.5


def test_a_new_pace_is_the_usual_one_after_a_window_of_calls() -> None:
    usual = told([1.0] * 200)
    told([4.0] * 128, usual=usual)

    assert usual.late_after(0.95) == pytest.approx(1.28 * 4.0, rel=0.01)


def test_half_a_minute_in_which_everybody_is_slow_is_no_new_pace_and_minutes_are() -> None:
    usual = told([1.0] * 200)
    told([10.0] * 600, usual=usual, is_slow=True)
    assert usual.late_after(0.95) < 1.4
    told([10.0] * 6_000, usual=usual, is_slow=True)

    assert usual.late_after(0.95) == pytest.approx(12.8, rel=0.01)


@settings(max_examples=30)
@given(st.lists(st.floats(1e-4, 1e4), min_size=1, max_size=300), st.floats(0.5, 0.99))
def test_the_delay_lies_above_the_middle_and_what_is_kept_is_bounded(values: list[float], quantile: float) -> None:
    usual = told(values)
    kept = sorted(values[-128:])

    assert len(usual._sorted) == len(usual._order) == len(kept)
    assert usual.late_after(quantile) >= kept[(len(kept) - 1) // 2] * 0.999
    assert usual.late_after(quantile) <= usual.late_after(0.995) * 1.001
