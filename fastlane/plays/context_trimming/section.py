"""How spans and reports show what was cut from a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastlane.records.ledger import Figure, Ledger
from fastlane.records.plays import ContextTrimmingRecord
from fastlane.records.record import CallRecord


class ContextTrimmingSection(ContextTrimmingRecord):
    """Shows what was cut from a conversation."""

    __slots__ = ()

    figures = {  # noqa: RUF012 - never changed
        "trimmed_tokens": Figure("{token}", "estimated", "prompt tokens cut by trimming"),
    }

    def attributes(self) -> dict[str, Any]:
        """The tokens that were not sent."""
        return {"fastlane.context_trimming.saved_tokens": self.tokens_before - self.tokens_after}

    @property
    def optimizations(self) -> tuple[str, ...]:
        """Whether anything is cut."""
        return ("context_trimming",) if self.cuts else ()

    def savings(self, record: CallRecord) -> dict[str, Any]:
        """The tokens that were not sent."""
        return {"trimmed_tokens": self.tokens_before - self.tokens_after if self.cuts else None}

    @classmethod
    def acted(cls, record: CallRecord) -> bool:
        """Whether anything was cut."""
        own = record.get(cls)
        return own is not None and own.tokens_after < own.tokens_before

    @classmethod
    def effect(cls, records: Sequence[CallRecord], ledger: Ledger) -> str:
        """The tokens that were not sent."""
        cut = ledger.total("trimmed_tokens")
        return f"{cut.value if cut is not None else 0:,} tokens not sent (estimated)"
