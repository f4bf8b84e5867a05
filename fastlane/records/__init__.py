"""`CallRecord`, the record of a call that has ended, and the sections that plays add to it."""

from .attempts import Attempt as Attempt
from .ledger import Entry as Entry, Figure as Figure, Ledger as Ledger
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
from .section import Measure as Measure, Metric as Metric, RecordSection as RecordSection
from .timeline import Timeline as Timeline, WireStamps as WireStamps
from .usage import Usage as Usage

__all__ = [
    "AdmissionRecord",
    "Attempt",
    "BoundedOutputRecord",
    "CallRecord",
    "ContextTrimmingRecord",
    "Cut",
    "Drift",
    "Entry",
    "Fallback",
    "Figure",
    "HedgingRecord",
    "Ledger",
    "Measure",
    "Metric",
    "PromptCacheRecord",
    "RateLimitsRecord",
    "RecordSection",
    "RejectedAnswer",
    "RequestEncodingRecord",
    "RoutingCandidate",
    "RoutingRecord",
    "Timeline",
    "UrgencyRecord",
    "Usage",
    "WireStamps",
]
