"""The part of a call's record that one play adds, and how telemetry and reports show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any, ClassVar, Final, Literal, NamedTuple, Protocol, TypeVar

from .attempts import Attempt
from .ledger import Figure, Ledger
from .usage import Usage

_S = TypeVar("_S", bound="RecordSection")

Kind = Literal["histogram", "counter"]


class Metric(NamedTuple):
    """One metric, as OpenTelemetry's API is asked for it."""

    name: str
    kind: Kind
    unit: str
    description: str
    buckets: tuple[float, ...] = ()
    """The boundaries that are advised where the application's views say nothing; only of a histogram."""


class Measure(NamedTuple):
    """One value of a metric."""

    metric: Metric
    value: float
    labels: dict[str, Any] = {}  # noqa: RUF012 - never changed
    """Labels beyond those of the call. A text is one of a limited number in each label."""


SECONDS: Final = (
    0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0,
    5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0,
)  # fmt: skip
"""Fine enough to tell two arms of an experiment apart, which steps of a factor of two are not."""

SHORT_SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, *SECONDS)
"""For what may take less than a hundredth of a second: a phase on the wire, the gap between two chunks."""

LONG_SECONDS: Final = (*SECONDS, 180.0, 300.0, 600.0, 1800.0, 3600.0)
"""For a user's action, which may be a job."""


class Recorded(Protocol):
    """What a section may read of the record that it is part of; `fastlane.CallRecord` has all of it."""

    @property
    def sections(self) -> tuple[RecordSection, ...]:
        """The sections of the plays."""

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """The attempts, the one that gave the answer last."""

    @property
    def usage(self) -> Usage:
        """The tokens of the answer."""

    @property
    def service_tier(self) -> str | None:
        """The tier that served the call, by the provider's own word."""

    @property
    def transport(self) -> str | None:
        """What carried the last attempt."""

    @property
    def connection_reused(self) -> bool | None:
        """Whether the answering attempt found its connection open."""

    def get(self, kind: type[_S]) -> _S | None:
        """The section of this class."""


class RecordSection:
    """What one play says of a call that is over: a frozen dataclass, and how it is shown.

    A play names its class (`Play.section`), and telemetry and reports know it from then on. What a subclass does not
    override shows nothing. Attributes, labels and figures hold no text of the prompt or the answer.
    """

    __slots__ = ()

    name: ClassVar[str] = ""
    """Its key in `CallRecord.to_dict()`."""
    metrics: ClassVar[tuple[Metric, ...]] = ()
    """Every metric that `measures` may give."""
    figures: ClassVar[Mapping[str, Figure]] = {}
    """Every figure that `savings` may give."""
    groups: ClassVar[tuple[str, ...]] = ()
    """The groups that a report compares, in their order; empty where it compares none."""

    def to_dict(self) -> dict[str, Any]:
        """The section as plain JSON data."""
        return asdict(self) if is_dataclass(self) and not isinstance(self, type) else {}

    # Spans

    def attributes(self) -> dict[str, Any]:
        """The attributes of the call's span."""
        return {}

    @property
    def optimizations(self) -> tuple[str, ...]:
        """Words for the attribute `fastlane.optimizations`, one for each means that came to bear on the call."""
        return ()

    # Metrics

    def labels(self) -> dict[str, str]:
        """Labels of all of fastlane's own metrics of the call; each has few values."""
        return {}

    def measures(self) -> Iterable[Measure]:
        """Values of the section's metrics."""
        return ()

    # Reports

    def savings(self, record: Recorded) -> Mapping[str, Any]:
        """What was saved and spent, by the name of the figure; None for what is not known."""
        return {}

    @classmethod
    def acted(cls, record: Recorded) -> bool | None:
        """Whether the play did something on this call; None where a report is not to say."""
        return record.get(cls) is not None

    @classmethod
    def effect(cls, records: Sequence[Recorded], ledger: Ledger) -> str | None:
        """What came of the play on the calls on which it did something, in a few words.

        `ledger`: the savings of these calls.
        """
        return None

    @classmethod
    def rows(cls, ledger: Ledger) -> Iterable[tuple[str, str, str, str]]:
        """Further rows of a report's table of savings: what, in all, of how many calls, how it is known."""
        return ()

    @property
    def group(self) -> str | None:
        """The one of `groups` that the call belongs to."""
        return None

    # What it knows of the call

    @property
    def queued_s(self) -> float | None:
        """Seconds in a queue of fastlane's before attempts, all of them together; None where there was no queue."""
        return None

    @property
    def verdict(self) -> str | None:
        """What a check of the answer said, "valid" or another word; None where none was made."""
        return None

    @property
    def checked_ns(self) -> tuple[int, int] | None:
        """When the answer was checked, from and until: monotonic nanoseconds; None where none was."""
        return None

    @property
    def plain_body_bytes(self) -> int | None:
        """Bytes of the request's body as JSON, where it may have been sent in another form."""
        return None

    @property
    def model_names(self) -> tuple[str, ...]:
        """Other names by which a report finds the calls to this model."""
        return ()


def queued_s_of(sections: Iterable[RecordSection]) -> float | None:
    """Seconds in all queues of fastlane's; None where there was none."""
    waited_s = None
    for section in sections:
        own_s = section.queued_s
        if own_s is not None:
            waited_s = own_s if waited_s is None else waited_s + own_s
    return waited_s


_by_play: dict[str, type[RecordSection]] = {}
_registrations = 0


def register(play: str, section: type[RecordSection]) -> None:
    """Have the section of a play shown; `play`: the name of its class, with which its fingerprint begins."""
    global _registrations  # noqa: PLW0603 - a count
    _by_play[play] = section
    _registrations += 1


def registrations() -> int:
    """How often a section was registered: the metrics of all sections are known anew when it has changed."""
    return _registrations


def section_of(play: str) -> type[RecordSection] | None:
    """The section of the play with this class name; None for a play without one."""
    return _by_play.get(play)


def section_classes() -> tuple[type[RecordSection], ...]:
    """Every class of section of the plays that are loaded, in the order of the plays' names."""
    return tuple(dict.fromkeys(_by_play[play] for play in sorted(_by_play)))
