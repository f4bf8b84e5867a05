"""What a run shows: figures, comparisons and verdicts as data, from which every report is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..statistics import Interval as Interval, Quantile as Quantile

Kind = Literal["better", "worse", "equivalent", "no difference shown", "too few pairs", "not comparable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One metric of one arm in one cell, over the requests that gave a value; in the metric's unit."""

    cell: str
    arm: str
    metric: str
    n: int
    failed: int
    """Requests that failed, or gave no value; those that failed count as slower than every other in the quantiles."""
    mean: float | None
    deviation: float | None
    """Standard deviation with n - 1."""
    minimum: float | None
    maximum: float | None
    quantiles: Mapping[float, Quantile]
    """By share: 0.25, 0.5, 0.75, 0.9, 0.95, 0.99."""

    @property
    def variation(self) -> float | None:
        """The coefficient of variation: the deviation as a share of the mean."""
        return self.deviation / self.mean if self.mean and self.deviation is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonVerdict:
    """What may be said of one comparison, and in words."""

    kind: Kind
    sentence: str
    """Such as "faster by 31 % [27, 35]" or "no difference shown; this run could have shown 4 %"."""
    smallest_effect: float | None = None
    """The smallest change, as a share such as 0.04, that a run of this size would have shown in 90 of 100 cases."""
    more_pairs: int | None = None
    """How many more pairs would show a change of the size seen, or equivalence; None where none would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmComparison:
    """One arm's metric over the reference's, by the pairs in which both succeeded; ratios, below 1 is less."""

    cell: str
    arm: str
    reference: str
    metric: str
    pairs: int
    typical: Interval | None
    """By what factor a request typically changes: Hodges-Lehmann on paired log-ratios; None without pairs.

    With a probability of 95 % the intervals of all metrics and arms of the cell hold together. The verdict is read from
    this interval.
    """
    p_value: float | None
    """Of Wilcoxon's signed-rank test; of this comparison alone, not adjusted for the others of the cell."""
    quantiles: Mapping[float, Interval] = field(default_factory=dict)
    """Ratios of the arms' quantiles, intervals by a bootstrap over pairs; only shares that this n allows."""
    verdict: ComparisonVerdict
    copy: bool = False
    """Whether the arm is the reference's own copy: its interval is the instrument's band."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFindings:
    """All that one cell shows."""

    cell: str
    figures: tuple[Figures, ...]
    comparisons: tuple[ArmComparison, ...]
    throughput: Mapping[str, float]
    """Each arm's output tokens over the seconds in which it had requests in flight."""
    requests: Mapping[str, int]
    errors: Mapping[str, Mapping[str, int]]
    """How often each error came, by arm."""

    def of(self, arm: str, metric: str) -> Figures | None:
        """Return one arm's figures of one metric."""
        return next((each for each in self.figures if each.arm == arm and each.metric == metric), None)

    def comparison(self, arm: str, metric: str) -> ArmComparison | None:
        """Return one arm's comparison by one metric."""
        return next((each for each in self.comparisons if each.arm == arm and each.metric == metric), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one play contributes to the change between no play and all of them, in the metric's unit."""

    play: str
    alone: Interval | None
    """Change when it is added to nothing (add one in)."""
    last: Interval | None
    """Change when it is added to all others (leave one out)."""
    share: Interval
    """What is attributed to it: the mean of both, scaled so that the shares add up to the whole change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """One cell's change between no play and all, divided among the plays."""

    cell: str
    metric: str
    total: Interval
    """Change from none to all, in the metric's unit."""
    shares: tuple[Share, ...]
    interaction: Interval
    """The whole change minus the sum of what each play does alone: not 0 where plays help or hinder each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cold:
    """One arm process's very first request, which no other figure includes."""

    arm: str
    time_to_first_token_ms: float | None
    api_end_to_end_ms: float | None
    error: str | None
    warm_time_to_first_token_ms: float | None = None
    """Median of the arm's requests with the same prompt that warmed up; None where none did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """All that a run shows."""

    cells: tuple[CellFindings, ...]
    attributions: tuple[Attribution, ...] = ()
    cold: tuple[Cold, ...] = ()
    margin: float = 0.03
    """The change, as a share, below which two arms count as equivalent."""
