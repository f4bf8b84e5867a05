"""End a call's span with all that is known, and make those below it; more than one where the call fell back."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Tracer, get_current_span, set_span_in_context

from . import _names as names
from ._emit import emit, fail, sayable
from ._provider import provider_name
from ._tree import ModelCall, children_of, error_of, model_calls, server

if TYPE_CHECKING:
    from ..records.record import CallRecord
    from ._settings import TelemetrySettings


@lru_cache(maxsize=256)
def beginning(operation: str, origin: str, model: str | None, stream: bool) -> tuple[str, dict[str, Any]]:
    """What a call's span is called, and what a sampler is shown of it."""
    name = operation
    attributes = {names.OPERATION: operation, names.PROVIDER: provider_name(origin), **server(origin)}
    if model is not None:
        model = attributes[names.REQUEST_MODEL] = sayable(model)
        name = f"{operation} {model}"
    if stream:
        attributes[names.REQUEST_STREAM] = True
    return name, attributes


def tell_calls(
    tracer: Tracer,
    span: Span,
    context: Context,
    record: CallRecord,
    told: dict[str, Any],
    settings: TelemetrySettings,
    asked: dict[str, Any],
) -> None:
    """End the call's span. `told`: the attributes of the call; `asked`: those of its request alone."""
    timeline = record.timeline
    offset_ns = timeline.started_wall_ns - timeline.started_ns
    calls = model_calls(record)
    first = calls[0]
    try:
        if len(calls) > 1:
            _tell_further(tracer, span, context, calls, record, told, settings, asked)
        elif settings.level != "call":
            _below(tracer, set_span_in_context(span, context), first, record, settings, {})
    finally:
        _end(span, first, record, told, asked, offset_ns)


def _end(
    span: Span, call: ModelCall, record: CallRecord, told: dict[str, Any], asked: dict[str, Any], offset_ns: int
) -> None:
    """End the span of one call to a model, with all that is known of it."""
    error = error_of(call, record)
    span.set_attributes(told if call.is_last else _of_left(call, error, asked))
    if error is not None:
        fail(span, error[1])
    span.end(call.end_ns + offset_ns)


def tell_requests(tracer: Tracer, parent: Context, record: CallRecord, settings: TelemetrySettings) -> None:
    """Make the spans of a call's requests, where the call's own is another tool's."""
    made: dict[int, SpanContext] = {}
    for call in model_calls(record):
        _below(tracer, parent, call, record, settings, made)


def _below(
    tracer: Tracer,
    parent: Context,
    call: ModelCall,
    record: CallRecord,
    settings: TelemetrySettings,
    made: dict[int, SpanContext],
) -> None:
    timeline = record.timeline
    offset_ns = timeline.started_wall_ns - timeline.started_ns
    added = {names.PROVIDER: provider_name(call.origin)} if settings.compat else {}
    emit(tracer, children_of(call, record, settings.level), parent, lambda stamp: stamp + offset_ns, made, added)


def _of_left(call: ModelCall, error: tuple[str, str] | None, asked: dict[str, Any]) -> dict[str, Any]:
    told = {**asked, names.ATTEMPT_COUNT: len(call.attempts)}
    if error is not None:
        told[names.ERROR_TYPE] = error[0]
    return told


def _tell_further(
    tracer: Tracer,
    span: Span,
    context: Context,
    calls: tuple[ModelCall, ...],
    record: CallRecord,
    told: dict[str, Any],
    settings: TelemetrySettings,
    asked: dict[str, Any],
) -> None:
    """The spans of the models that a call fell back to, so that each model has what is its own."""
    offset_ns = record.timeline.started_wall_ns - record.timeline.started_ns
    operation = asked.get(names.OPERATION, "chat")
    # Without a span around the call, the further ones would begin traces of their own.
    around = context
    if not get_current_span(around).get_span_context().is_valid:
        around = set_span_in_context(span, context)
    made: dict[int, SpanContext] = {}
    for call in calls:
        one = span
        if call is not calls[0]:
            name, attributes = beginning(operation, call.origin, call.model, record.stream)
            one = tracer.start_span(
                name,
                context=around,
                kind=SpanKind.CLIENT,
                attributes=dict(attributes),
                links=[Link(span.get_span_context(), {names.LINK_REASON: "fallback"})],
                start_time=call.start_ns + offset_ns,
                record_exception=False,
                set_status_on_exception=False,
            )
        try:
            _below(tracer, set_span_in_context(one, context), call, record, settings, made)
        finally:
            if one is not span:
                _end(one, call, record, told, asked, offset_ns)
