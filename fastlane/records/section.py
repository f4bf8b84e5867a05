"""The base class of record sections: what one play adds to a record, and how telemetry and reports show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple

from .ledger import Figure, Ledger

if TYPE_CHECKING:
    from .record import CallRecord

Kind = Literal["histogram", "counter"]


class Metric(NamedTuple):
    """One metric, with the arguments of OpenTelemetry's API."""

    name: str
    kind: Kind
    unit: str
    description: str
    buckets: tuple[float, ...] = ()
    """The advisory bucket boundaries of a histogram; views of the application override them."""


class Measure(NamedTuple):
    """One value of a metric."""

    metric: Metric
    value: float
    labels: dict[str, Any] = {}  # noqa: RUF012 - never changed
    """Labels in addition to those of the call. Each must have a limited number of values."""


SECONDS: Final = (
    0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0,
    5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0,
)  # fmt: skip
"""Fine enough to tell two arms of an experiment apart, which steps of a factor of two are not."""

SHORT_SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, *SECONDS)
"""For durations that may be below 10 ms: a phase on the wire, the gap between two chunks."""

LONG_SECONDS: Final = (*SECONDS, 180.0, 300.0, 600.0, 1800.0, 3600.0)
"""For user actions, which may last an hour."""


class RecordSection:
    """What one play did for a call: a frozen dataclass, with methods for telemetry and reports.

    A play declares its class (`Play.section`), which registers it with telemetry and reports. Methods that a subclass
    does not override show nothing. Attributes, labels and figures must not contain text of the prompt or the answer.
    """

    __slots__ = ()

    name: ClassVar[str] = ""
    """Its key in `CallRecord.to_dict()`."""
    metrics: ClassVar[tuple[Metric, ...]] = ()
    """Every metric that `measures` may return."""
    figures: ClassVar[Mapping[str, Figure]] = {}
    """Every figure that `savings` may return."""
    checked_ns: tuple[int, int] | None = None
    """When the answer was checked, from and until: monotonic nanoseconds; None if it was not."""

    def to_dict(self) -> dict[str, Any]:
        """The section as plain JSON data."""
        return asdict(self) if is_dataclass(self) and not isinstance(self, type) else {}

    # Spans

    def attributes(self) -> dict[str, Any]:
        """The attributes of the call's span; those that are None are left out."""
        return {}

    @property
    def optimizations(self) -> tuple[str, ...]:
        """Words for the attribute `fastlane.optimizations`, one for each optimisation that acted on the call."""
        return ()

    # Metrics

    def labels(self) -> dict[str, str]:
        """Labels for all of fastlane's metrics of the call; each must have few values."""
        return {}

    def measures(self) -> Iterable[Measure]:
        """Values of the section's metrics."""
        return ()

    # Reports

    def savings(self, record: CallRecord) -> Mapping[str, Any]:
        """Savings and costs by the name of the figure: a value, an `Entry` with another basis, or None if unknown."""
        return {}

    @classmethod
    def acted(cls, record: CallRecord) -> bool | None:
        """Return whether the play acted on this call; None to leave that out of reports."""
        return record.get(cls) is not None

    @classmethod
    def effect(cls, records: Sequence[CallRecord], ledger: Ledger) -> str | None:
        """Describe in a few words the effect of the play on the calls on which it acted.

        `ledger`: the savings of these calls.
        """
        return None

    @classmethod
    def rows(cls, ledger: Ledger) -> Iterable[tuple[str, str, str, str]]:
        """Further rows of a report's table of savings: what, in all, of how many calls, how it is known."""
        return ()

    # Values for the record

    @property
    def queued_s(self) -> float | None:
        """Seconds in a queue of fastlane's before attempts, all of them together; None if there was no queue."""
        return None

    @property
    def verdict(self) -> str | None:
        """The verdict of a check of the answer, such as "valid"; None if there was no check."""
        return None

    @property
    def plain_body_bytes(self) -> int | None:
        """Bytes of the request's body as JSON, if it may have been sent in another encoding."""
        return None

    @property
    def warning(self) -> str | None:
        """What a report should say to look at, in a few words, the same for like calls; None for nothing."""
        return None

    @property
    def model_names(self) -> tuple[str, ...]:
        """Other model names that match the call in a report's filter."""
        return ()


_by_play: dict[str, type[RecordSection]] = {}
_registrations = 0


def register(play: str, section: type[RecordSection]) -> None:
    """Register the section class of a play. `play`: the name of its class, with which its fingerprint begins."""
    global _registrations  # noqa: PLW0603 - a count
    _by_play[play] = section
    _registrations += 1


def registrations() -> int:
    """Return the number of registrations. When it has changed, the metrics of all sections have to be read again."""
    return _registrations


def section_of(play: str) -> type[RecordSection] | None:
    """Return the section class of the play with this class name; None for a play without one."""
    return _by_play.get(play)


def section_classes() -> tuple[type[RecordSection], ...]:
    """Return the section classes of all loaded plays, in the order of the plays' names."""
    return tuple(dict.fromkeys(_by_play[play] for play in sorted(_by_play)))
