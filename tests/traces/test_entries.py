from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fastlane import telemetry
from fastlane.traces import TraceEntry, entries, read_spans
from fastlane.traces._calls import _ATTRIBUTES, _BY_NAME
from fastlane.traces._page import overview
from tests.traces.recorded import everyday, recording


def entries_of(path: Path) -> tuple[TraceEntry, ...]:
    return entries(read_spans(path.read_bytes(), path.name).spans)


@pytest.fixture
def found(tmp_path: Path) -> tuple[TraceEntry, ...]:
    return entries_of(everyday(tmp_path / "spans.jsonl"))


def phases_ms(entry: TraceEntry) -> dict[str, float]:
    return {name: round(seconds * 1e3, 1) for name, seconds in entry.durations_s.items()}


def test_each_user_action_and_each_call_without_one_is_an_entry(found: tuple[TraceEntry, ...]) -> None:
    assert [(entry.kind, entry.name, len(entry.calls)) for entry in found] == [
        ("action", "answer ticket", 2),
        ("call", "chat gpt-oss-120b", 1),
        ("call", "chat small-model", 1),
        ("call", "chat gpt-oss-120b", 1),
        ("call", "chat gpt-oss-120b", 1),
        ("call", "chat gpt-oss-120b", 1),
    ]


def test_waterfall_nests_calls_attempts_and_phases(found: tuple[TraceEntry, ...]) -> None:
    rows = [(row.depth, row.label, row.note or row.error) for row in found[0].rows]

    assert rows[:13] == [
        (0, "invoke_workflow answer ticket", None),
        (1, "load the booking", None),
        (1, "chat gpt-oss-120b", None),
        (2, "prepare", None),
        (2, "POST", "new connection"),
        (3, "HTTP connection_setup api.example.com:443", None),
        (4, "DNS lookup api.example.com", None),
        (4, "socket connect 192.0.2.7:443", None),
        (4, "TLS client handshake api.example.com", None),
        (3, "HTTP send_request", None),
        (3, "HTTP wait_for_response", None),
        (3, "first_token", None),
        (3, "decode", None),
    ]
    assert rows[14] == (2, "POST", "connection reused")
    assert rows[17:19] == [(2, "pause", None), (2, "POST", "retry, connection reused")]
    assert round((found[0].rows[17].end_ns - found[0].rows[17].start_ns) / 1e6) == 240
    assert found[0].rows[14].error == "429"
    assert found[0].error is None


def test_call_entry_has_request_and_response_figures(found: tuple[TraceEntry, ...]) -> None:
    first, again = found[0].calls

    assert first.time_to_first_token_s == 0.163
    assert (first.input_tokens, first.cached_tokens, first.output_tokens) == (10_500, 9_600, 84)
    assert first.route_reason == "fastest"
    assert first.connection_reused is False
    assert again.connection_reused is True
    assert [(attempt.kind, attempt.outcome, attempt.error) for attempt in again.attempts] == [
        ("first", "failed", "429"),
        ("retry", "completed", None),
    ]
    assert phases_ms(found[0])["retries"] == 282.3
    assert found[3].error == "AuthenticationError"
    assert found[3].calls[0].attempts[0].status_code == 401


def test_phases_make_up_the_whole_of_a_call(found: tuple[TraceEntry, ...]) -> None:
    for entry in found:
        for call in entry.calls:
            whole_s = (call.span.end_ns - call.span.start_ns) / 1e9
            assert sum(call.durations_s.values()) == pytest.approx(whole_s, abs=0.012)


def test_won_hedge_is_drawn_parallel_to_the_late_attempt(found: tuple[TraceEntry, ...]) -> None:
    late, won = found[1].calls[0].attempts

    assert late.outcome == "cancelled"
    assert late.span.end_ns > won.span.start_ns
    assert [row.note for row in found[1].rows if row.phase == "attempt"] == [
        "cancelled, connection reused",
        "hedge, connection reused",
    ]
    assert phases_ms(found[1])["retries"] == 220


def test_models_that_a_call_left_are_earlier_attempts(found: tuple[TraceEntry, ...]) -> None:
    entry = found[2]

    assert entry.error is None
    assert entry.time_to_first_token_s == 0.161
    assert phases_ms(entry)["retries"] == 62
    assert [(row.note, row.error) for row in entry.rows if row.phase == "attempt"] == [
        ("connection reused", "503"),
        ("fallback, connection reused", None),
    ]


def test_phases_without_spans_are_drawn_from_durations(found: tuple[TraceEntry, ...]) -> None:
    entry = found[4]
    rows = [
        (row.label, (row.start_ns - entry.start_ns) / 1e6, (row.end_ns - row.start_ns) / 1e6) for row in entry.rows[1:]
    ]

    assert [(label, round(start), round(length)) for label, start, length in rows] == [
        ("prepare", 0, 6),
        ("queue", 7, 4),
        ("dns", 11, 9),
        ("connect", 20, 22),
        ("tls", 42, 31),
        ("send", 73, 2),
        ("server", 75, 96),
        ("decode", 171, 201),
        ("validate", 376, 4),
    ]
    assert entry.rows[0].first_token_ns == entry.start_ns + 171_000_000


