from __future__ import annotations

import json
from typing import Any

from fastlane.plays.prompt_cache.report import FamilyReport, PromptCacheReport
from fastlane.records.plays import Drift, PromptCacheRecord


def record(family: str, cached: int | None, drift: Drift | None = None, **changed: Any) -> PromptCacheRecord:
    fields: dict[str, Any] = {"prompt_tokens": 2_000, "reusable_tokens": 1_600, "expected_tokens": 1_600}
    return PromptCacheRecord(family=family, cached_tokens=cached, explanation=drift, **(fields | changed))


RECORDS = [
    record("aa", 1_500),
    record("aa", 1_500, Drift(kind="timestamp", path="messages[0].content", tokens_lost=1_000)),
    record("aa", None, Drift(kind="timestamp", path="messages[2].content", tokens_lost=1_500)),
    record("aa", None),
    record("bb", None, Drift(kind="evicted", path=None, tokens_lost=4_000)),
]


def report() -> PromptCacheReport:
    families = [
        FamilyReport(family="bb", origin="https://api.example.com:443", model="small"),
        FamilyReport(family="aa", origin="https://api.example.com:443", model="large"),
    ]
    for one in RECORDS:
        next(family for family in families if family.family == one.family).count(one)
    return PromptCacheReport.of(families, RECORDS)


def test_calls_without_a_word_on_the_cache_are_no_misses() -> None:
    large, small = report().families

    assert (large.calls, large.said_calls, large.said_share) == (4, 2, 0.5)
    assert (large.cached_tokens, large.said_expected_tokens, large.hit_ratio) == (3_000, 3_200, 0.75)
    assert (small.cached_tokens, small.said_expected_tokens, small.hit_ratio) == (None, None, None)


def test_totals_are_those_of_all_families() -> None:
    whole = report()

    assert (whole.calls, whole.said_calls, whole.hit_ratio) == (5, 2, 0.75)
    assert (whole.prompt_tokens, whole.expected_tokens, whole.cached_tokens) == (10_000, 8_000, 3_000)
    assert whole.tokens_lost == 6_500
    assert PromptCacheReport.of([]).hit_ratio is None


def test_drifts_are_sorted_by_what_they_cost() -> None:
    evicted, timestamp = report().drifts

    assert (evicted.kind, evicted.path) == ("evicted", None)
    assert (timestamp.kind, timestamp.calls, timestamp.tokens_lost) == ("timestamp", 2, 2_500)
    assert timestamp.path == "messages[2].content"
    assert report().families[0].drifts == (timestamp,)


def test_report_is_a_table() -> None:
    text = str(report())

    assert "aa      large" in text
    assert "75%" in text
    assert "messages[2].content" in text
    totals, unsaid = text.splitlines()[-2:]
    assert totals == "5 calls, 10,000 prompt tokens; expected 3,200 from the cache, read 3,000 (hit ratio 75%)"
    assert unsaid.startswith("For 3 of these the provider did not say what it read: ")
    (small,) = [line for line in text.splitlines() if "small" in line]
    assert small.split()[-4:] == ["-", "-", "-", "4,000"]
    assert str(PromptCacheReport.of([])) == "No call has been answered yet."


def test_report_is_json() -> None:
    data = json.loads(json.dumps(report().to_dict()))

    assert (data["calls"], data["hit_ratio"], data["tokens_lost"]) == (5, 0.75, 6_500)
    assert data["families"][0]["drifts"][0]["kind"] == "timestamp"
    assert data["families"][1]["hit_ratio"] is None
