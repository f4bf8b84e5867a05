"""How spans, metrics and reports show which model was chosen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from fastlane.records.ledger import Figure, Ledger
from fastlane.records.plays import RoutingRecord
from fastlane.records.record import CallRecord
from fastlane.records.section import Measure, Metric

MODEL: Final = "fastlane.route.model"
REASON: Final = "fastlane.route.reason"

DECISIONS: Final = Metric(
    "fastlane.router.decisions", "counter", "{decision}", "Calls for which a model was chosen, and why that one"
)


class RoutingSection(RoutingRecord):
    """Shows which model was chosen and why, and what came of it."""

    __slots__ = ()

    metrics = (DECISIONS,)
    figures = {  # noqa: RUF012 - never changed
        "fallbacks": Figure("{attempt}", "measured", "upstreams tried and left for another", is_spent=True),
        "price": Figure("currency", "reported", "price of routed calls' answers", is_spent=True),
    }

    def attributes(self) -> dict[str, Any]:
        """The question, the candidates and the choice."""
        return {
            "fastlane.route.requested_model": self.asked,
            MODEL: self.chosen,
            REASON: self.reason,
            "fastlane.route.candidate_count": len(self.candidates),
            "fastlane.route.task": self.task,
            "fastlane.route.min_quality": self.min_quality,
            "fastlane.route.predicted_duration": self.predicted_s,
            "fastlane.route.predicted_time_to_first_token": self.predicted_first_token_s,
            "fastlane.route.price": self.price,
            "fastlane.route.fallbacks": tuple([f"{one.model}: {one.why}" for one in self.fallbacks]) or None,
        }

    @property
    def optimizations(self) -> tuple[str, ...]:
        """Every routed call."""
        return ("routing",)

    def measures(self) -> Iterator[Measure]:
        """The decision."""
        yield Measure(DECISIONS, 1, {REASON: self.reason, MODEL: self.chosen})

    def savings(self, record: CallRecord) -> dict[str, Any]:
        """What the call cost, in money and in attempts."""
        return {"fallbacks": len(self.fallbacks), "price": self.price}

    @classmethod
    def effect(cls, records: Sequence[CallRecord], ledger: Ledger) -> str:
        """Who answered, and how often the prediction held."""
        routes = [own for record in records if (own := record.get(cls)) is not None]
        compared = [
            (one.actual_s, one.predicted_s)
            for one in routes
            if one.actual_s is not None and one.predicted_s is not None
        ]
        within = sum(actual <= predicted for actual, predicted in compared)
        left = sum(len(one.fallbacks) for one in routes)
        models = {one.model for one in routes if one.model is not None}
        shown = [f"{len(models):,} model{'' if len(models) == 1 else 's'} answered"]
        if left:
            shown.append(f"{left:,} left for another")
        if compared:
            shown.append(f"{within:,} of {len(compared):,} within the predicted time")
        return ", ".join(shown)

    @property
    def model_names(self) -> tuple[str, ...]:
        """The model that answered, as the catalog names it."""
        return () if self.model is None else (self.model,)
