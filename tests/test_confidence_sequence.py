"""Confidence sequences hold at every count."""

from __future__ import annotations

import math
import random
from statistics import fmean, variance

import pytest
from hypothesis import given, strategies as st

from fastlane.bench.progress import MeanSequence
from fastlane.errors import ConfigurationError
from fastlane.experiments.comparison import half_width

SMALL = st.floats(min_value=-5, max_value=5)


def sequence_of(values: list[float], **settings: float) -> MeanSequence:
    sequence = MeanSequence(**settings)  # type: ignore[arg-type]
    for value in values:
        sequence.add(value)
    return sequence


def test_width_is_the_published_formula() -> None:
    # rho^2 = (-W_-1(-alpha^2 / e) - 1) / t, whose published approximation is
    # (-2 log(alpha) + log(-2 log(alpha) + 1)) / t.
    alpha, best = 0.05, 100
    rho2 = (-2 * math.log(alpha) + math.log(-2 * math.log(alpha) + 1)) / best
    for count in (20, 100, 3_000):
        published = math.sqrt(
            2 * (count * rho2 + 1) / (count**2 * rho2) * math.log(math.sqrt(count * rho2 + 1) / alpha)
        )
        assert half_width(count, 1.0, alpha=alpha, optimised_for=best) == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize(
    ("count", "spread", "alpha", "best"),
    [(0, 1, 0.05, 100), (10, -1, 0.05, 100), (10, 1, 0, 100), (10, 1, 1, 100), (10, 1, 0.05, 0)],
)
def test_width_of_impossible_arguments_raises(count: float, spread: float, alpha: float, best: int) -> None:
    with pytest.raises(ConfigurationError):
        half_width(count, spread, alpha=alpha, optimised_for=best)


def test_sequence_below_twenty_values_has_no_interval() -> None:
    sequence = sequence_of([0.1, -0.1] * 9 + [0.2])
    assert (sequence.count, sequence.interval(), sequence.mean, sequence.variance) == (19, None, None, None)
    sequence.add(0.0)
    assert sequence.interval() is not None


@given(st.lists(SMALL, min_size=20, max_size=60))
def test_sequence_without_outliers_has_the_plain_mean(values: list[float]) -> None:
    # Values that are mostly equal set no band.
    values = [0.0] * 20 + values
    sequence = sequence_of(values)
    assert sequence.mean == pytest.approx(fmean(values), abs=1e-12)
    assert sequence.variance == pytest.approx(variance(values), abs=1e-9)


@given(st.lists(SMALL, min_size=20, max_size=60))
def test_sequence_of_negated_values_is_negated(values: list[float]) -> None:
    interval = sequence_of(values).interval()
    turned = sequence_of([-value for value in values]).interval()
    assert interval is not None
    assert turned == pytest.approx((-interval[1], -interval[0]), abs=1e-12)


def test_sequence_with_one_outlier_hardly_moves() -> None:
    random.seed(1)
    values = [random.gauss(-0.1, 0.2) for _ in range(100)]
    calm = sequence_of(values).interval()
    shaken = sequence_of([*values[:60], 1e6, *values[60:]]).interval()
    assert calm is not None
    assert shaken == pytest.approx(calm, abs=0.03)


def test_sequence_band_ignores_later_values() -> None:
    random.seed(2)
    first = [random.gauss(0, 1) for _ in range(20)]
    quiet, loud = sequence_of([*first, 3.0]), sequence_of([*first, 3.0])
    assert quiet.mean == loud.mean
    for _ in range(50):
        quiet.add(0.0)
        loud.add(100.0)
    # Had the band grown with the loud ones, they would count for more than its end.
    mean = loud.mean
    assert mean is not None
    assert mean < 10


def test_sequence_of_equal_values_has_no_width() -> None:
    assert sequence_of([-0.25] * 30).interval() == (-0.25, -0.25)


def test_sequence_keeps_rare_differences_among_equals() -> None:
    mean = sequence_of([0.0] * 15 + [1.0] * 5).mean
    assert mean == pytest.approx(0.25)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_sequence_refuses_non_finite_values(value: float) -> None:
    with pytest.raises(ConfigurationError, match="finite"):
        MeanSequence().add(value)


def test_sequence_refuses_impossible_settings() -> None:
    with pytest.raises(ConfigurationError, match="alpha"):
        MeanSequence(alpha=5)


def test_sequence_looked_at_every_value_errs_below_5_percent() -> None:
    random.seed(3)
    wrong = naive = 0
    for _ in range(300):
        sequence = MeanSequence()
        missed = fooled = False
        for _ in range(300):
            value = random.gauss(0, 0.28) + (random.random() < 0.03) * random.expovariate(1 / 0.7) * (
                random.choice((-1, 1))
            )
            sequence.add(value)
            interval = sequence.interval()
            if interval is not None and sequence.mean is not None and sequence.variance is not None:
                missed |= not interval[0] <= 0 <= interval[1]
                fooled |= abs(sequence.mean) > 1.96 * math.sqrt(sequence.variance / sequence.count)
        wrong += missed
        naive += fooled
    # 5 % of 300 with three standard deviations of the simulation's own luck; the plain interval shows that the
    # question is hard.
    assert wrong <= 15 + 3 * math.sqrt(300 * 0.05 * 0.95)
    assert naive > 60
