"""`CallRecord`, the record of a call that has ended, and the sections that plays add to it."""

from typing import TYPE_CHECKING, Any

from .attempts import Attempt as Attempt
from .ledger import Figure as Figure, Ledger as Ledger
from .plays import (
    AdmissionRecord as AdmissionRecord,
    BoundedOutputRecord as BoundedOutputRecord,
    ContextTrimmingRecord as ContextTrimmingRecord,
    Cut as Cut,
    Drift as Drift,
    Fallback as Fallback,
    HedgingRecord as HedgingRecord,
    PromptCacheRecord as PromptCacheRecord,
    RateLimitsRecord as RateLimitsRecord,
    RejectedAnswer as RejectedAnswer,
    RequestEncodingRecord as RequestEncodingRecord,
    RoutingCandidate as RoutingCandidate,
    RoutingRecord as RoutingRecord,
    UrgencyRecord as UrgencyRecord,
)
from .record import CallRecord as CallRecord
from .section import Measure as Measure, Metric as Metric, Recorded as Recorded, RecordSection as RecordSection
from .timeline import Timeline as Timeline, WireStamps as WireStamps
from .usage import ProviderTimes as ProviderTimes, Usage as Usage

if TYPE_CHECKING:
    from .savings import Savings as Savings
else:

    def __getattr__(name: str) -> Any:
        """Load what `import fastlane` has no use for."""
        if name == "Savings":
            from .savings import Savings

            return Savings
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AdmissionRecord",
    "Attempt",
    "BoundedOutputRecord",
    "CallRecord",
    "ContextTrimmingRecord",
    "Cut",
    "Drift",
    "Fallback",
    "Figure",
    "HedgingRecord",
    "Ledger",
    "Measure",
    "Metric",
    "PromptCacheRecord",
    "ProviderTimes",
    "RateLimitsRecord",
    "RecordSection",
    "Recorded",
    "RejectedAnswer",
    "RequestEncodingRecord",
    "RoutingCandidate",
    "RoutingRecord",
    "Savings",
    "Timeline",
    "UrgencyRecord",
    "Usage",
    "WireStamps",
]
