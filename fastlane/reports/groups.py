"""Calls that belong together: how many were answered, their percentiles, and where their time went."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from ..records.quantiles import quantile
from .phases import PHASES, Phase, phases_of

if TYPE_CHECKING:
    from ..records.record import CallRecord

K = TypeVar("K", bound=Hashable)

METRICS: Final = {
    "time_to_first_token_s": "time to first token",
    "time_to_first_content_token_s": "time to first content token",
    "time_per_output_token_s": "time per output token",
    "decode_rate": "decode rate, tokens/s",
    "api_end_to_end_s": "API end-to-end",
    "duration_s": "duration",
}
"""The metrics of a call, as docs/measuring.md defines them, with their labels in tables."""

# With fewer values, all of them may lie on one side of the percentile: it is not shown.
LEAST_FOR_P95, LEAST_FOR_P99 = 20, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Percentiles of some numbers, interpolated linearly between neighbours as numpy and the A/B harness do it."""

    n: int
    """How many numbers these are; at least 1."""
    p50: float
    p95: float | None
    """None below 20 numbers."""
    p99: float | None
    """None below 100 numbers."""
    highest: float


def percentiles(values: Iterable[float | None]) -> Percentiles | None:
    """Return the percentiles of the numbers that are known; None without any."""
    ordered = sorted([value for value in values if value is not None])
    count = len(ordered)
    if not count:
        return None
    return Percentiles(
        n=count,
        p50=quantile(ordered, 0.5),
        p95=quantile(ordered, 0.95) if count >= LEAST_FOR_P95 else None,
        p99=quantile(ordered, 0.99) if count >= LEAST_FOR_P99 else None,
        highest=ordered[-1],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTime:
    """One phase of some calls."""

    seconds: Percentiles
    """Of the calls in which it happened."""
    total_s: float
    share: float | None
    """Of all the time that the calls took; None where they took none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Calls that belong together. Percentiles and phases are of those that were answered."""

    model: str | None = None
    """None where the calls name none, or are not grouped by it."""
    origin: str | None = None
    user_action: str | None = None
    """The names of the user actions around the calls, the outermost first: "answer ticket > draft"."""
    calls: int
    """However they ended."""
    answered: int
    """Of these, the calls that completed, or that a play stopped because nothing more was to come."""
    total_s: float
    """Seconds of all answered calls, one after the other."""
    metrics: Mapping[str, Percentiles]
    """Of those of `time_to_first_token_s` to `duration_s` that any call has."""
    phases: Mapping[Phase, PhaseTime]
    """Of those that happened in any call, in their order in time."""

    @property
    def longest_phase(self) -> Phase | None:
        """The phase that took most of the time; None without an answered call."""
        return max(self.phases.items(), key=lambda item: item[1].total_s)[0] if self.phases else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What one play did."""

    play: str
    """The name of its class."""
    on: int
    """Calls of clients that have it."""
    acted: int | None
    """Of these, the calls on which it did something; None for a play whose section does not say."""
    effect: str | None
    """What came of it, by the records of these calls; None where there are none."""
    group: Group
    """Where the time of the calls went on which it did something. That they differ from others says nothing of the play
    alone: what it is worth is for an A/B comparison to say."""


def answered(record: CallRecord) -> bool:
    """Return whether a call brought what was asked for.

    Any other would falsify a percentile: a failure is often quick. An answer that a play stopped counts unless it was
    checked and is not valid.
    """
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
    metrics = {name: percentiles([getattr(record, name) for record in kept]) for name in METRICS}
    taken = [phases_of(record) for record in kept]
    phases = {}
    for phase in PHASES:
        times = [own[phase] for own in taken if phase in own]
        if (found := percentiles(times)) is not None:
            phase_s = sum(times)
            phases[phase] = PhaseTime(seconds=found, total_s=phase_s, share=phase_s / total_s if total_s > 0 else None)
    return Group(
        calls=len(records),
        answered=len(kept),
        total_s=total_s,
        metrics={name: one for name, one in metrics.items() if one is not None},
        phases=phases,
        **names,
    )


def by_model(records: Sequence[CallRecord]) -> tuple[Group, ...]:
    """Group calls by model and origin, the one that took most of the time first."""
    found = grouped(records, lambda record: (record.model, record.origin))
    return _ordered([group_of(own, model=model, origin=origin) for (model, origin), own in found.items()])


def by_user_action(records: Sequence[CallRecord]) -> tuple[Group, ...]:
    """Group calls by the user actions around them, the one that took most of the time first."""
    found = grouped([record for record in records if record.user_actions], lambda record: record.user_actions)
    return _ordered([group_of(own, user_action=" > ".join(names)) for names, own in found.items()])


def _ordered(groups: list[Group]) -> tuple[Group, ...]:
    return tuple(sorted(groups, key=lambda group: (-group.total_s, -group.calls)))
