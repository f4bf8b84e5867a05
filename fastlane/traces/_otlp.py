"""Read the spans of a file of OTLP-JSON, a request a line, and say what in it could not be read."""

from __future__ import annotations

import base64
import binascii
import functools
import json
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..errors import FastlaneError
from ._spans import Span, SpanEvent, SpanLink

_MOST_BYTES: Final = 1 << 30
_MOST_NS: Final = (1 << 63) - 1
_DEEPEST: Final = 24
# https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/trace/v1/trace.proto
_KINDS = ("", "internal", "server", "client", "producer", "consumer")
_FAILED = 2
_HEX = re.compile(r"[0-9a-fA-F]+")
_OTHER_SIGNALS = {"resourceMetrics": "metrics", "resourceLogs": "logs", "resourceProfiles": "profiles"}
_EXPECTED = (
    "expected a file of OTLP-JSON, one export request per line, as the exporter otlp_json_file and the collector's "
    "file exporter write it"
)


class TraceFileError(FastlaneError):
    """A file from which no span can be read: the message says what came in the place of spans, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanFile:
    """The spans of a file, and what else there is to say of it."""

    source: str
    spans: tuple[Span, ...]
    """In the file's order."""
    notes: tuple[str, ...] = ()
    """What was left out, one sentence each."""


def read_spans(data: bytes, source: str) -> SpanFile:
    """Read every span of a file's bytes, gzipped or not. `source` is its name.

    What is cut off or broken is left out and noted. Raises TraceFileError where no span is left.
    """
    notes: list[str] = []
    text = _text(data, source, notes)
    documents = _documents(text, notes)
    spans: dict[tuple[str, str], Span] = {}
    seen: set[str] = set()
    repeated = 0
    for document in documents:
        seen.update(name for key, name in _OTHER_SIGNALS.items() if _get(document, key))
        for span in _spans(document):
            if span.key in spans:
                repeated += 1
            else:
                spans[span.key] = span
    if not spans:
        raise TraceFileError(_nothing(source, text, documents, seen, notes))
    if seen:
        notes.append(f"The file's {' and '.join(sorted(seen))} are not shown.")
    if repeated:
        notes.append(f"{repeated} spans were in the file more than once.")
    return SpanFile(source=source, spans=tuple(spans.values()), notes=tuple(notes))


def _nothing(source: str, text: str, documents: list[Mapping[str, Any]], seen: set[str], notes: list[str]) -> str:
    if not text.strip():
        return f"{source} is empty: {_EXPECTED}. Spans are written in batches, and at the latest when a program ends."
    if seen:
        return f"{source} holds {' and '.join(sorted(seen))} and no spans: give the file that the traces are written to"
    if documents:
        keys = ", ".join(map(repr, list(documents[0])[:4])) or "no keys"
        return f"{source} holds no spans: {_EXPECTED}, and found JSON with {keys:.120}"
    return f"{source} holds no spans: {_EXPECTED}" + (f". {notes[0]}" if notes else "")


def _text(data: bytes, source: str, notes: list[str]) -> str:
    if data.startswith(b"\x1f\x8b"):
        data = _gunzipped(data, source, notes)
    return data.decode("utf-8-sig", "replace")


def _gunzipped(data: bytes, source: str, notes: list[str]) -> bytes:
    # Not gzip.decompress(): a file that is still written to, or was cut off, has no end.
    parts: list[bytes] = []
    size = 0
    try:
        while data.startswith(b"\x1f\x8b"):
            member = zlib.decompressobj(wbits=31)
            parts.append(member.decompress(data, _MOST_BYTES - size + 1))
            size += len(parts[-1])
            if size > _MOST_BYTES:
                raise TraceFileError(
                    f"{source} holds more than {_MOST_BYTES >> 20} MiB when it is unpacked: split it, and give a part"
                )
            if not member.eof:
                notes.append("The file's gzip stream is cut off: what came before is shown.")
                break
            data = member.unused_data
    except zlib.error:
        notes.append("The file's gzip stream is broken: what came before is shown.")
    return b"".join(parts)


def _documents(text: str, notes: list[str]) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    broken: list[int] = []
    last = 0
    # Not splitlines(): JSON strings may hold U+2028 and its like unescaped.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        last = number
        value = _json(line)
        if value is None:
            broken.append(number)
        found += _objects(value)
    if broken and not found:
        # Somebody has formatted it, so that an object takes many lines.
        found = list(_formatted(text))
        if found:
            return found
    if broken == [last] and not text.endswith("\n"):
        notes.append("The last line is cut off and left out.")
    elif broken:
        what = "line is" if len(broken) == 1 else "lines are"
        notes.append(f"{len(broken)} {what} no JSON and left out; the first is line {broken[0]}.")
    return found


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    for each in value if isinstance(value, list) else (value,):
        if isinstance(each, dict):
            yield each


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _formatted(text: str) -> Iterator[Mapping[str, Any]]:
    decoder = json.JSONDecoder()
    at = len(text) - len(text.lstrip())
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        yield from _objects(value)
        while at < len(text) and text[at].isspace():
            at += 1


