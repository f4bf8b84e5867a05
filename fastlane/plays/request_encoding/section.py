"""How spans, metrics and reports show the form of a request's body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastlane.records.ledger import Figure, Ledger
from fastlane.records.plays import RequestEncodingRecord
from fastlane.records.record import CallRecord


class RequestEncodingSection(RequestEncodingRecord):
    """Shows the form of a request's body. That of each attempt is an attribute of its own span."""

    __slots__ = ()

    figures = {  # noqa: RUF012 - never changed
        "encoding_bytes": Figure("By", "measured", "bytes not sent, by encoding"),
        "encoding_cpu_s": Figure("s", "measured", "CPU time for encoding", is_spent=True),
    }

    def savings(self, record: CallRecord) -> dict[str, Any]:
        """The bytes that were not sent, and the CPU time."""
        is_encoded = self.form != "json"
        return {
            "encoding_bytes": self.plain_bytes - self.sent_bytes if is_encoded else None,
            "encoding_cpu_s": self.cpu_s if self.cpu_s > 0 else None,
        }

    @classmethod
    def acted(cls, record: CallRecord) -> bool:
        """Whether the body was sent in another form than JSON."""
        own = record.get(cls)
        return own is not None and own.form != "json"

    @classmethod
    def effect(cls, records: Sequence[CallRecord], ledger: Ledger) -> str:
        """The bytes before and after."""
        sections = [own for record in records if (own := record.get(cls)) is not None]
        plain, sent = sum(own.plain_bytes for own in sections), sum(own.sent_bytes for own in sections)
        return f"{plain:,} B of JSON in {sent:,} B"

    @property
    def plain_body_bytes(self) -> int:
        """Bytes of the body as JSON."""
        return self.plain_bytes
