"""What a number of pairs can show, and how many it takes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import ArrayLike

from fastlane.bench.statistics import (
    Interval,
    hodges_lehmann,
    pairs_for_effect,
    pairs_for_equivalence,
    pairs_for_interval,
    signed_rank_p,
    smallest_effect,
)


def is_equivalent(logs: ArrayLike, margin: float = 0.03) -> bool:
    """Whether the 95 % interval lies within the margin."""
    interval = hodges_lehmann(logs)
    assert interval is not None
    assert interval.low is not None
    assert interval.high is not None
    return -math.log1p(margin) <= interval.low and interval.high <= math.log1p(margin)


class TestPower:
    def test_the_smallest_effect_is_found_in_nine_cases_of_ten(self) -> None:
        random = np.random.default_rng(6)
        typical = hodges_lehmann(random.normal(0, 0.28, 4_000))
        assert typical is not None
        smallest = smallest_effect(typical)
        assert smallest is not None
        # What 4,000 pairs could have shown, 250 could have shown of a change four times as large.
        effect = 4 * math.log1p(smallest)
        found = sum(signed_rank_p(random.normal(effect, 0.28, 250)) <= 0.05 for _ in range(400))
        assert found / 400 == pytest.approx(0.9, abs=0.05)

    def test_as_many_pairs_as_it_says_show_the_effect_in_nine_cases_of_ten(self) -> None:
        random = np.random.default_rng(7)
        wanted = pairs_for_effect(Interval(value=0.05, low=0.05 - 0.0549, high=0.05 + 0.0549), 100)
        assert wanted is not None  # 0.0549 is 1.96 standard errors of 100 pairs that scatter by 0.28
        found = sum(signed_rank_p(random.normal(0.05, 0.28, wanted)) <= 0.05 for _ in range(400))
        assert found / 400 == pytest.approx(0.9, abs=0.05)

    @pytest.mark.parametrize("middle", [0.0, 0.01])
    def test_as_many_pairs_as_it_says_show_equivalence_in_nine_cases_of_ten(self, middle: float) -> None:
        random = np.random.default_rng(8)
        wanted = pairs_for_equivalence(Interval(value=middle, low=middle - 0.0196, high=middle + 0.0196), 100, 0.03)
        assert wanted is not None
        found = sum(is_equivalent(random.normal(middle, 0.1, wanted)) for _ in range(400))
        assert found / 400 == pytest.approx(0.9, abs=0.06)

    def test_more_comparisons_want_a_larger_effect_and_more_pairs(self) -> None:
        typical = Interval(value=0.05, low=0.0, high=0.1)
        assert (smallest_effect(typical, 0.01) or 0) > (smallest_effect(typical) or 0)
        assert (pairs_for_effect(typical, 50, 0.01) or 0) > (pairs_for_effect(typical, 50) or 0)

    def test_where_nothing_would_do_there_is_no_number(self) -> None:
        unknown, nothing = Interval(value=0.1), Interval(value=0.0, low=-0.1, high=0.1)
        assert smallest_effect(unknown) is None
        assert pairs_for_effect(unknown, 3) is None
        assert pairs_for_effect(nothing, 50) is None
        assert pairs_for_effect(Interval(value=1e-9, low=-0.1, high=0.1), 50) is None
        assert pairs_for_equivalence(Interval(value=0.05, low=0.0, high=0.1), 50, 0.03) is None
        assert pairs_for_equivalence(unknown, 3, 0.03) is None

    def test_pairs_that_are_all_the_same_would_show_anything(self) -> None:
        same = Interval(value=0.0, low=0.0, high=0.0)
        assert smallest_effect(same) == 0
        assert pairs_for_equivalence(same, 10, 0.03) == 1


@pytest.mark.parametrize("pairs", [8, 30, 100])
def test_the_smallest_effect_of_one_run_is_found_by_the_next_in_about_nine_cases_of_ten(pairs: int) -> None:
    random, alpha, runs = np.random.default_rng(pairs), 0.05 / 3, 600
    found = 0
    for _ in range(runs):
        typical = hodges_lehmann(random.normal(0, 0.28, pairs))
        assert typical is not None
        effect = smallest_effect(typical, alpha, pairs=pairs)
        assert effect is not None
        found += signed_rank_p(random.normal(0, 0.28, pairs) - math.log1p(effect)) <= alpha
    # 600 runs at 0.9 have a standard error of 0.012.
    assert 0.85 < found / runs < 0.95


@pytest.mark.parametrize("alpha", [0.05, 0.05 / 3, 0.05 / 12])
def test_interval_exists_from_the_fewest_pairs_on(alpha: float) -> None:
    fewest = pairs_for_interval(alpha)
    enough, too_few = (hodges_lehmann([*range(count)], 1 - alpha) for count in (fewest, fewest - 1))
    assert enough is not None
    assert enough.low is not None
    assert too_few is not None
    assert too_few.low is None
