"""What a call's record says of its stream: where it broke or stalled, and how it went on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from fastlane.records.ledger import Figure, Ledger
from fastlane.records.record import CallRecord
from fastlane.records.section import RecordSection

How = Literal["resumed", "repeated", "continued"]
"""How a broken stream went on: the same answer after its last event, the whole call again before any output, or a
request to continue the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPart:
    """One part of a stream: up to a break, or to the end."""

    how: How | None
    """How it followed the part before; None for the first part."""
    at_character: int
    """Characters of text before it: the place of the seam."""
    error: str | None = None
    """The class of the error that ended it; None for the last part of a whole answer."""
    stalled_s: float | None = None
    """Seconds without any event that ended it; None if it did not stall."""
    input_tokens: int | None = None
    """None if unknown. A part that was resumed adds nothing to the bill, and has none."""
    output_tokens: int | None = None
    estimated: bool = False
    """Whether the tokens are estimates, because the provider's count is lost with the part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnbrokenSection(RecordSection):
    """The parts of a stream, and how long it was silent."""

    name: ClassVar[str] = "unbroken"
    figures: ClassVar = {
        "stream_breaks": Figure("", "measured"),
        "stream_tokens": Figure("{token}", "estimated", "tokens of streams that broke and were sent again", True),
    }

    parts: tuple[StreamPart, ...]
    """More than one if the stream broke and went on."""
    why_not: str | None = None
    """Why a broken stream did not go on; None if it did, or did not break."""
    usual_gap_s: float | None = None
    """The longest gap that streams of its model usually have, in seconds; None if unknown."""
    longest_gap_s: float | None = None
    """The longest gap between two events with text of this stream, in seconds."""

    @property
    def breaks(self) -> int:
        """How often the stream broke or stalled."""
        return sum(part.error is not None for part in self.parts)

    @property
    def stalls(self) -> int:
        """How often it stalled."""
        return sum(part.stalled_s is not None for part in self.parts)

    @property
    def seams(self) -> tuple[int, ...]:
        """Where parts join, in characters of the text."""
        return tuple(part.at_character for part in self.parts[1:])

    def attributes(self) -> dict[str, Any]:
        """The breaks and the stalls."""
        return {"fastlane.stream.breaks": self.breaks, "fastlane.stream.stalls": self.stalls} if self.breaks else {}

    @property
    def optimizations(self) -> tuple[str, ...]:
        """Whether a broken stream went on."""
        return ("unbroken",) if len(self.parts) > 1 else ()

    def savings(self, record: CallRecord) -> dict[str, Any]:
        """How the stream went on, and what the parts that were lost cost."""
        lost = [part for part in self.parts if part.estimated]
        spent = sum((part.input_tokens or 0) + (part.output_tokens or 0) for part in lost)
        went_on = "went on" if self.why_not is None else "raised"
        return {"stream_breaks": went_on if self.breaks else None, "stream_tokens": spent or None}

    @classmethod
    def acted(cls, record: CallRecord) -> bool:
        """Whether the stream broke."""
        own = record.get(cls)
        return own is not None and own.breaks > 0

    @classmethod
    def effect(cls, records: Sequence[CallRecord], ledger: Ledger) -> str:
        """How many broken streams went on."""
        went_on, raised = (ledger.count("stream_breaks", word) for word in ("went on", "raised"))
        return f"{went_on:,} of {went_on + raised:,} broken streams went on"
