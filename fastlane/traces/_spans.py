"""One span as a file has it, whoever wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanLink:
    """Another span that a span names."""

    trace_id: str
    span_id: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanEvent:
    """Something that happened within a span."""

    name: str
    time_ns: int
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One span. Times are nanoseconds since the epoch."""

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    kind: str
    """"internal", "server", "client", "producer", "consumer", or "" where the file does not say."""
    start_ns: int
    end_ns: int
    """Never before the start."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Plain JSON data."""
    events: tuple[SpanEvent, ...] = ()
    links: tuple[SpanLink, ...] = ()
    failed: bool = False
    """Whether its status is an error."""
    status_message: str = ""
    scope: str = ""
    """The instrumentation that made it, with its version."""
    service: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from all others."""
        return (self.trace_id, self.span_id)

    @property
    def error(self) -> str | None:
        """The class of what went wrong; None where nothing did. Never a message, which may be of any length."""
        if not self.failed:
            return None
        kind = self.attributes.get("error.type")
        if isinstance(kind, str) and kind:
            return kind
        for event in self.events:
            raised = event.attributes.get("exception.type")
            if isinstance(raised, str) and raised:
                return raised.rpartition(".")[2]
        return "error"

    def text(self, *names: str) -> str | None:
        """The first of these attributes that is a text and not empty."""
        return next((value for name in names if isinstance(value := self.attributes.get(name), str) and value), None)

    def count(self, *names: str) -> int | None:
        """The first of these attributes that is a whole number."""
        for name in names:
            value = self.attributes.get(name)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
        return None

    def number(self, *names: str) -> float | None:
        """The first of these attributes that is a number of 0 or more."""
        for name in names:
            value = self.attributes.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12:
                return float(value)
        return None

    def flag(self, name: str) -> bool | None:
        """This attribute where it is True or False."""
        value = self.attributes.get(name)
        return value if isinstance(value, bool) else None
