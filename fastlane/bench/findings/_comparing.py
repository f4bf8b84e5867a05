"""Two arms of one cell compared by one metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fastlane.errors import ConfigurationError

from ..recorded import RequestMetric
from ..statistics import (
    Floats,
    Interval,
    hodges_lehmann,
    log_ratios,
    quantile,
    quantile_ratio,
    signed_rank_p,
    wanted,
)
from ._readings import ArmValues, counts_failed
from ._types import ArmComparison, Figures
from ._verdict import ALPHA, judge, not_comparable

SHARES: Final = (0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
"""Of the quantiles that are given where there are enough requests."""


def figures(cell: str, arm: str, metric: RequestMetric, read: ArmValues) -> Figures:
    """Return one metric of one arm."""
    # Sorted, so that records merged in another order give the same sums to the last digit.
    values = np.sort(np.fromiter(read.values.values(), dtype=np.float64, count=len(read.values)))
    lost = len(read.failed) if counts_failed(metric) else 0
    some = bool(values.size)
    return Figures(
        cell=cell,
        arm=arm,
        metric=metric.name,
        n=values.size,
        failed=len(read.failed) + read.silent,
        mean=float(values.mean()) if some else None,
        deviation=float(values.std(ddof=1)) if values.size > 1 else None,
        minimum=float(values.min()) if some else None,
        maximum=float(values.max()) if some else None,
        quantiles={
            share: quantile(values, share, failed=lost, lower_is_better=metric.lower_is_better) for share in SHARES
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pairs:
    """One comparison before its family is known."""

    arm: str
    reference: str
    metric: RequestMetric
    logs: Floats
    """Log-ratios of the pairs in which both succeeded."""
    ours: Floats
    """Values of all pairs, those that failed included where that counts."""
    theirs: Floats
    excuse: str | None
    """Why there is nothing to compare, where one arm gave no figure at all."""


def compare(
    cell: str,
    others: Sequence[tuple[str, str, RequestMetric, ArmValues, ArmValues]],
    *,
    copy: bool,
    margin: float,
    seed: int,
) -> list[ArmComparison]:
    """Compare arms with their references: each an arm's name, its reference's, the metric, and both readings.

    They are one family: with a probability of 95 % all intervals of their typical changes hold together (Bonferroni).
    Raises ConfigurationError for a margin that is not above 0.
    """
    if not margin > 0:
        raise ConfigurationError(f"expected a margin above 0, such as 0.03 for 3 %, got {margin}")
    found = [_pairs(*each) for each in others]
    family = max(1, sum(each.logs.size > 0 for each in found))
    return [_judged(each, cell, family=family, copy=copy, margin=margin, seed=seed) for each in found]


def _pairs(arm: str, reference: str, metric: RequestMetric, ours: ArmValues, theirs: ArmValues) -> _Pairs:
    both = sorted(ours.values.keys() & theirs.values.keys())
    own, other = (np.array([read.values[key] for key in both], dtype=np.float64) for read in (ours, theirs))
    logs = log_ratios(own, other)
    if counts_failed(metric):
        known = (ours.values.keys() | ours.failed) & (theirs.values.keys() | theirs.failed)
        worst = math.inf if metric.lower_is_better else 0.0
        every = sorted(known)
        own, other = (
            np.array([read.values.get(key, worst) for key in every], dtype=np.float64) for read in (ours, theirs)
        )
    silent = [name for name, read in ((arm, ours), (reference, theirs)) if not read.values and read.silent]
    excuse = f"not comparable: no request of {' or '.join(silent)} gave this figure" if silent else None
    return _Pairs(arm=arm, reference=reference, metric=metric, logs=logs, ours=own, theirs=other, excuse=excuse)


def _judged(
    pairs: _Pairs,
    cell: str,
    *,
    family: int,
    copy: bool,
    margin: float,
    seed: int,
) -> ArmComparison:
    count = pairs.logs.size
    typical = _exponential(hodges_lehmann(pairs.logs, 1 - ALPHA / family))
    changes = {
        share: change
        for share in SHARES
        if pairs.ours.size >= wanted(share)
        and (change := quantile_ratio(pairs.ours, pairs.theirs, share, seed=seed)) is not None
    }
    if pairs.excuse is not None:
        verdict = not_comparable(pairs.excuse)
    else:
        verdict = judge(
            typical=typical,
            logs=hodges_lehmann(pairs.logs),
            pairs=count,
            family=family,
            metric=pairs.metric,
            margin=margin,
        )
    return ArmComparison(
        cell=cell,
        arm=pairs.arm,
        reference=pairs.reference,
        metric=pairs.metric.name,
        pairs=count,
        typical=typical,
        p_value=signed_rank_p(pairs.logs) if count else None,
        quantiles=changes,
        verdict=verdict,
        copy=copy,
    )


def _exponential(logs: Interval | None) -> Interval | None:
    if logs is None:
        return None
    return Interval(
        value=math.exp(logs.value),
        low=None if logs.low is None else math.exp(logs.low),
        high=None if logs.high is None else math.exp(logs.high),
    )
