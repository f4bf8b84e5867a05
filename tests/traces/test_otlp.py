from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane.traces import SpanFile, TraceFileError, entries, page, read_spans
from tests.traces.recorded import everyday, recording

SPAN = {
    "traceId": "0af7651916cd43dd8448eb211c80319c",
    "spanId": "b7ad6b7169203331",
    "name": "chat gpt",
    "kind": 3,
    "startTimeUnixNano": "1000",
    "endTimeUnixNano": "3000",
    "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}],
}


def request(*spans: dict[str, Any], **resource: Any) -> dict[str, Any]:
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "it"}, "spans": list(spans)}]}]}


def read(*documents: Any) -> SpanFile:
    return read_spans("".join(json.dumps(each) + "\n" for each in documents).encode(), "file.jsonl")


def test_file_of_the_official_exporter_is_read(tmp_path: Path) -> None:
    file = read_spans(everyday(tmp_path / "spans.jsonl").read_bytes(), "spans.jsonl")

    by_name = {span.name: span for span in file.spans}
    action = by_name["invoke_workflow answer ticket"]
    assert file.notes == ()
    assert len(file.spans) == 49
    assert action.parent_id is None
    assert action.end_ns - action.start_ns == 1_060_000_000
    assert action.attributes["fastlane.application.duration"] == 1.06
    assert action.scope == "fastlane 0.1.0"
    assert action.service == "airline"
    assert by_name["load the booking"].parent_id == action.span_id
    retried = next(span for span in file.spans if span.attributes.get("fastlane.attempt.kind") == "retry")
    assert retried.links[0].attributes == {"fastlane.link.reason": "retry"}
    assert (retried.kind, retried.attributes["http.response.status_code"]) == ("client", 200)


LINE = json.dumps(request(SPAN))


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (json.dumps(request(SPAN), indent=2), None),
        (f"{LINE}\n{LINE[:90]}", "The last line is cut off and left out."),
        (f"{LINE}\nWARNING: disk nearly full\n", "1 line is no JSON and left out; the first is line 2."),
        (
            f'{{"resourceMetrics": [{{}}]}}\n{LINE}\n{{"resourceLogs": [{{}}]}}',
            "The file's logs and metrics are not shown.",
        ),
        (f"{LINE}\n{LINE}\n", "1 spans were in the file more than once."),
        (
            json.dumps(request(SPAN, {**SPAN, "spanId": "b7ad", "name": "short id"}, {**SPAN, "spanId": 7})),
            "2 spans are not as OTLP defines them, and left out.",
        ),
    ],
    ids=["many lines", "cut off", "no JSON", "other signals", "twice", "malformed"],
)
def test_what_is_no_span_is_left_out_and_counted(text: str, note: str | None) -> None:
    file = read_spans(text.encode(), "file.jsonl")

    assert [span.name for span in file.spans] == ["chat gpt"]
    assert file.notes == ((note,) if note else ())


def test_every_kind_of_value_becomes_plain_data() -> None:
    values = {
        "text": {"stringValue": "a"},
        "number": {"intValue": "12"},
        "share": {"doubleValue": 0.5},
        "endless": {"doubleValue": "Infinity"},
        "flag": {"boolValue": False},
        "list": {"arrayValue": {"values": [{"stringValue": "a"}, {"intValue": 2}]}},
        "table": {"kvlistValue": {"values": [{"key": "b", "value": {"intValue": 3}}]}},
        "half": {"stringValue": "\ud83d"},
        "nothing": {},
    }
    span = {**SPAN, "attributes": [{"key": name, "value": value} for name, value in values.items()]}

    assert read(request(span)).spans[0].attributes == {
        "text": "a",
        "number": 12,
        "share": 0.5,
        "endless": "inf",
        "flag": False,
        "list": ["a", 2],
        "table": {"b": 3},
        "half": "\ufffd",
        "nothing": None,
    }


def test_span_that_ends_before_it_starts_has_no_length() -> None:
    assert read(request({**SPAN, "endTimeUnixNano": "0"})).spans[0].end_ns == 1_000


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "file.jsonl is empty: expected a file of OTLP-JSON"),
        (b"root:x:0:0\n", "1 line is no JSON"),
        (b'{"resourceMetrics": [{}]}\n', "holds metrics and no spans: give the file that the traces are written to"),
        (b'{"resourceSpans": []}\n', "holds no spans: expected a file of OTLP-JSON"),
        (
            b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"spanId": 3}]}]}]}\n',
            "1 spans are not as OTLP defines them",
        ),
        (b"\x1f\x8b\x08", "is compressed: unpack it with gunzip"),
    ],
)
def test_invalid_trace_file_is_refused_with_expected_format(data: bytes, message: str) -> None:
    with pytest.raises(TraceFileError) as raised:
        read_spans(data, "file.jsonl")

    assert message in str(raised.value)
    assert str(raised.value).startswith("file.jsonl ")


