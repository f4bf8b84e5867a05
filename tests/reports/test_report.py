"""What a report says of records, in data, in text and in HTML."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import pytest

from fastlane import CallRecord, ConfigurationError
from fastlane.records import BoundedOutputRecord, Drift, HedgingRecord, PromptCacheRecord, RequestEncodingRecord, Usage
from tests.reports.made import attempt, failed, record, report, routed

CONNECTION = "Connection(http2='auto', idle_s=300)"


TABLE = Path(__file__).parent / "table.txt"


def some_calls() -> list[CallRecord]:
    gzipped = RequestEncodingRecord(form="json+gzip", reason="x", plain_bytes=40_000, sent_bytes=9_000, cpu_s=0.0004)
    usage = Usage(input_tokens=2_000, cached_tokens=1_536, output_tokens=21)
    cold = record(attempts=(attempt(opened=True),), plays=(CONNECTION,), user_actions=("answer ticket",))
    warm = [
        record(
            plays=(CONNECTION, "RequestEncoding()"),
            user_actions=("answer ticket",),
            usage=usage,
            request_encoding=gzipped,
        )
        for _ in range(24)
    ]
    retried = record(model="n", tokens=(), attempts=(attempt(), attempt(kind="retry", number=2, at=8)))
    return [cold, *warm, retried, failed(plays=(CONNECTION,)), record(outcome="closed", ended=30, tokens=(25,))]


def test_report_matches_the_stored_table() -> None:
    assert f"{report(*some_calls())}\n" == TABLE.read_text()


def test_empty_report_says_that_no_call_ended() -> None:
    assert str(report()) == "No call has ended yet."
    assert str(report(record(), model="absent")) == "No call of 'absent' has ended yet."
    assert report().calls == 0
    assert json.loads(report().to_json())["models"] == []


def test_stopped_answer_counts_as_answered_unless_invalid() -> None:
    verdicts: dict[Any | None, int] = {None: 1, "valid": 1, "invalid": 0, "truncated": 0}
    for verdict, answered in verdicts.items():
        output = BoundedOutputRecord(verdict=verdict, stop_reason="complete")
        assert report(record(outcome="stopped", output=output)).everything.answered == answered
    assert report(record(outcome="stopped")).everything.answered == 1


def test_calls_are_grouped_by_model_origin_and_action() -> None:
    calls = [
        record(user_actions=("answer", "draft"), ended=100),
        record(user_actions=("answer",)),
        record(origin="https://elsewhere.example:443"),
        record(model=None),
    ]
    grouped = report(*calls)

    assert [(group.model, group.origin, group.calls) for group in grouped.models] == [
        ("m", "https://api.example.com:443", 2),
        ("m", "https://elsewhere.example:443", 1),
        (None, "https://api.example.com:443", 1),
    ]
    assert [(group.user_action, group.calls) for group in grouped.user_actions] == [
        ("answer > draft", 1),
        ("answer", 1),
    ]


def test_report_lists_for_each_play_its_calls_and_effect() -> None:
    hedge = HedgingRecord(delay_s=0.2, hedged=True, won=True, why_not=None, extra_input_tokens=40)
    none = HedgingRecord(delay_s=0.2, hedged=False, won=None, why_not=None)
    plays = (CONNECTION, "Hedging()", "Routing(Catalog(...))", "Mine(secret=1)")
    calls = [
        record(plays=plays, hedging=hedge, routing=routed()),
        record(plays=plays, hedging=none, routing=routed(actual_s=1.2)),
        record(plays=plays, attempts=(attempt(opened=True),)),
    ]
    by_play = {played.play: (played.on, played.acted, played.effect) for played in report(*calls).plays}

    assert by_play == {
        "Routing": (3, 2, "1 model answered, 1 of 2 within the predicted time"),
        "Hedging": (3, 1, "1 won, 0 lost, 40 tokens spent on it (estimated)"),
        "Connection": (3, 2, "14.0 ms of opening connections (estimated)"),
        "Mine": (3, None, None),
    }
    assert "secret" not in str(report(*calls))


def test_play_warnings_are_counted_and_shown_first() -> None:
    def missed(drift: Drift | None) -> CallRecord:
        cache = PromptCacheRecord(
            family="f", prompt_tokens=9, reusable_tokens=9, expected_tokens=9, cached_tokens=0, explanation=drift
        )
        return record(prompt_cache=cache)

    stamp, tool = Drift(kind="timestamp", path="messages[0].content"), Drift(kind="changed_tool", path="tools[2]")
    found = report(missed(tool), missed(stamp), missed(None), missed(stamp), record())

    assert list(found.warnings.items()) == [("cache miss, timestamp", 2), ("cache miss, changed tool", 1)]
    assert "Look at\n  cache miss, timestamp: 2 calls; the calls' records say where\n" in str(found)


def test_calls_are_chosen_by_model_user_action_and_age() -> None:
    now_s = time.perf_counter()
    calls = [
        record(model="a", user_actions=("x", "y"), issued_s=now_s - 9_000, attempts=(attempt(opened=True),)),
        record(model="b", response_model="b-2026", issued_s=now_s - 10),
        record(model="c", routing=routed(model="near"), issued_s=now_s - 5),
    ]

    assert report(*calls, model="a").calls == 1
    # What opening a connection takes is known from the others too.
    assert report(*calls, model="c").ledger.connections_saved_s == pytest.approx(0.007)
    assert report(*calls, model="b-2026").models[0].model == "b"
    assert report(*calls, model="near").models[0].model == "c"
    assert report(*calls, user_action="y").calls == 1
    assert report(*calls, since_s=900).calls == 2
    assert report(*calls, since_s=900, model="a").calls == 0
    assert "1 call of 'a' in 'y' issued in the last 9500 s" in str(
        report(*calls, model="a", user_action="y", since_s=9_500)
    )


@pytest.mark.parametrize(
    ("filters", "words"),
    [
        ({"model": ""}, "report(model=...) takes a name, or None for all, got ''"),
        ({"user_action": 3}, "report(user_action=...) takes a name, or None for all, got 3"),
        ({"since_s": 0}, "report(since_s=...) takes seconds above 0, or None for all, got 0"),
        ({"since_s": "1h"}, "got '1h'"),
        ({"since_s": float("nan")}, "got nan"),
    ],
)
def test_filter_that_cannot_be_one_is_refused(filters: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        report(record(), **filters)

    assert words in str(raised.value)


def test_report_serializes_to_json() -> None:
    whole = report(*some_calls())
    data = whole.to_dict()

    assert json.loads(whole.to_json(indent=2)) == json.loads(json.dumps(data))
    assert data["percentile_method"] == "linear"
    assert data["everything"]["phases"]["wait"]["seconds"]["p50"] == pytest.approx(0.016)
    assert data["ledger"]["totals"]["encoding_bytes"] == {
        "value": 24 * 31_000, "unit": "By", "basis": "measured", "calls": 24
    }  # fmt: skip
    assert data["attempts"] == {"first": 28, "retry": 1}
    with pytest.raises(dataclasses.FrozenInstanceError):
        whole.models = ()  # type: ignore[misc]


def test_notebook_gets_tables_and_no_markup_of_others() -> None:
    named = record(model="<script>alert(1)</script>", user_actions=("a\n  b" + "c" * 60,))
    shown = report(named)._repr_html_()

    assert shown.startswith("<pre>")
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "a bccc" in str(report(named))
    assert "c…" in str(report(named))