def _spans(document: Mapping[str, Any]) -> Iterator[Span]:
    for group in _list(document, "resourceSpans"):
        resource = _attributes(_mapping(_get(group, "resource")))
        service = str(resource.get("service.name") or "")
        for scoped in _list(group, "scopeSpans") + _list(group, "instrumentationLibrarySpans"):
            scope = _mapping(_get(scoped, "scope") or _get(scoped, "instrumentationLibrary"))
            made_by = f"{_clean(_get(scope, 'name'))} {_clean(_get(scope, 'version'))}".strip()
            for plain in _list(scoped, "spans"):
                span = _span(plain, scope=made_by, service=service)
                if span is not None:
                    yield span


def _span(plain: Mapping[str, Any], *, scope: str, service: str) -> Span | None:
    trace_id, span_id = _id(_get(plain, "traceId"), 16), _id(_get(plain, "spanId"), 8)
    if trace_id is None or span_id is None:
        return None
    status = _mapping(_get(plain, "status"))
    start = _nanoseconds(_get(plain, "startTimeUnixNano"))
    return Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=_id(_get(plain, "parentSpanId"), 8),
        name=_clean(_get(plain, "name")) or "(no name)",
        kind=_kind(_get(plain, "kind")),
        start_ns=start,
        end_ns=max(start, _nanoseconds(_get(plain, "endTimeUnixNano"))),
        attributes=_attributes(plain),
        events=tuple(
            SpanEvent(
                name=_clean(_get(event, "name")),
                time_ns=_nanoseconds(_get(event, "timeUnixNano")),
                attributes=_attributes(event),
            )
            for event in _list(plain, "events")
        ),
        links=tuple(_links(plain)),
        failed=_get(status, "code") in (_FAILED, str(_FAILED), "STATUS_CODE_ERROR"),
        status_message=_clean(_get(status, "message")),
        scope=scope,
        service=service,
    )


def _links(plain: Mapping[str, Any]) -> Iterator[SpanLink]:
    for link in _list(plain, "links"):
        trace_id, span_id = _id(_get(link, "traceId"), 16), _id(_get(link, "spanId"), 8)
        if trace_id is not None and span_id is not None:
            yield SpanLink(trace_id=trace_id, span_id=span_id, attributes=_attributes(link))


def _get(plain: Mapping[str, Any], name: str) -> Any:
    """A field by its name in JSON, or by the one in the protocol's definition, which some tools keep."""
    return plain[name] if name in plain else plain.get(_in_snake_case(name))


@functools.cache
def _in_snake_case(name: str) -> str:
    return re.sub("([A-Z])", lambda match: f"_{match[0].lower()}", name)


def _list(plain: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    value = _get(plain, name)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _clean(value: Any) -> str:
    if not isinstance(value, str):
        return ""
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:  # Halves of surrogate pairs, which JSON can hold and no file.
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


def _id(value: Any, size: int) -> str | None:
    """An id of `size` bytes as hex digits, from hex digits or from base64, as protobuf's own JSON has it."""
    if not isinstance(value, str) or not value.isascii():
        return None
    if len(value) == 2 * size and _HEX.fullmatch(value):
        found = value.lower()
    else:
        try:
            decoded = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            return None
        if len(decoded) != size:
            return None
        found = decoded.hex()
    return found if found.strip("0") else None


def _nanoseconds(value: Any) -> int:
    number = _whole(value)
    return 0 if number is None else min(max(number, 0), _MOST_NS)


def _whole(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        return int(value) if isinstance(value, int | float | str) else None
    except (ValueError, OverflowError):
        return None


def _kind(value: Any) -> str:
    if isinstance(value, str):
        name = value.removeprefix("SPAN_KIND_").lower()
        return name if name in _KINDS else ""
    return _KINDS[value] if isinstance(value, int) and 0 <= value < len(_KINDS) else ""


def _attributes(plain: Mapping[str, Any]) -> dict[str, Any]:
    return _table(_get(plain, "attributes"), 0)


def _table(pairs: Any, depth: int) -> dict[str, Any]:
    found = {}
    for each in pairs if isinstance(pairs, list) else ():
        if isinstance(each, dict) and isinstance(key := each.get("key"), str):
            found[_clean(key)] = _value(each.get("value"), depth)
    return found


def _value(value: Any, depth: int) -> Any:
    if not isinstance(value, dict) or depth > _DEEPEST:
        return None if depth <= _DEEPEST else "…"
    # It has one field, which says what kind of value it is.
    for kind, plain in value.items():
        read = _READERS.get(kind)
        if read is not None and plain is not None:
            return read(plain, depth)
    return None


def _values(plain: Any, depth: int) -> list[Any]:
    values = _get(plain, "values") if isinstance(plain, dict) else None
    return [_value(each, depth + 1) for each in values] if isinstance(values, list) else []


_READERS: dict[str, Callable[[Any, int], Any]] = {
    "stringValue": lambda plain, _: _clean(plain),
    "bytesValue": lambda plain, _: _clean(plain),
    "boolValue": lambda plain, _: bool(plain),
    "intValue": lambda plain, _: _whole(plain),
    "doubleValue": lambda plain, _: _double(plain),
    "arrayValue": _values,
    "kvlistValue": lambda plain, depth: _table(_get(_mapping(plain), "values"), depth + 1),
}
_READERS |= {_in_snake_case(kind): read for kind, read in _READERS.items()}


def _double(value: Any) -> float | str | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    # What JSON has no number for.
    return number if math.isfinite(number) else str(number)
