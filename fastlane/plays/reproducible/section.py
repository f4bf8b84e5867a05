"""What a call's record says of its seed and of the backend that answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastlane.records.ledger import Ledger
from fastlane.records.record import CallRecord
from fastlane.records.section import RecordSection


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproducibleSection(RecordSection):
    """The seed of a call, and whether another backend answered the same request before."""

    seed: int | None
    """The seed that was sent; None if the provider is not known to take one, or has refused it."""
    system_fingerprint: str | None
    """The backend that answered, by the provider's own word; None if it did not say."""
    previous_fingerprint: str | None
    """The backend that answered the last equal request of this process within a day; None for the first one."""

    name = "reproducible"

    @property
    def fingerprint_changed(self) -> bool | None:
        """Whether the backend has changed since the last equal request; None for the first one."""
        if self.system_fingerprint is None or self.previous_fingerprint is None:
            return None
        return self.system_fingerprint != self.previous_fingerprint

    def attributes(self) -> dict[str, Any]:
        """The seed, and whether the backend changed."""
        return {"gen_ai.request.seed": self.seed, "fastlane.system_fingerprint.changed": self.fingerprint_changed}

    @classmethod
    def acted(cls, record: CallRecord) -> bool:
        """Whether a seed was sent."""
        own = record.get(cls)
        return own is not None and own.seed is not None

    @classmethod
    def effect(cls, records: Sequence[CallRecord], ledger: Ledger) -> str:
        """How often the backend changed between equal requests."""
        own = [section for record in records if (section := record.get(cls)) is not None]
        compared = [section.fingerprint_changed for section in own if section.fingerprint_changed is not None]
        return f"{sum(compared):,} of {len(compared):,} repeated requests met another backend"
