"""The model as plain JSON data for the page, tightly."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ._model import TraceCall, TraceEntry, WaterfallBar
from ._spans import Span

# Where a number is of no use to a script that reads doubles.
_EXACT = 1 << 53
_LONGEST_TEXT: Final = 20_000
_MOST_SEGMENTS: Final = 60
_DRAWN: Final = frozenset({
    "prepare", "retries", "queue", "dns", "connect", "tls", "send", "server", "wait", "first_token", "unsplit",
    "decode", "validate",
})  # fmt: skip
"""The phases that have a colour in the list."""


def overview(entry: TraceEntry) -> dict[str, Any]:
    """What the page's list shows of an entry. Milliseconds; what is absent is left out."""
    calls = entry.calls
    told: dict[str, Any] = {
        "k": entry.kind,
        "n": entry.name[:_LONGEST_TEXT],
        "t": entry.start_ns / 1e6,
        "d": _ms(entry.end_ns - entry.start_ns),
        "f": None if entry.time_to_first_token_s is None else round(entry.time_to_first_token_s * 1e3, 3),
        "m": list(dict.fromkeys(call.response_model or call.model or "" for call in calls)),
        "e": entry.error,
        "x": sum(attempt.error is not None for call in calls for attempt in call.attempts),
        "a": sum(call.attempt_count or 1 for call in calls),
        "c": len(calls),
        "y": _misses(calls),
        "g": list(_segments(entry)),
        "p": {name: round(seconds * 1e3, 4) for name, seconds in entry.durations_s.items()},
    }
    if entry.experiment is not None:
        told["r"] = entry.experiment.arm
    return {name: value for name, value in told.items() if value not in (None, [], {})}


def _misses(calls: Sequence[TraceCall]) -> str | None:
    """Return what is shown of cache misses: "cache miss: timestamp, about 1,666 tokens"."""
    missed = [call for call in calls if call.cache_miss is not None]
    if not missed:
        return None
    kinds = ", ".join(dict.fromkeys((call.cache_miss or "").replace("_", " ") for call in missed))
    lost = sum(call.cache_lost_tokens or 0 for call in missed)
    return (
        ("cache miss" if len(missed) == 1 else f"{len(missed)} cache misses")
        + f": {kinds[:_LONGEST_TEXT]}"
        + (f", about {lost:,} tokens" if lost else "")
    )


def _segments(entry: TraceEntry) -> Iterator[list[Any]]:
    shown = 0
    for row in entry.rows:
        if row.phase in _DRAWN and row.end_ns > row.start_ns:
            shown += 1
            if shown > _MOST_SEGMENTS:
                return
            yield [row.phase, _ms(row.start_ns - entry.start_ns), _ms(row.end_ns - row.start_ns)]


def details(entry: TraceEntry) -> dict[str, Any]:
    """What the page shows of an entry that is opened."""
    arm = entry.experiment
    return {
        "trace": entry.trace_id,
        "within": list(entry.within),
        "experiment": None if arm is None else [arm.experiment, arm.arm, arm.unit],
        "calls": [_told_of_call(call, entry) for call in entry.calls],
        "rows": [_told_of_row(row, entry) for row in entry.rows],
    }


def _told_of_call(call: TraceCall, entry: TraceEntry) -> dict[str, Any]:
    span = call.span
    told: dict[str, Any] = {
        "model": call.model,
        "response_model": call.response_model,
        "provider": call.provider,
        "server": span.text("server.address"),
        "error": call.error,
        "at": _ms(span.start_ns - entry.start_ns),
        "ms": _ms(span.end_ns - span.start_ns),
        "ttft": None if call.time_to_first_token_s is None else call.time_to_first_token_s * 1e3,
        "ttft_kind": span.text("fastlane.first_token.kind"),
        "input": call.input_tokens,
        "cached": call.cached_tokens,
        "expected": span.count("fastlane.cache.expected_read_tokens"),
        "output": call.output_tokens,
        "reasoning": call.reasoning_tokens,
        "rate": call.tokens_per_second,
        "route": call.route_reason,
        "asked": span.text("fastlane.route.requested_model"),
        "reused": call.connection_reused,
        "attempts": call.attempt_count,
        "end": span.text("fastlane.stream.end"),
        "encoding": span.text("fastlane.http.request.encoding"),
        "optimizations": span.attributes.get("fastlane.optimizations"),
    }
    return {name: _plain(value) for name, value in told.items() if value is not None}


def _told_of_row(row: WaterfallBar, entry: TraceEntry) -> dict[str, Any]:
    told: dict[str, Any] = {
        "l": row.label[:_LONGEST_TEXT],
        "p": row.phase,
        "o": row.depth,
        "s": _ms(row.start_ns - entry.start_ns),
        "d": _ms(row.end_ns - row.start_ns),
        "e": row.error,
        "n": row.note,
        "f": None if row.first_token_ns is None else _ms(row.first_token_ns - entry.start_ns),
    }
    if row.span is not None:
        told |= _told_of_span(row.span, entry)
    return {name: value for name, value in told.items() if value not in (None, "", [])}


def _told_of_span(span: Span, entry: TraceEntry) -> dict[str, Any]:
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
    """A value as the page's script can hold it exactly; what is in others becomes text."""
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else f"{value[:_LONGEST_TEXT]}… ({len(value)} characters)"
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) < _EXACT else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple) and all(isinstance(each, str | int | float) for each in value):
        return [_plain(each) for each in value]
    return json.dumps(value, default=str)


def _ms(nanoseconds: int) -> float:
    return round(nanoseconds / 1e6, 4)
