"""Verdicts are read from the interval that is printed, and all of a cell's intervals hold together."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats  # type: ignore[import-untyped, unused-ignore]

from fastlane.bench.findings import ArmComparison, ArmValues, compare
from fastlane.bench.recorded import metric_named

METRICS = ("time_to_first_token", "decode_speed", "api_end_to_end")
MARGIN = 0.03


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """No verdict depends on the resamples of the percentiles, which take most of the time."""
    monkeypatch.setattr("fastlane.bench.statistics._RESAMPLES", 2)


def compared(log_ratios: Sequence[Any]) -> list[ArmComparison]:
    """Compare one arm by each series of log-ratios with a reference whose every value is 100."""
    others = []
    for number, logs in enumerate(log_ratios):
        theirs = ArmValues(values={("cell", 0, 0, at): 100.0 for at in range(len(logs))})
        ours = ArmValues(values={("cell", 0, 0, at): 100.0 * math.exp(each) for at, each in enumerate(logs)})
        metric = metric_named(METRICS[number % len(METRICS)])
        others.append((f"arm {number // len(METRICS)}", "baseline", metric, ours, theirs))
    return compare("cell", others, copy=False, seed=0)


# Few distinct values give ties and pairs without any difference, which are where tests and intervals part.
LOGS = st.one_of(
    st.lists(st.floats(-0.2, 0.2), min_size=1, max_size=24),
    st.lists(st.sampled_from((-0.05, -0.01, 0.0, 0.0, 0.02)), min_size=1, max_size=24),
)


@given(st.lists(LOGS, min_size=1, max_size=9))
def test_verdict_of_any_data_agrees_with_its_interval(log_ratios: list[list[float]]) -> None:
    for found in compared(log_ratios):
        assert found.typical is not None
        low, high, kind = found.typical.low, found.typical.high, found.verdict.kind
        if low is None or high is None:
            assert kind == "too few pairs"
            continue
        within = low >= 1 / (1 + MARGIN) and high <= 1 + MARGIN
        excludes = low > 1 or high < 1
        fewer = metric_named(found.metric).lower_is_better
        expected = "better" if (high < 1) == fewer else "worse"
        assert kind == ("equivalent" if within else expected if excludes else "no difference shown")
        assert ("though" in found.verdict.sentence) == (within and excludes)


@pytest.mark.parametrize("middle", [-0.021, 0.021])
def test_bound_of_a_small_change_is_not_written_as_zero(middle: float) -> None:
    """ "faster by 2 % [0, 4]" would contradict itself."""
    spread = stats.norm.ppf((np.arange(60) + 0.5) / 60)
    for scale in np.linspace(0.01, 0.2, 100):
        (found,) = compared([middle + scale * spread])
        if found.verdict.kind in ("better", "worse"):
            assert not re.search(r"[\[ ]0[,\]]", found.verdict.sentence), found.verdict.sentence


@pytest.mark.slow
def test_false_difference_rate_stays_below_5_percent() -> None:
    """All arms are the same: how often any of nine verdicts of a cell says that one is faster or slower."""
    random, runs = np.random.default_rng(7), 150
    false = 0
    for _ in range(runs):
        # One arm's metrics move together, and all arms share their reference, as in a run.
        base = random.normal(0, 0.1, 12)
        arms = [random.normal(0, 0.1, 12) for _ in range(3)]
        found = compared([arm + random.normal(0, 0.05, 12) - base for arm in arms for _ in METRICS])
        false += any(each.verdict.kind in ("better", "worse") for each in found)
    assert false <= 0.05 * runs + 3 * math.sqrt(runs * 0.05 * 0.95)


@pytest.mark.slow
def test_false_equivalence_rate_stays_below_5_percent() -> None:
    """All arms differ by exactly the margin: how often any of nine verdicts of a cell says that one is equivalent."""
    random, runs = np.random.default_rng(8), 100
    false = 0
    for _ in range(runs):
        found = compared([random.normal(math.log1p(MARGIN), 0.02, 24) for _ in range(9)])
        false += any(each.verdict.kind == "equivalent" for each in found)
    assert false <= 0.05 * runs + 3 * math.sqrt(runs * 0.05 * 0.95)
