"""How spans, metrics and reports show what a call waited for rate limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from fastlane.records.ledger import Ledger
from fastlane.records.plays import RateLimitsRecord
from fastlane.records.record import CallRecord
from fastlane.records.section import SHORT_SECONDS, Measure, Metric

REASON: Final = "fastlane.rate_limits.wait.reason"

WAITS: Final = Metric(
    "fastlane.client.rate_limits.wait.duration",
    "histogram",
    "s",
    "Time for which a call was held back to keep to rate limits, all attempts together",
    SHORT_SECONDS,
)
REFUSALS: Final = Metric(
    "fastlane.client.rate_limits.refused", "counter", "{attempt}", "Attempts that the provider refused with status 429"
)


class RateLimitsSection(RateLimitsRecord):
    """Shows how long a call was held back, and whether it was refused."""

    __slots__ = ()

    metrics = (WAITS, REFUSALS)

    def attributes(self) -> dict[str, Any]:
        """The wait and the refusals."""
        return {
            "fastlane.rate_limits.wait.duration": self.waited_s,
            "fastlane.rate_limits.ahead": self.ahead,
            "fastlane.rate_limits.refused": self.refused,
            REASON: self.waited_for,
        }

    def measures(self) -> Iterator[Measure]:
        """The wait and the refusals."""
        yield Measure(WAITS, self.waited_s, {REASON: self.waited_for or "none"})
        if self.refused:
            yield Measure(REFUSALS, self.refused, {})

    @classmethod
    def acted(cls, record: CallRecord) -> bool:
        """Whether the call waited."""
        own = record.get(cls)
        return own is not None and own.waited_s > 0

    @classmethod
    def effect(cls, records: Sequence[CallRecord], ledger: Ledger) -> str:
        """How many of the calls that waited were refused all the same."""
        own = [section for record in records if (section := record.get(cls)) is not None]
        refused = sum(section.refused > 0 for section in own)
        return f"{refused:,} of {len(own):,} calls that waited were refused all the same"

    @property
    def queued_s(self) -> float | None:
        """The wait."""
        return self.waited_s
