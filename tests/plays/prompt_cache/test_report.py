from __future__ import annotations

import json
from typing import Any

from fastlane.plays.prompt_cache.report import PromptCacheReport
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
    return PromptCacheReport.of([("small" if one.family == "bb" else "large", one) for one in RECORDS])


def test_calls_without_reported_tokens_are_no_misses() -> None:
    large, small = report().families

    assert (large.model, large.calls, large.reported_calls) == ("large", 4, 2)
    assert (large.cached_tokens, large.expected_tokens, large.hit_ratio) == (3_000, 3_200, 0.75)
    assert (small.cached_tokens, small.expected_tokens, small.hit_ratio) == (None, None, None)


def test_totals_are_those_of_all_families() -> None:
    whole = report()

    assert (whole.calls, whole.reported_calls, whole.hit_ratio) == (5, 2, 0.75)
    assert (whole.prompt_tokens, whole.expected_tokens, whole.cached_tokens) == (10_000, 3_200, 3_000)
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
    assert "messages[2].content" in text
    assert text.endswith('stream_options={"include_usage": True}')
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line}
    assert rows["bb"][-4:] == ["-", "-", "-", "4,000"]
    assert rows["all"] == ["all", "-", "5", "40%", "10,000", "3,200", "3,000", "75%", "6,500"]
    assert str(PromptCacheReport.of([])) == "No call has been answered yet."


def test_report_is_json() -> None:
    data = json.loads(json.dumps(report().to_dict()))

    assert (data["calls"], data["hit_ratio"], data["tokens_lost"]) == (5, 0.75, 6_500)
    assert data["families"][0]["drifts"][0]["kind"] == "timestamp"
    assert data["families"][1]["hit_ratio"] is None
