"""Write the page: one HTML file that loads nothing, sends nothing, and shows everything in a file as text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..pages import html_page
from ._model import PHASES, Span, TraceCall, TraceEntry, WaterfallBar
from ._otlp import SpanFile

# The largest whole number that a script's doubles hold exactly.
_EXACT: Final = 1 << 53
_LONGEST_TEXT: Final = 20_000
_MOST_SEGMENTS: Final = 60
_DRAWN: Final = frozenset({*PHASES, "wait", "first_token"} - {"other"})
_OF_CALLS: Final = (
    "model", "response_model", "provider", "error", "input_tokens", "cached_tokens", "output_tokens",
    "reasoning_tokens", "tokens_per_second", "route_reason", "connection_reused", "attempt_count",
)  # fmt: skip
_OF_SPANS: Final = {
    "server": "server.address",
    "ttft_kind": "fastlane.first_token.kind",
    "expected": "fastlane.cache.expected_read_tokens",
    "asked": "fastlane.route.requested_model",
    "end": "fastlane.stream.end",
    "encoding": "fastlane.http.request.encoding",
}


def page(file: SpanFile, entries: Sequence[TraceEntry]) -> str:
    """Return the page that shows these entries of a file."""
    data = {
        "source": file.source,
        "notes": file.notes,
        "spans": len(file.spans),
        "phases": PHASES,
        "entries": [overview(entry) for entry in entries],
    }
    # A line for each entry, so that the script need not read those that stay closed.
    lines = "\n".join(_json(_details(entry)) for entry in entries)
    return html_page(
        "fastlane.traces", title=f"{file.source} - fastlane trace", extra="cli", data=_json(data), lines=lines
    )


def _json(value: Any) -> str:
    """Return JSON that can stand in an element of HTML: it holds no sign that HTML knows."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def overview(entry: TraceEntry) -> dict[str, Any]:
    """Return what the page's list shows of an entry. Milliseconds; what is absent is left out."""
    calls = entry.calls
    segments = [
        [row.phase, _ms(row.start_ns - entry.start_ns), _ms(row.end_ns - row.start_ns)]
        for row in entry.rows
        if row.phase in _DRAWN and row.end_ns > row.start_ns
    ]
    shown = {
        "k": entry.kind,
        "n": entry.name[:_LONGEST_TEXT],
        "t": entry.start_ns / 1e6,
        "d": _ms(entry.end_ns - entry.start_ns),
        "f": None if entry.time_to_first_token_s is None else round(entry.time_to_first_token_s * 1e3, 3),
        "m": list(dict.fromkeys(call.response_model or call.model or "" for call in calls)),
        "e": entry.error,
        "x": sum(attempt.error is not None for call in calls for attempt in call.attempts),
        "c": len(calls),
        "y": _misses([call for call in calls if call.cache_miss is not None]),
        "g": segments[:_MOST_SEGMENTS],
        "p": {name: round(seconds * 1e3, 4) for name, seconds in entry.durations_s.items()},
        "r": entry.experiment and entry.experiment.arm,
    }
    return {name: value for name, value in shown.items() if value not in (None, [], {})}


def _misses(missed: Sequence[TraceCall]) -> str | None:
    """Return what is shown of cache misses: "cache miss: timestamp, about 1,666 tokens"."""
    if not missed:
        return None
    kinds = ", ".join(dict.fromkeys((call.cache_miss or "").replace("_", " ") for call in missed))
    lost = sum(call.cache_lost_tokens or 0 for call in missed)
    what = "cache miss" if len(missed) == 1 else f"{len(missed)} cache misses"
    return f"{what}: {kinds[:_LONGEST_TEXT]}" + (f", about {lost:,} tokens" if lost else "")


def _details(entry: TraceEntry) -> dict[str, Any]:
    return {
        "trace": entry.trace_id,
        "within": list(entry.within),
        "experiment": entry.experiment,
        "calls": [_call(call, entry) for call in entry.calls],
        "rows": [_row(row, entry) for row in entry.rows],
    }


def _call(call: TraceCall, entry: TraceEntry) -> dict[str, Any]:
    span, first_s = call.span, call.time_to_first_token_s
    shown: dict[str, Any] = {
        **{name: getattr(call, name) for name in _OF_CALLS},
        **{name: span.attributes.get(attribute) for name, attribute in _OF_SPANS.items()},
        "at": _ms(span.start_ns - entry.start_ns),
        "ms": _ms(span.end_ns - span.start_ns),
        "ttft": None if first_s is None else first_s * 1e3,
    }
    return {name: _plain(value) for name, value in shown.items() if value is not None}


def _row(row: WaterfallBar, entry: TraceEntry) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "l": row.label[:_LONGEST_TEXT],
        "p": row.phase,
        "o": row.depth,
        "s": _ms(row.start_ns - entry.start_ns),
        "d": _ms(row.end_ns - row.start_ns),
        "e": row.error,
        "n": row.note,
        "f": None if row.first_token_ns is None else _ms(row.first_token_ns - entry.start_ns),
        **(_span(row.span, entry) if row.span is not None else {}),
    }
    return {name: value for name, value in shown.items() if value not in (None, "", [])}


def _span(span: Span, entry: TraceEntry) -> dict[str, Any]:
    return {
        "i": span.span_id,
        "k": span.kind,
        "c": span.scope,
        "v": span.service,
        "m": span.status_message[:_LONGEST_TEXT] if span.failed else "",
        "a": _pairs(span.attributes),
        "w": [[event.name, _ms(event.time_ns - entry.start_ns), _pairs(event.attributes)] for event in span.events],
        "q": [[link.trace_id, link.span_id, _pairs(link.attributes)] for link in span.links],
    }


def _pairs(attributes: Mapping[str, Any]) -> list[list[Any]]:
    return [[name, _plain(value)] for name, value in attributes.items()]


def _plain(value: Any) -> Any:
    """Return a value as the page's script can hold it exactly; others become text."""
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else f"{value[:_LONGEST_TEXT]}… ({len(value)} characters)"
    if isinstance(value, bool | float | None):
        return value
    if isinstance(value, int):
        return value if abs(value) < _EXACT else str(value)
    if isinstance(value, list | tuple) and all(isinstance(each, str | int | float) for each in value):
        return [_plain(each) for each in value]
    return json.dumps(value, default=str)


def _ms(nanoseconds: int) -> float:
    return round(nanoseconds / 1e6, 4)
