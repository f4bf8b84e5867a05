"""Calls that belong together, and where their time went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._percentiles import Percentiles, percentiles
from ._phases import PHASES, Phase, phases_of

if TYPE_CHECKING:
    from ..records.record import CallRecord

METRICS: tuple[str, ...] = (
    "time_to_first_token_s",
    "time_to_first_content_token_s",
    "time_per_output_token_s",
    "decode_rate",
    "api_end_to_end_s",
    "duration_s",
)
"""The metrics of a call, as docs/measuring.md defines them."""


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
    """Calls that belong together: percentiles and phases are of those that were answered."""

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

    def to_dict(self) -> dict[str, Any]:
        """The group as plain JSON data; what it is not grouped by is not in it."""
        names = {"model": self.model, "origin": self.origin, "user_action": self.user_action}
        return {
            **{name: value for name, value in names.items() if value is not None},
            "calls": self.calls,
            "answered": self.answered,
            "total_s": self.total_s,
            "metrics": {name: found.to_dict() for name, found in self.metrics.items()},
            "phases": {
                phase: {**found.seconds.to_dict(), "total_s": found.total_s, "share": found.share}
                for phase, found in self.phases.items()
            },
        }


def answered(record: CallRecord) -> bool:
    """Whether a call brought what was asked for.

    Any other would falsify a percentile: a failure is often quick. An answer that a play stopped counts unless it was
    checked and is not valid.
    """
    if record.outcome == "stopped":
        return record.verdict in (None, "valid")
    return record.outcome == "completed"


def group_of(records: Sequence[CallRecord], **names: str | None) -> Group:
    """Make one group of some calls."""
    kept = [record for record in records if answered(record)]
    total_s = sum(record.duration_s for record in kept)
    metrics = {}
    for name in METRICS:
        values = [value for record in kept if (value := getattr(record, name)) is not None]
        if (found := percentiles(values)) is not None:
            metrics[name] = found
    taken: dict[Phase, list[float]] = {phase: [] for phase in PHASES}
    for record in kept:
        for phase, took in phases_of(record).items():
            taken[phase].append(took)
    phases = {}
    for phase, times in taken.items():
        if (found := percentiles(times)) is not None:
            phase_s = sum(times)
            phases[phase] = PhaseTime(seconds=found, total_s=phase_s, share=phase_s / total_s if total_s > 0 else None)
    return Group(calls=len(records), answered=len(kept), total_s=total_s, metrics=metrics, phases=phases, **names)


def by_model(records: Sequence[CallRecord]) -> tuple[Group, ...]:
    """Groups by model and origin, the one that took most of the time first."""
    found: dict[tuple[str | None, str], list[CallRecord]] = {}
    for record in records:
        found.setdefault((record.model, record.origin), []).append(record)
    return _ordered([group_of(own, model=model, origin=origin) for (model, origin), own in found.items()])


def by_user_action(records: Sequence[CallRecord]) -> tuple[Group, ...]:
    """Groups by the user actions around the calls, the one that took most of the time first."""
    found: dict[tuple[str, ...], list[CallRecord]] = {}
    for record in records:
        if record.user_actions:
            found.setdefault(record.user_actions, []).append(record)
    return _ordered([group_of(own, user_action=" > ".join(names)) for names, own in found.items()])


def _ordered(groups: list[Group]) -> tuple[Group, ...]:
    return tuple(sorted(groups, key=lambda group: (-group.total_s, -group.calls)))
