"""What an experiment says so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ._document import Document, EndedArm
from ._judging import comparisons_of
from ._metrics import BY_NAME, METRICS
from ._sums import Sums
from ._verdicts import Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmReport:
    """One arm, in all processes."""

    name: str
    share: float
    """Of units, 0 to 1."""
    units: int
    """Which made calls; to about 3 % where there are thousands."""
    calls: int
    comparisons: tuple[Comparison, ...] = ()
    """With the reference, metric by metric; those of its end where it has ended."""
    ended: EndedArm | None = None

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON data."""
        return {
            "name": self.name,
            "share": self.share,
            "units": self.units,
            "calls": self.calls,
            "comparisons": [one.to_dict() for one in self.comparisons],
            "ended": None if self.ended is None else self.ended.to_dict(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentReport:
    """An experiment as it stands: may be asked for at any time, and as often as one likes."""

    name: str
    stage: int
    """Counts the changes of the shares, from 1: what is compared is of this stage."""
    since: datetime | None
    """When it began."""
    reference: str
    arms: tuple[ArmReport, ...]
    """The reference first."""
    problem: str | None = None
    """Why this is not all that there is; None where it is."""

    def __getitem__(self, arm: str) -> ArmReport:
        """The arm of that name."""
        for one in self.arms:
            if one.name == arm:
                return one
        raise KeyError(arm)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON data."""
        return {
            "name": self.name,
            "stage": self.stage,
            "since": None if self.since is None else self.since.isoformat(),
            "reference": self.reference,
            "arms": [arm.to_dict() for arm in self.arms],
            "problem": self.problem,
        }

    def __str__(self) -> str:
        since = "" if self.since is None else f", since {self.since:%d %b %Y %H:%M} UTC"
        lines = [f"experiment {self.name}: stage {self.stage}{since}"]
        if self.problem is not None:
            lines.append(f"  NOTE: {self.problem}")
        for arm in self.arms:
            role = "reference" if arm.name == self.reference else f"against {self.reference}"
            lines.append(f"{arm.name} ({role}): {arm.share:.1%} of units, about {arm.units} units, {arm.calls} calls")
            if arm.ended is not None:
                ended = datetime.fromtimestamp(arm.ended.wall_ns / 1e9, UTC)
                told = f"  ENDED {ended:%d %b %Y %H:%M} UTC after {arm.ended.calls} calls, by {arm.ended.by}: "
                lines.append(told + arm.ended.reason)
            lines += [_line(one) for one in arm.comparisons]
        return "\n".join(lines)


def _line(one: Comparison) -> str:
    metric = METRICS[BY_NAME[one.metric]]
    is_share = metric.scale == "share"
    told = f"  {one.metric:<23} {one.said}"
    if one.change is not None and one.low is not None and one.high is not None:
        unit = "points" if is_share else "%"
        told += f": {100 * one.change:+.2f} {unit} [{100 * one.low:+.2f}, {100 * one.high:+.2f}]"
    return f"{told} ({_value(one.arm, metric.unit)} against {_value(one.reference, metric.unit)}; {one.calls} calls)"


def _value(value: float | None, unit: str) -> str:
    return "nothing" if value is None else f"{value:.4g} {unit}".rstrip()


def report_of(name: str, arms: Mapping[str, Any], document: Document | None, problem: str | None) -> ExperimentReport:
    """The report on what is known."""
    reference = next(iter(arms))
    if document is None:
        empty = tuple([ArmReport(name=arm, share=0.0, units=0, calls=0) for arm in arms])
        return ExperimentReport(name=name, stage=0, since=None, reference=reference, arms=empty, problem=problem)
    told = []
    allocation = document.allocation
    for arm in arms:
        sums = document.sums.get(arm) or Sums()
        ended = document.ended.get(arm)
        comparisons: tuple[Comparison, ...] = ()
        if arm != reference:
            comparisons = comparisons_of(document, arm) if ended is None else ended.comparisons
        told.append(
            ArmReport(
                name=arm,
                share=max(0.0, 1 - sum(document.shares.values())) if arm == reference else allocation.share_of(arm),
                units=sums.unit_count if ended is None else ended.units,
                calls=round(sums.calls) if ended is None else ended.calls,
                comparisons=comparisons,
                ended=ended,
            )
        )
    since = datetime.fromtimestamp(document.since_wall_ns / 1e9, UTC)
    return ExperimentReport(
        name=name, stage=document.stage, since=since, reference=reference, arms=tuple(told), problem=problem
    )
