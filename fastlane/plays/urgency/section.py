"""How spans, metrics and reports show the urgency of a call, its tier and its wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from fastlane.records.ledger import Figure
from fastlane.records.plays import UrgencyRecord
from fastlane.records.record import CallRecord
from fastlane.records.section import SHORT_SECONDS, Measure, Metric

URGENCY: Final = "fastlane.urgency"
TIER_ASKED: Final = "fastlane.tier.asked"
TIER_SERVED: Final = "fastlane.tier.served"

WAITS: Final = Metric(
    "fastlane.client.admission.wait.duration",
    "histogram",
    "s",
    "Time that a call waited for a slot, all attempts together",
    SHORT_SECONDS,
)
TIERS: Final = Metric(
    "fastlane.client.tiers", "counter", "{call}", "Calls by the service tier that they asked for and the one they got"
)


class UrgencySection(UrgencyRecord):
    """Shows how urgent a call was, how long it waited, and which tier served it."""

    __slots__ = ()

    metrics = (WAITS, TIERS)
    figures = {"tier_asked": Figure("", "measured")}  # noqa: RUF012 - never changed

    def attributes(self) -> dict[str, Any]:
        """The level, the tiers and the wait."""
        admission = self.admission
        return {
            URGENCY: self.urgency,
            TIER_ASKED: self.asked_tier,
            TIER_SERVED: self.served_tier,
            "fastlane.tier.full": self.full_tier,
            "fastlane.admission.wait.duration": admission and admission.waited_s,
            "fastlane.admission.ahead": admission and admission.ahead,
            "fastlane.admission.concurrency": admission and admission.concurrency,
        }

    def labels(self) -> dict[str, str]:
        """The level."""
        return {URGENCY: self.urgency}

    def measures(self) -> Iterator[Measure]:
        """The wait and the tiers."""
        if self.admission is not None:
            yield Measure(WAITS, self.admission.waited_s, {})
        if self.asked_tier is not None or self.served_tier is not None:
            yield Measure(TIERS, 1, {TIER_ASKED: self.asked_tier or "none", TIER_SERVED: self.served_tier or "none"})

    def savings(self, record: CallRecord) -> dict[str, Any]:
        """The tiers."""
        return {"tier_asked": self.asked_tier}

    @classmethod
    def acted(cls, record: CallRecord) -> None:
        """Not shown: every call has an urgency."""

    @property
    def queued_s(self) -> float | None:
        """The wait for a slot."""
        return None if self.admission is None else self.admission.waited_s
