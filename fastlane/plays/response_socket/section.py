"""What a call's record says of its way over a WebSocket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from fastlane.records.ledger import Figure, Ledger
from fastlane.records.record import CallRecord
from fastlane.records.section import RecordSection

SENT: Final = "fastlane.response_socket.sent"

Sent = Literal["delta", "full", "http"]
"""What was sent of the input: the new items on a WebSocket, all of it on a WebSocket, or all of it over HTTP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseSocketSection(RecordSection):
    """What was sent of the input of a call, and why not less."""

    name: ClassVar[str] = "response_socket"
    figures: ClassVar = {"socket_bytes": Figure("By", "measured", "bytes of history not sent again")}

    sent: Sent
    why: str | None = None
    """Why it was not a delta; None if it was."""
    items: int | None = None
    """Items of the input; None if they were not counted."""
    items_sent: int | None = None
    sent_bytes: int | None = None
    """Bytes of the message; None over HTTP."""
    saved_bytes: int = 0
    """Bytes of the items that were not sent."""

    def attributes(self) -> dict[str, Any]:
        """What was sent."""
        return {SENT: self.sent}

    @property
    def optimizations(self) -> tuple[str, ...]:
        """Whether only new items were sent."""
        return ("response_socket",) if self.sent == "delta" else ()

    def savings(self, record: CallRecord) -> dict[str, Any]:
        """The bytes that were not sent."""
        return {"socket_bytes": self.saved_bytes or None}

    @classmethod
    def acted(cls, record: CallRecord) -> bool:
        """Whether only new items were sent."""
        own = record.get(cls)
        return own is not None and own.sent == "delta"

    @classmethod
    def effect(cls, records: Sequence[CallRecord], ledger: Ledger) -> str:
        """How many calls were sent as a delta."""
        deltas = sum(cls.acted(record) for record in records)
        return f"{deltas:,} of {len(records):,} calls sent only what was new"
