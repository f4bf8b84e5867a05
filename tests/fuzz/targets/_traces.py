"""Files of traces: spans, put together and shown, or the one error that says that there are none."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fastlane.traces import TraceFileError, compare, entries, page, read_spans
from fastlane.traces._document import document
from tests.fuzz import mutation
from tests.fuzz.drawn import Drawn, chance, json_text, json_value
from tests.fuzz.targets._target import Target, holds

_START = 1_763_600_000_000_000_000


def _attributes(**found: Any) -> list[dict[str, Any]]:
    kinds = {str: "stringValue", bool: "boolValue", int: "intValue", float: "doubleValue"}
    return [{"key": name.replace("_0_", "."), "value": {kinds[type(value)]: value}} for name, value in found.items()]


def _span(number: int, parent: int | None, name: str, length: int, **found: Any) -> dict[str, Any]:
    return {
        "traceId": "a" * 32, "spanId": f"{number:016x}", **({"parentSpanId": f"{parent:016x}"} if parent else {}),
        "name": name, "kind": 3, "startTimeUnixNano": str(_START + number), "endTimeUnixNano": str(_START + length),
        "attributes": _attributes(**found), "events": [{"timeUnixNano": str(_START + 2), "name": "e"}],
        "links": [{"traceId": "a" * 32, "spanId": f"{number + 1:016x}", "attributes": _attributes(
            fastlane_0_link_0_reason="fallback")}],
        "status": {"code": 2 if number == 3 else 0},
    }  # fmt: skip


def _known() -> list[Any]:
    spans = [
        _span(1, None, "answer ticket", 10**9, fastlane_0_interaction_0_name="answer ticket"),
        _span(2, 1, "chat m", 9 * 10**8, gen_ai_0_operation_0_name="chat", gen_ai_0_request_0_model="m",
              gen_ai_0_usage_0_input_tokens=5, gen_ai_0_usage_0_output_tokens=9,
              gen_ai_0_response_0_time_to_first_chunk=0.25, fastlane_0_experiment_0_name="e",
              fastlane_0_experiment_0_arm="a", fastlane_0_experiment_0_unit_id_hash="u"),
        _span(3, 2, "attempt 1", 5 * 10**8, fastlane_0_attempt_0_number=1, error_0_type="timeout"),
        _span(4, 2, "attempt 2", 4 * 10**8, fastlane_0_attempt_0_number=2),
    ]  # fmt: skip
    scope = {"scope": {"name": "fastlane", "version": "1"}, "spans": spans}
    return [
        {"resourceSpans": [{"resource": {"attributes": _attributes(service_0_name="s")}, "scopeSpans": [scope]}]},
        {"resourceMetrics": []},
    ]


_NAMES = (
    "resourceSpans",
    "scopeSpans",
    "spans",
    "attributes",
    "key",
    "value",
    "stringValue",
    "traceId",
    "spanId",
    "name",
)


def check(data: bytes) -> None:
    """By the first byte: a file of bytes, or documents drawn by them."""
    kind, draw = (data[0] if data else 0), Drawn(data[1:])
    if kind % 4 == 0:
        file = data[1:]
    else:
        known = _known()
        lines = []
        for _ in range(draw.randrange(1, 4)):
            if draw.randrange(4):
                lines.append(mutation.mutated(draw.choice(known), draw, known))
            else:
                lines.append(json_text(draw, json_value(draw, _NAMES)).encode("utf-8", "surrogatepass"))
        file = draw.choice((b"\n", b"\n\n", b"", b"\r\n", b",")).join(lines)
    try:
        found = read_spans(file, "drawn.json")
    except TraceFileError as error:
        holds(str(error).startswith("drawn.json ") and len(str(error)) < 1_000, "a refusal is none", str(error)[:2_000])
        return
    made = entries(found.spans)
    spans = {span.key for span in found.spans}
    drawn = [row.span.key for entry in made for row in entry.rows if row.span is not None]
    holds(len(drawn) == len(set(drawn)) and set(drawn) <= spans, "a span is drawn twice, or is none of the file's")
    for entry in made:
        holds(entry.end_ns >= entry.start_ns, "an entry ends before it begins", entry.name)
        holds(all(seconds >= 0 for seconds in entry.durations_s.values()), "a phase took less than nothing")
    comparisons = compare(made)
    json.dumps(document(found, made, comparisons), allow_nan=False).encode()
    shown = page(found, made, comparisons)
    shown.encode()
    holds(shown.count("<script") == page(found, ()).count("<script"), "what a file says becomes a part of the page")


def seeds() -> list[bytes]:
    """Files as they are written, and bytes that draw changes of them."""
    drawn = chance(24, 140)
    whole = "\n".join(json.dumps(one) for one in _known()).encode()
    return [
        b"\0" + whole,
        b"\0" + json.dumps(_known(), indent=1).encode(),
        *(bytes([1 + n % 7]) + one for n, one in enumerate(drawn)),
    ]


def _fed(make: Callable[[int], str]) -> Callable[[int], Callable[[], object]]:
    def work(size: int) -> Callable[[], object]:
        file = make(size).encode()

        def run() -> None:
            try:
                entries(read_spans(file, "grown.json").spans)
            except TraceFileError:
                pass

        return run

    return work


def _many(size: int, parent: Callable[[int], int | None]) -> str:
    spans = [
        {"traceId": "a" * 32, "spanId": f"{number:016x}",
        "parentSpanId": f"{above:016x}" if (above := parent(number)) else "",
         "name": "x", "startTimeUnixNano": str(_START), "endTimeUnixNano": str(_START + 5)}
        for number in range(1, size // 150)
    ]  # fmt: skip
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})


TARGET = Target(
    name="traces",
    check=check,
    seeds=seeds,
    grown={
        "many lines that are none": _fed(lambda size: "{\n" * (size // 2)),
        "many spans side by side": _fed(lambda size: _many(size, lambda _: None)),
        "many spans below each other": _fed(lambda size: _many(size, lambda number: number - 1 or None)),
        "many spans in rings": _fed(lambda size: _many(size, lambda number: number ^ 1)),
        "many spans below one": _fed(lambda size: _many(size, lambda number: 1 if number > 1 else None)),
        "deep lists": _fed(lambda size: "[" * size),
        "blanks": _fed(lambda size: " " * size),
        "many small documents without lines": _fed(lambda size: "{} " * (size // 3)),
    },
)
