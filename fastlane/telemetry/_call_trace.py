"""One call as OpenTelemetry is told of it: its span begins with its first attempt, all else is made when it is over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opentelemetry.context import Context, attach, detach, get_current, get_value
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Tracer, get_current_span, set_span_in_context

from . import _names as names, _settings
from ._asked import asked, operation_of
from ._attributes import call_attributes, experiment_attributes
from ._emit import emit, fail
from ._ended import EndedCall
from ._experiment import current_experiment
from ._propagation import propagate
from ._provider import provider_name
from ._tracer import tracer_of
from ._tree import ModelCall, children_of, error_of, model_calls, server

if TYPE_CHECKING:
    from .._call import CallRecord
    from .._observation import Observation

SUPPRESSED = "suppress_instrumentation"
"""The key by which a context says that nothing in it is to be instrumented."""


def trace_of(observation: Observation) -> CallTrace | None:
    """What will be told of a call; None for one that asks no model for anything."""
    operation = operation_of(observation.method, observation.endpoint)
    return None if operation is None else CallTrace(observation, operation)


class CallTrace:
    """What is told of one call, however many ways it goes."""

    __slots__ = ("_asked", "_context", "_experiment", "_operation", "_over", "_settings", "_span", "_tracer", "content")

    def __init__(self, observation: Observation, operation: str) -> None:
        issued = observation.issued
        clean = None if issued is None else issued.telemetry_context
        self._settings = _settings.current()
        self._operation = operation
        self._context: Context = get_current() if clean is None else clean
        self._experiment = current_experiment()
        self._asked: dict[str, Any] = {}
        self._tracer: Tracer | None = None
        self._span: Span | None = None
        self._over = False
        self.content: Any = None
        """What is kept of prompt and answer, where that has been asked for."""

    def asked(self, observation: Observation, body: Any) -> None:
        """Take down how the model is to answer, when the plays have had their say."""
        if isinstance(body, Mapping):
            self._asked = asked(observation.endpoint, body)

    def attempting(self, observation: Observation, request: Any) -> None:
        """An attempt is about to be sent: the first one begins the call's span."""
        if self._span is None and not self._over:
            self._begin(observation.origin, observation.model, observation)
        if self._settings.propagate and self._span is not None:
            propagate(request.headers, set_span_in_context(self._span, self._context))

    def _begin(self, origin: str, model: str | None, observation: Observation) -> None:
        if get_value(SUPPRESSED, self._context):
            return
        self._tracer = tracer_of(self._settings)
        attributes = {
            names.OPERATION: self._operation,
            names.PROVIDER: provider_name(origin),
            **server(origin),
        }
        if model is not None:
            attributes[names.REQUEST_MODEL] = model
        if observation.stream:
            attributes[names.REQUEST_STREAM] = True
        self._span = self._tracer.start_span(
            self._operation if model is None else f"{self._operation} {model}",
            context=self._context,
            kind=SpanKind.CLIENT,
            attributes=attributes,
            start_time=observation.started_wall_ns,
            record_exception=False,
            set_status_on_exception=False,
        )

    def ended(self, observation: Observation) -> None:
        """The call is over: tell everything, once."""
        if self._over:
            return
        self._over = True
        if self._span is None:
            self._begin(observation.origin, observation.model, observation)
        span, context = self._span, None
        if span is not None and span.get_span_context().is_valid:
            context = set_span_in_context(span, self._context)
        if span is not None and span.is_recording():
            # Under a suppressing context other libraries' tracers would make spans that record nothing.
            token = attach(self._context) if get_value(SUPPRESSED) else None
            try:
                self._tell(span, observation.record(), context)
            finally:
                if token is not None:
                    detach(token)
        from ._metrics import tell

        tell(
            EndedCall(observation, self._operation, provider_name(observation.origin), context, self._experiment, True)
        )

    def _tell(self, span: Span, record: CallRecord, context: Any) -> None:
        timeline, level = record.timeline, self._settings.level
        offset_ns = timeline.started_wall_ns - timeline.started_ns
        told = call_attributes(record)
        told.update(self._asked)
        if self._experiment is not None:
            told.update(experiment_attributes(self._experiment))
        calls = model_calls(record) if record.routing is not None else None
        if calls is not None and len(calls) > 1:
            self._tell_each(span, calls, record, told, offset_ns)
            return
        if level != "call":
            call = ModelCall(
                record.attempts, record.model, record.origin, timeline.started_ns, timeline.ended_ns, is_last=True
            )
            self._children(call, record, context, offset_ns, {})
        error = error_of_record(record)
        if error is not None:
            fail(span, error)
        span.set_attributes(told)
        span.end(timeline.ended_ns + offset_ns)

    def _children(
        self, call: ModelCall, record: CallRecord, context: Any, offset_ns: int, made: dict[int, SpanContext]
    ) -> None:
        assert self._tracer is not None
        plans = children_of(call, record, self._settings.level)
        added = {names.PROVIDER: provider_name(call.origin)} if self._settings.compat else {}
        emit(self._tracer, plans, context, lambda stamp: stamp + offset_ns, made, added)

    def _tell_each(
        self, span: Span, calls: tuple[ModelCall, ...], record: CallRecord, told: dict[str, Any], offset_ns: int
    ) -> None:
        """A call that fell back to other models: a span for each of them, so that each model has what is its own."""
        assert self._tracer is not None
        first = span.get_span_context()
        # Without a span around the call, the further ones would begin traces of their own.
        around = self._context
        if not get_current_span(around).get_span_context().is_valid:
            around = set_span_in_context(span, self._context)
        made: dict[int, SpanContext] = {}
        for at, call in enumerate(calls):
            one = span
            if at:
                one = self._tracer.start_span(
                    f"{self._operation} {call.model}" if call.model is not None else self._operation,
                    context=around,
                    kind=SpanKind.CLIENT,
                    attributes={
                        names.OPERATION: self._operation,
                        names.PROVIDER: provider_name(call.origin),
                        **server(call.origin),
                        **({} if call.model is None else {names.REQUEST_MODEL: call.model}),
                        **({names.REQUEST_STREAM: True} if record.stream else {}),
                    },
                    links=[Link(first, {names.LINK_REASON: "fallback"})],
                    start_time=call.start_ns + offset_ns,
                    record_exception=False,
                    set_status_on_exception=False,
                )
            self._children(call, record, set_span_in_context(one, self._context), offset_ns, made)
            error = error_of(call, record)
            if call.is_last:
                one.set_attributes(told)
            elif error is not None:
                one.set_attributes({**self._asked, names.ERROR_TYPE: error[0], names.ATTEMPT_COUNT: len(call.attempts)})
            if error is not None:
                fail(one, error[1])
            if at:
                one.end(call.end_ns + offset_ns)
        span.end(calls[0].end_ns + offset_ns)


def error_of_record(record: CallRecord) -> str | None:
    """The status' words of a call that failed; None where it did not."""
    if record.outcome not in ("failed", "truncated"):
        return None
    call = ModelCall(record.attempts, record.model, record.origin, 0, 0, is_last=True)
    error = error_of(call, record)
    return None if error is None else error[1]
