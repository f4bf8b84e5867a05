"""What is known of prompts that were sent: what they had in common, what broke it, and what providers kept."""

from __future__ import annotations

from ._judging import CacheRules
from ._ledger import Ledger, Sighting
from ._report import DriftCount, FamilyReport, Metric, PromptCacheReport

__all__ = [
    "CacheRules",
    "DriftCount",
    "FamilyReport",
    "Ledger",
    "Metric",
    "PromptCacheReport",
    "Sighting",
]