def test_without_a_stream_the_wait_lasts_until_the_answer(found: tuple[TraceEntry, ...]) -> None:
    assert phases_ms(found[5]) == {"send": 2, "server": 208, "other": 2}
    assert found[5].time_to_first_token_s is None


def test_time_without_phases_is_shown_as_unsplit(tmp_path: Path) -> None:
    with recording(tmp_path / "spans.jsonl") as made:
        made.chat(0, 320, ttft=110, decode=200)

    (entry,) = entries_of(tmp_path / "spans.jsonl")

    assert phases_ms(entry) == {"unsplit": 110, "decode": 200, "other": 10}


def test_phases_without_attempt_spans_belong_to_the_last(tmp_path: Path) -> None:
    with recording(tmp_path / "spans.jsonl") as made:
        chat = made.chat(0, 420, ttft=210, decode=200, phases={"send": 2}, server=107, fastlane__attempt__count=2)
        for number, start, end in ((1, 0, 50), (2, 101, 415)):
            made.span(
                "POST", start, end, parent=chat, client=True, error="503" if number == 1 else None,
                http__request__method="POST", fastlane__attempt__number=number,
            )  # fmt: skip

    (entry,) = entries_of(tmp_path / "spans.jsonl")

    assert [(row.depth, row.label) for row in entry.rows] == [
        (0, "chat gpt-oss-120b"), (1, "POST"), (1, "pause"), (1, "POST"), (2, "send"), (2, "server"), (2, "decode"),
    ]  # fmt: skip
    assert phases_ms(entry) == {"retries": 101, "send": 2, "server": 107, "decode": 200, "other": 10}


def test_call_below_foreign_spans_lists_its_ancestors(tmp_path: Path) -> None:
    with recording(tmp_path / "spans.jsonl") as made:
        outer = made.span("GET /ask", 0, 500)
        inner = made.span("answer", 1, 499, parent=outer)
        made.chat(2, 400, parent=inner)

    (entry,) = entries_of(tmp_path / "spans.jsonl")

    assert (entry.kind, entry.within) == ("call", ("GET /ask", "answer"))


def test_trace_without_calls_is_shown_as_it_is(tmp_path: Path) -> None:
    with recording(tmp_path / "spans.jsonl") as made:
        outer = made.span("GET /health", 0, 5)
        made.span("SELECT 1", 1, 4, parent=outer, error="Timeout")

    (entry,) = entries_of(tmp_path / "spans.jsonl")

    assert (entry.kind, entry.name, [row.error for row in entry.rows]) == ("other", "GET /health", [None, "Timeout"])


def test_trace_page_reads_attributes_that_telemetry_writes() -> None:
    source = "".join(path.read_text() for path in Path(telemetry.__file__).parent.glob("*.py"))
    assert [name for name in (*dict(_BY_NAME), *_ATTRIBUTES.values()) if f'"{name}' not in source] == []


@pytest.mark.parametrize("error", ["APITimeoutError", "ReadTimeout", "timeout"])
def test_time_until_a_timeout_is_server_wait_and_not_other(tmp_path: Path, error: str) -> None:
    with recording(tmp_path / "spans.jsonl") as made:
        made.chat(0, 500, error=error, phases={"send": 2}, fastlane__prepare__duration=0.003)
        made.chat(
            1_000, 2_300, error=error, phases={"send": 2}, fastlane__attempt__count=2,
            fastlane__retry__wait__duration=0.3,
        )  # fmt: skip
        made.chat(3_000, 3_500, error=error, phases={"dns": 9})
        made.chat(4_000, 4_500, error="InternalServerError", phases={"send": 2})
    alone, twice, connecting, refused = entries_of(tmp_path / "spans.jsonl")

    assert phases_ms(alone) == {"prepare": 3.0, "send": 2.0, "server": 495.0}
    assert phases_ms(twice) == {"send": 2.0, "server": 998.0, "other": 300.0}
    assert phases_ms(connecting) == {"dns": 9.0, "other": 491.0}
    assert "server" not in phases_ms(refused)
    assert [segment[0] for segment in overview(alone)["g"]] == ["prepare", "send", "server"]


def test_cache_miss_of_a_call_is_on_its_list_row(tmp_path: Path) -> None:
    with recording(tmp_path / "spans.jsonl") as made:
        missed: dict[str, Any] = {
            "fastlane__cache__mismatch_reason": "timestamp",
            "fastlane__cache__lost_tokens": 1_666,
        }
        made.chat(0, 500, **missed)
        action = made.span("invoke_workflow answer", 1_000, 3_000, gen_ai__operation__name="invoke_workflow")
        made.chat(1_000, 1_500, parent=action, **missed)
        made.chat(1_600, 2_500, parent=action, fastlane__cache__mismatch_reason="changed")
        made.chat(4_000, 4_500)
    rows = [overview(each) for each in entries_of(tmp_path / "spans.jsonl")]

    assert rows[0]["y"] == "cache miss: timestamp, about 1,666 tokens"
    assert rows[1]["y"] == "2 cache misses: timestamp, changed, about 1,666 tokens"
    assert "y" not in rows[2]