def shown(data: bytes) -> None:
    try:
        file = read_spans(data, "any")
    except TraceFileError:
        return
    page(file, entries(file.spans)).encode()


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_raise_trace_file_error(data: bytes) -> None:
    shown(data)
    shown(b"\x1f\x8b" + data)


KEYS = st.sampled_from(
    ("values", "key", "value", "stringValue", "intValue", "doubleValue", "arrayValue", "kvlistValue", "name")
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
VALUES: list[dict[str, Any]] = [
    {"stringValue": "chat"},
    {"stringValue": "baseline"},
    {"doubleValue": 1e300},
    {"doubleValue": 0.1},
    {"intValue": 2},
]
NEAR_SPANS = st.fixed_dictionaries(
    {
        "traceId": st.sampled_from(["0af7651916cd43dd8448eb211c80319c", "0af7651916cd43dd8448eb211c80319d"]) | JSON,
        "spanId": st.integers(0, 6).map(lambda number: f"{number:016x}") | JSON,
    },
    optional={
        "parentSpanId": st.integers(0, 6).map(lambda number: f"{number:016x}") | JSON,
        "name": st.sampled_from(["chat x", "POST", "decode", "HTTP send_request"]) | JSON,
        "kind": st.integers(-1, 9) | JSON,
        "startTimeUnixNano": st.integers(-5, 2**70) | st.integers(0, 10**19).map(str) | JSON,
        "endTimeUnixNano": st.integers(-5, 2**70) | JSON,
        "status": st.just({"code": 2}) | JSON,
        "attributes": st.lists(
            st.fixed_dictionaries(
                {
                    "key": st.sampled_from(
                        [
                            "gen_ai.operation.name", "http.request.method", "fastlane.time_to_first_token",
                            "fastlane.decode.duration", "fastlane.wire.send.duration", "fastlane.experiment.name",
                            "fastlane.experiment.arm", "fastlane.experiment.unit_id_hash", "fastlane.attempt.count",
                        ]
                    ),
                    "value": st.sampled_from(VALUES) | JSON,
                }
            ),
            max_size=6,
        ) | JSON,
        "links": st.lists(
            st.fixed_dictionaries(
                {
                    "traceId": st.just("0af7651916cd43dd8448eb211c80319c"),
                    "spanId": st.integers(0, 6).map(lambda number: f"{number:016x}"),
                    "attributes": st.just([{"key": "fastlane.link.reason", "value": {"stringValue": "fallback"}}]),
                }
            ),
            max_size=2,
        ) | JSON,
        "events": JSON,
    },
)  # fmt: skip


@given(st.lists(NEAR_SPANS, max_size=8), JSON)
def test_any_span_values_are_shown(spans: list[dict[str, Any]], resource: Any) -> None:
    document = {
        "resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "fastlane"}, "spans": spans}]}]
    }

    shown(json.dumps(document).encode())


def test_spans_that_are_each_others_parents_are_shown_once() -> None:
    ring = [
        {**SPAN, "spanId": f"{n:016x}", "parentSpanId": f"{n % 3 + 1:016x}", "name": f"ring {n}"} for n in (1, 2, 3)
    ]

    found = entries(read(request(*ring)).spans)

    assert sorted(row.label for entry in found for row in entry.rows) == ["ring 1", "ring 2", "ring 3"]


def test_ten_thousand_spans_below_each_other_are_no_problem() -> None:
    chain = [
        {**SPAN, "spanId": f"{n:016x}", "parentSpanId": f"{n - 1:016x}", "attributes": []} for n in range(1, 10_001)
    ]

    (entry,) = entries(read(request(*chain)).spans)

    assert len(entry.rows) == 10_000
    assert max(row.depth for row in entry.rows) == 40


def test_numbers_that_a_script_cannot_hold_are_text(tmp_path: Path) -> None:
    with recording(tmp_path / "spans.jsonl") as made:
        made.chat(0, 300, large=2**62, endless=float("inf"), words=["a", "b"])
    file = read_spans((tmp_path / "spans.jsonl").read_bytes(), "spans.jsonl")

    (line,) = re.findall(r'id="lines">(.*?)</script>', page(file, entries(file.spans)), re.DOTALL)
    attributes = dict(json.loads(line)["rows"][0]["a"])

    assert (attributes["large"], attributes["endless"], attributes["words"]) == (str(2**62), "inf", ["a", "b"])
