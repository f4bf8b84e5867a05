"""Read the spans of a file of OTLP-JSON, a request a line, and note what in it could not be read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..errors import ConfigurationError
from ._model import Span, SpanEvent, SpanLink

_MOST_NS: Final = (1 << 63) - 1
# https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/trace/v1/trace.proto
_KINDS: Final = ("", "internal", "server", "client", "producer", "consumer")
_FAILED: Final = 2
_OTHER_SIGNALS: Final = {"resourceMetrics": "metrics", "resourceLogs": "logs", "resourceProfiles": "profiles"}
_EXPECTED: Final = (
    "expected a file of OTLP-JSON, one export request per line, as the exporter otlp_json_file and the collector's "
    "file exporter write it"
)
# What Python raises where a span is not as OTLP defines it.
_MALFORMED: Final = (
    AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError,
)  # fmt: skip


class TraceFileError(ConfigurationError):
    """A file from which no span can be read: the message says what it holds instead, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanFile:
    source: str
    spans: tuple[Span, ...]
    notes: tuple[str, ...] = ()
    """What was left out, one sentence each."""


def read_spans(data: bytes, source: str) -> SpanFile:
    """Read every span of a file's bytes. `source` is its name.

    What is cut off or malformed is left out and noted. Raises TraceFileError if no span is left.
    """
    notes: list[str] = []
    spans: dict[tuple[str, str], Span] = {}
    others: set[str] = set()
    repeated = malformed = 0
    for document in _documents(data.decode("utf-8-sig", "replace"), notes):
        others.update(name for key, name in _OTHER_SIGNALS.items() if document.get(key))
        for resource, scope, plain in _plain_spans(document):
            try:
                span = _span(resource, scope, plain)
            except _MALFORMED:
                malformed += 1
                continue
            repeated += span.key in spans
            spans.setdefault(span.key, span)
    if malformed:
        notes.append(f"{malformed} spans are not as OTLP defines them, and left out.")
    if not spans:
        raise TraceFileError(f"{source} {_reason(data, sorted(others), notes)}")
    if others:
        notes.append(f"The file's {' and '.join(sorted(others))} are not shown.")
    if repeated:
        notes.append(f"{repeated} spans were in the file more than once.")
    return SpanFile(source=source, spans=tuple(spans.values()), notes=tuple(notes))


def _reason(data: bytes, others: list[str], notes: list[str]) -> str:
    if data.startswith(b"\x1f\x8b"):
        return "is compressed: unpack it with gunzip"
    if not data.strip():
        return f"is empty: {_EXPECTED}. Spans are written in batches, and at the latest when a program ends."
    if others:
        return f"holds {' and '.join(others)} and no spans: give the file that the traces are written to"
    return ". ".join([f"holds no spans: {_EXPECTED}", *notes[:1]])


def _documents(text: str, notes: list[str]) -> list[Mapping[str, Any]]:
    # Not splitlines(): JSON strings may hold U+2028 and its like unescaped.
    lines = {number: line for number, line in enumerate(text.split("\n"), start=1) if line.strip()}
    values = {number: _json(line) for number, line in lines.items()}
    found = [document for value in values.values() for document in _objects(value)]
    broken = [number for number, value in values.items() if value is None]
    if broken and not found and (formatted := _objects(_json(text))):
        return formatted
    if broken == list(lines)[-1:] and not text.endswith("\n"):
        notes += ["The last line is cut off and left out."] if broken else []
    elif broken:
        what = "line is" if len(broken) == 1 else "lines are"
        notes.append(f"{len(broken)} {what} no JSON and left out; the first is line {broken[0]}.")
    return found


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _objects(value: Any) -> list[Mapping[str, Any]]:
    """Return the JSON objects in a list, or the one that there is instead of a list."""
    return [each for each in (value if isinstance(value, list) else (value,)) if isinstance(each, dict)]


def _plain_spans(document: Mapping[str, Any]) -> Iterator[tuple[Any, Any, Mapping[str, Any]]]:
    for group in _objects(document.get("resourceSpans")):
        for scoped in _objects(group.get("scopeSpans")):
            for plain in _objects(scoped.get("spans")):
                yield group.get("resource") or {}, scoped.get("scope") or {}, plain


def _span(resource: Any, scope: Any, plain: Mapping[str, Any]) -> Span:
    trace_id, span_id = _id(plain["traceId"], 16), _id(plain["spanId"], 8)
    if trace_id is None or span_id is None:
        raise ValueError("no id")
    start, status = _nanoseconds(plain, "startTimeUnixNano"), plain.get("status") or {}
    links = [(_id(each["traceId"], 16), _id(each["spanId"], 8), each) for each in plain.get("links") or ()]
    return Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=_id(plain.get("parentSpanId") or "", 8),
        name=_clean(plain.get("name") or "(no name)"),
        kind=_KINDS[plain.get("kind") or 0],
        start_ns=start,
        end_ns=max(start, _nanoseconds(plain, "endTimeUnixNano")),
        attributes=_table(plain.get("attributes")),
        events=tuple(
            SpanEvent(_clean(each.get("name", "")), _nanoseconds(each, "timeUnixNano"), _table(each.get("attributes")))
            for each in plain.get("events") or ()
        ),
        links=tuple(
            SpanLink(trace, span, _table(each.get("attributes"))) for trace, span, each in links if trace and span
        ),
        failed=status.get("code") == _FAILED,
        status_message=_clean(status.get("message", "")),
        scope=f"{_clean(scope.get('name', ''))} {_clean(scope.get('version', ''))}".strip(),
        service=str(_table(resource.get("attributes")).get("service.name", "")),
    )


def _clean(text: str) -> str:
    """Return a text without halves of surrogate pairs, which JSON can hold and no file."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _id(digits: str, size: int) -> str | None:
    """Return an id of `size` bytes as hex digits; None if all are zero or there are none."""
    found = bytes.fromhex(digits)
    if len(found) not in (0, size):
        raise ValueError(f"an id of {size} bytes has {len(found)}")
    return found.hex() if any(found) else None


def _nanoseconds(plain: Mapping[str, Any], name: str) -> int:
    found = int(plain.get(name) or 0)
    if not 0 <= found <= _MOST_NS:
        raise ValueError(f"{name} is {found}")
    return found


def _table(pairs: Any) -> dict[str, Any]:
    return {_clean(each["key"]): _value(each.get("value")) for each in pairs or ()}


def _value(value: Any) -> Any:
    """Return the one field of a value, whose name is its type."""
    return next((_READERS[kind](plain) for kind, plain in (value or {}).items() if kind in _READERS), None)


def _double(value: Any) -> float | str:
    number = float(value)
    # JSON has no number for infinity and NaN.
    return number if math.isfinite(number) else str(number)


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "stringValue": _clean,
    "bytesValue": _clean,
    "boolValue": bool,
    "intValue": int,
    "doubleValue": _double,
    "arrayValue": lambda plain: [_value(each) for each in plain.get("values") or ()],
    "kvlistValue": lambda plain: _table(plain.get("values")),
}
