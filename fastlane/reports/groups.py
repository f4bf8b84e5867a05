"""Groups of calls: how many were answered, their percentiles, and where their time went."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from ..records.quantiles import quantile
from .phases import PHASES, Phase, phases_of

if TYPE_CHECKING:
    from ..records.record import CallRecord

K = TypeVar("K", bound=Hashable)
Names = tuple[tuple[str, str | None], ...]

METRICS: Final = {
    "time_to_first_token_s": "time to first token",
    "time_to_first_content_token_s": "time to first content token",
    "time_per_output_token_s": "time per output token",
    "decode_rate": "decode rate, tokens/s",
    "api_end_to_end_s": "API end-to-end",
    "duration_s": "duration",
}
"""The metrics of a call, as docs/measuring.md defines them, with their labels in tables."""

# With fewer values, all of them may lie on one side of the percentile.
LEAST_FOR_P95, LEAST_FOR_P99 = 20, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Percentiles of some numbers, interpolated linearly like numpy's."""

    n: int
    """How many numbers these are; at least 1."""
    p50: float
    p95: float | None
    """None below 20 numbers."""
    p99: float | None
    """None below 100 numbers."""
    highest: float


def percentiles(values: Iterable[float | None]) -> Percentiles | None:
    """Return the percentiles of the known numbers; None if there are none."""
    ordered = sorted([value for value in values if value is not None])
    count = len(ordered)
    if not count:
        return None
    p95 = quantile(ordered, 0.95) if count >= LEAST_FOR_P95 else None
    p99 = quantile(ordered, 0.99) if count >= LEAST_FOR_P99 else None
    return Percentiles(n=count, p50=quantile(ordered, 0.5), p95=p95, p99=p99, highest=ordered[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTime:
    """One phase of some calls."""

    seconds: Percentiles
    """Of the calls in which it happened."""
    total_s: float
    share: float | None
    """Of the total time of these calls; None if they took none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Calls that belong together. Percentiles and phases are of those that were answered."""

    model: str | None = None
    """None if the calls name none, or are not grouped by it."""
    origin: str | None = None
    user_action: str | None = None
    """The names of the user actions around the calls, the outermost first: "answer ticket > draft"."""
    calls: int
    """However they ended."""
    answered: int
    """Calls that completed, or that a play stopped with an answer that is valid if it was checked."""
    total_s: float
    """Seconds of all answered calls, one after the other."""
    metrics: Mapping[str, Percentiles]
    """From `time_to_first_token_s` to `duration_s`, without those that no call has."""
    phases: Mapping[Phase, PhaseTime]
    """The phases that happened in any call, in their order in time."""

    @property
    def longest_phase(self) -> Phase | None:
        """The phase that took most of the time; None without an answered call."""
        return max(self.phases, key=lambda phase: self.phases[phase].total_s, default=None)


def answered(record: CallRecord) -> bool:
    """Return whether a call was answered. Others would falsify percentiles: a failure is often quick."""
    if record.outcome == "stopped":
        return record.verdict in (None, "valid")
    return record.outcome == "completed"


def grouped(records: Iterable[CallRecord], key: Callable[[CallRecord], K]) -> dict[K, list[CallRecord]]:
    """Return the calls by a key, in the order in which the keys appear."""
    found: dict[K, list[CallRecord]] = {}
    for record in records:
        found.setdefault(key(record), []).append(record)
    return found


def group_of(records: Sequence[CallRecord], **names: str | None) -> Group:
    """Make one group of some calls."""
    kept = [record for record in records if answered(record)]
    total_s = sum(record.duration_s for record in kept)
    metrics = {}
    for name in METRICS:
        if (known := percentiles(getattr(record, name) for record in kept)) is not None:
            metrics[name] = known
    taken = [phases_of(record) for record in kept]
    phases = {}
    for phase in PHASES:
        times = [own[phase] for own in taken if phase in own]
        if (found := percentiles(times)) is not None:
            phase_s = sum(times)
            phases[phase] = PhaseTime(seconds=found, total_s=phase_s, share=phase_s / total_s if total_s > 0 else None)
    return Group(calls=len(records), answered=len(kept), total_s=total_s, metrics=metrics, phases=phases, **names)


def groups_by(records: Iterable[CallRecord], names: Callable[[CallRecord], Names]) -> tuple[Group, ...]:
    """Group calls by names such as their model, the group that took most of the time first."""
    groups = [group_of(own, **dict(key)) for key, own in grouped(records, names).items()]
    return tuple(sorted(groups, key=lambda group: (-group.total_s, -group.calls)))
