from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given, strategies as st

from fastlane.plays.prompt_cache.prefixes import DriftCount, FamilyReport, PromptCacheReport
from fastlane.plays.prompt_cache.prefixes._report import merged

SPOKE = FamilyReport(
    family="00000000000000aa",
    origin="https://api.example.com:443",
    model="large",
    key="fl-1",
    calls=4,
    said_calls=2,
    prompt_tokens=8_000,
    said_prompt_tokens=4_000,
    cached_tokens=3_000,
    expected_tokens=6_000,
    said_expected_tokens=3_200,
    drifts=(
        DriftCount(kind="timestamp", calls=2, tokens_lost=2_500, path="messages[0].content"),
        DriftCount(kind="evicted", calls=1, tokens_lost=500, path=None),
    ),
)
SILENT = replace(
    SPOKE,
    family="00000000000000bb",
    model="small",
    said_calls=0,
    said_prompt_tokens=0,
    cached_tokens=None,
    said_expected_tokens=None,
    drifts=(DriftCount(kind="timestamp", calls=1, tokens_lost=4_000, path="messages[3].content"),),
)
REPORT = PromptCacheReport(families=(SPOKE, SILENT))


def test_calls_that_say_nothing_of_the_cache_are_no_misses() -> None:
    assert SPOKE.hit_ratio == 0.75
    assert SPOKE.said_share == 0.5
    assert SILENT.hit_ratio is None
    assert REPORT.hit_ratio == 0.75
    assert (REPORT.calls, REPORT.said_calls) == (8, 2)


def test_totals_are_those_of_all_families() -> None:
    assert (REPORT.prompt_tokens, REPORT.expected_tokens, REPORT.cached_tokens) == (16_000, 12_000, 3_000)
    assert REPORT.tokens_lost == 7_000
    assert REPORT.said_expected_tokens == 3_200
    assert PromptCacheReport(families=(SILENT,)).said_expected_tokens is None


def test_the_most_costly_drift_stands_first_with_the_path_of_its_most_costly_call() -> None:
    timestamp, evicted = REPORT.drifts

    assert (timestamp.kind, timestamp.calls, timestamp.tokens_lost) == ("timestamp", 3, 6_500)
    assert timestamp.path == "messages[3].content"
    assert evicted.kind == "evicted"


def test_a_report_is_a_table_that_one_can_read() -> None:
    text = str(REPORT)

    assert "00000000000000aa  large" in text
    assert "75%" in text
    assert "messages[3].content" in text
    totals, unsaid = text.splitlines()[-2:]
    assert totals == "8 calls, 16,000 prompt tokens; expected 3,200 from the cache, read 3,000 (hit ratio 75%)"
    assert unsaid.startswith("Of 6 of these nobody said what was read: ")
    assert str(PromptCacheReport(families=(replace(SPOKE, calls=1),))).splitlines()[-1].startswith("1 call, ")
    (silent,) = [line for line in text.splitlines() if "small" in line]
    assert silent.split()[-4:] == ["-", "-", "-", "4,000"]
    assert "of these alone: expected, cached, hit ratio" in text
    assert str(PromptCacheReport()) == "No call has been answered yet."


def test_a_report_is_json() -> None:
    data = json.loads(json.dumps(REPORT.to_dict()))

    assert data["calls"] == 8
    assert data["families"][0]["drifts"][0] == {
        "kind": "timestamp", "calls": 2, "tokens_lost": 2_500, "path": "messages[0].content",
    }  # fmt: skip
    assert data["families"][0]["hit_ratio"] == 0.75
    assert (data["expected_tokens"], data["said_expected_tokens"]) == (12_000, 3_200)
    assert data["families"][1]["hit_ratio"] is None


def test_metrics_count_tokens_by_model_and_drifts_by_kind() -> None:
    counters = {
        (metric.name.removeprefix("fastlane.client.cache."), *metric.attributes.values()): metric.value
        for metric in REPORT.metrics()
    }

    assert counters == {
        # Of the same calls, those of which it was said what was read: of "small" there are none, which is not 0.
        ("expected_tokens", "large"): 3_200,
        ("read_tokens", "large"): 3_000,
        ("drifts", "large", "timestamp"): 2,
        ("lost_tokens", "large", "timestamp"): 2_500,
        ("drifts", "large", "evicted"): 1,
        ("lost_tokens", "large", "evicted"): 500,
        ("drifts", "small", "timestamp"): 1,
        ("lost_tokens", "small", "timestamp"): 4_000,
    }
    assert {metric.unit for metric in REPORT.metrics()} == {"{token}", "{call}"}


def test_a_report_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        REPORT.families = ()  # type: ignore[misc]


@given(
    st.lists(
        st.builds(
            DriftCount,
            kind=st.sampled_from(["timestamp", "uuid", "evicted"]),
            calls=st.integers(1, 9),
            tokens_lost=st.integers(0, 99),
            path=st.none() | st.just("messages[0].content"),
        )
    )
)
def test_merging_counts_loses_none(counts: list[DriftCount]) -> None:
    rows = merged(counts)

    assert sum(row.calls for row in rows) == sum(count.calls for count in counts)
    assert sum(row.tokens_lost for row in rows) == sum(count.tokens_lost for count in counts)
    assert len({row.kind for row in rows}) == len(rows)
    assert [row.tokens_lost for row in rows] == sorted((row.tokens_lost for row in rows), reverse=True)
