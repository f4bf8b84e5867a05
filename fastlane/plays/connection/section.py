"""How a report shows what open connections saved."""

from __future__ import annotations

from collections.abc import Sequence

from fastlane.records.formatting import duration
from fastlane.records.ledger import Ledger
from fastlane.records.record import CallRecord
from fastlane.records.section import RecordSection


class ConnectionSection(RecordSection):
    """Shows the shared connections. It is in no record: what it shows is part of every one."""

    __slots__ = ()

    @classmethod
    def acted(cls, record: CallRecord) -> bool:
        """Whether the call found its connection open."""
        return record.transport == "fastlane" and record.connection_reused is True

    @classmethod
    def effect(cls, records: Sequence[CallRecord], ledger: Ledger) -> str:
        """What opening connections would have taken."""
        if ledger.connections_saved_s is None:
            return "none of the client's calls opened a connection to compare with"
        return f"{duration(ledger.connections_saved_s)} of opening connections (estimated)"
