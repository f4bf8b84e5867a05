from __future__ import annotations

from fastlane.plays.prompt_cache.prefixes import CacheRules, Ledger
from fastlane.records.prompt import PromptCacheRecord
from fastlane.records.usage import Usage

SECOND_NS = 10**9


def said_after(seconds: int) -> PromptCacheRecord:
    """What is said of a prompt with another clock at its top, so long after the one before."""
    ledger = Ledger()
    for now_ns, clock in ((0, "10:04:33"), (seconds * SECOND_NS, "10:05:51")):
        system = f"It is {clock}. " + "Two bags of up to 23 kg are free of charge. " * 100
        sighting = ledger.sight(
            origin="https://api.example.com:443",
            model="m",
            endpoint="/chat/completions",
            body={"messages": [{"role": "system", "content": system}, {"role": "user", "content": "Two bags?"}]},
            rules=CacheRules(automatic=True, lifetime_s=300.0),
            now_ns=now_ns,
        )
        record = sighting.settle(Usage(cached_tokens=0), answered=True, now_ns=now_ns)
    return record


def test_what_had_expired_is_not_lost_by_a_difference() -> None:
    in_time, late = said_after(299), said_after(301)

    assert in_time.drift is not None
    assert in_time.drift.kind == "timestamp"
    assert late.drift is None
