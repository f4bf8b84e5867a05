"""The trace of one call: its span begins with the first attempt; all else is made when the call is over."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from opentelemetry.context import Context, get_current
from opentelemetry.trace import Span, SpanKind, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ..compat.clients import pool_settings_of
from ..transport.drivers.transports import TRACED
from . import names, settings as telemetry_settings
from .attributes import (
    call_attributes,
    experiment_attributes,
    operation_name,
    provider_name,
    request_attributes,
    span_start,
)
from .call_spans import CallSpans
from .coexistence import (
    HTTP_INSTRUMENTATION,
    Standing,
    attached,
    is_http_instrumented,
    other_tools_span,
    standing_of,
    without_http,
    without_suppression,
)
from .experiments import experiment_of
from .metrics import EndedCall
from .recorder import meters_of
from .spans import LazySpan, SpanStarter, span_starter

if TYPE_CHECKING:
    from ..engine.call_state import CallState
    from .content import Content
    from .settings import TelemetrySettings

_NOTHING: AbstractContextManager[None] = nullcontext()
_trace_context = TraceContextTextMapPropagator()  # never baggage, which holds values of the application
_PROMPT_FIELDS = frozenset({"messages", "input", "instructions", "prompt", "tools"})


def trace_of(observation: CallState) -> TracedCall | None:
    """Return the trace of a call that has begun; None for an endpoint without spans."""
    operation = operation_name(observation.method, observation.endpoint)
    return None if operation is None else TracedCall(observation, operation)


class TracedCall:
    """The trace of one call, with all of its attempts at all upstreams."""

    __slots__ = (
        "_contents", "_experiment", "_meters", "_open", "_operation", "_parent", "_request", "_settings", "_span",
        "_standing", "_started", "_starter",
    )  # fmt: skip

    def __init__(self, observation: CallState, operation: str) -> None:
        self._settings = telemetry_settings.current()
        self._standing: Standing = standing_of(observation.issued)
        self._operation = operation
        self._experiment = experiment_of(observation.experiment)
        self._request: dict[str, Any] | None = None
        """The fields of the first upstream's request, without the prompt."""
        self._contents: dict[CallState, Content] | None = None
        """Prompt and answer at each upstream, where they are captured."""
        self._starter: SpanStarter | None = None
        self._span: Span | None = self._standing.span
        """fastlane's own span, or the one of another tool that fastlane adds to."""
        self._parent: Context | None = None
        """The parent of the spans of requests, where the call's span is another tool's."""
        self._started = False
        self._open = [True]
        self._meters = meters_of(self._settings)

    @property
    def is_deferred(self) -> bool:
        """Whether the call's span is another tool's."""
        return self._standing.mode == "defer"

    def around_stock(self) -> AbstractContextManager[None]:
        """Return the context that openai's own code runs in: other tools are suppressed where the span is ours."""
        inner = self._standing.inner
        return _NOTHING if inner is None else attached(inner)

    # Before the call

    def planned(self, observation: CallState, body: Any) -> None:
        """Note the parameters of the request that the plays have planned."""
        if not isinstance(body, Mapping):
            return
        if self._request is None:
            self._request = {name: value for name, value in body.items() if name not in _PROMPT_FIELDS}
        if self._settings.capture != "no_content" and self._standing.mode == "own":
            from .content import Content

            content = Content(observation.endpoint, body)
            self._contents = {**(self._contents or {}), observation: content}
            if observation.stream:
                observation.watchers = (*observation.watchers, (content, content.see))

    def attempting(self, observation: CallState, request: Any) -> None:
        """An attempt is about to be sent: the first one begins the call's span."""
        try:
            if not self._started:
                self._start(observation)
            elif self.is_deferred and (self._span is None or not self._span.is_recording()):
                self._find_other_span()  # some tools make one for each upstream that a call falls back to
            if self._settings.propagate and self._span is not None:
                _trace_context.inject(request.headers, set_span_in_context(self._span, self._standing.context))
        except Exception as error:  # noqa: BLE001 - an application's own sampler or processor may raise anything
            _went_wrong(observation, "an attempt", error)

    def around_attempt(self, observation: CallState, http_client: Any, request: Any) -> AbstractContextManager[None]:
        """Return the context that an attempt is sent in, for an instrumentation of the HTTP client."""
        span = self._span
        if HTTP_INSTRUMENTATION not in sys.modules or span is None or self._standing.mode != "own":
            return _NOTHING
        try:
            if not is_http_instrumented(http_client):
                return _NOTHING
            parent = set_span_in_context(span, self._standing.context)
            if self._settings.level == "call":
                if pool_settings_of(http_client) is None:
                    return attached(parent)  # its span is the only one for the request, and belongs below the call's
                # With it, the HTTP library's own transport would have to carry the request. Ours takes its place.
                self._settings = _with_requests(self._settings)
            # Our span of the request replaces the instrumentation's, but the server still gets its trace context.
            _trace_context.inject(request.headers, parent)
            request.extensions[TRACED] = True
            return attached(without_http(parent))
        except Exception as error:  # noqa: BLE001
            _went_wrong(observation, "an attempt", error)
            return _NOTHING

    def _start(self, observation: CallState) -> None:
        self._started = True
        standing = self._standing
        if standing.mode == "silent":
            return
        if standing.mode == "defer":
            self._find_other_span()
            return
        name, attributes = span_start(self._operation, observation.origin, observation.model, observation.stream)
        starter = self._starter = span_starter(self._settings)
        # Under a suppressing context, other libraries' tracers make spans that record nothing.
        with attached(standing.context) if standing.suppresses else _NOTHING:
            self._span = starter.start(
                name,
                standing.context,
                observation.started_wall_ns,
                attributes,
                kind=SpanKind.CLIENT,
                is_private=HTTP_INSTRUMENTATION not in sys.modules,
            )

    def _find_other_span(self) -> None:
        """Find the other tool's span, which is current during the call, and the parent of what is below it."""
        span = self._span
        if span is None or not span.is_recording():
            span = self._span = other_tools_span() or span
        if self._settings.level in ("attempts", "phases"):
            around = without_suppression(get_current())
            if span is not None:
                around = set_span_in_context(span, around)
            # Without anything around them they would be traces of their own.
            if get_current_span(around).get_span_context().is_valid:
                self._parent = around
                self._starter = span_starter(self._settings)

    # After it

    def answered(self, observation: CallState, answer: Any) -> None:
        """A whole answer has been read. Another tool's span may end before the call does: give it what is known."""
        content = None if self._contents is None else self._contents.get(observation)
        if content is not None:
            content.answer(answer)
        if self.is_deferred:
            self.progressed(observation)

    def progressed(self, observation: CallState) -> None:
        """A part of the call is over: give another tool's span, which may end before the call, what is known."""
        try:
            if self._span is not None and self._span.is_recording():
                known = _own(call_attributes(observation.provisional_record()))
                known.pop(names.STREAM_END, None)
                self._span.set_attributes(known)
        except Exception as error:  # noqa: BLE001
            _went_wrong(observation, "an answer", error)

    def ended(self, observation: CallState) -> None:
        """The call is over: end its span, make those below it, and have it measured, once."""
        try:
            self._open.pop()  # in one step, for upstreams that end at once
        except IndexError:
            return
        try:
            if not self._started:
                self._start(observation)
            self._end_spans(observation)
        finally:
            self._contents = None  # an upstream that was left still refers to this
            if self._meters is not None:
                self._measure(observation)

    def _end_spans(self, observation: CallState) -> None:
        span, standing = self._span, self._standing
        if standing.mode == "defer":
            if span is not None and span.is_recording():
                attributes = call_attributes(observation.record()) | self._experiment_attributes()
                span.set_attributes(_own(attributes))
            if self._starter is not None and self._parent is not None:
                with attached(standing.context) if standing.suppresses else _NOTHING:
                    self._spans(observation, self._starter).requests(self._parent)
        elif span is not None and self._starter is not None and span.is_recording():
            with attached(standing.context) if standing.suppresses else _NOTHING:
                self._end_span(span, self._starter, observation)

    def _end_span(self, span: Span, starter: SpanStarter, observation: CallState) -> None:
        content = None if self._contents is None else self._contents.get(observation)
        is_single = self._settings.level == "call" and not observation.other_attempts
        has_failed = observation.outcome in ("failed", "truncated")
        if isinstance(span, LazySpan) and is_single and content is None and not has_failed:
            span.set_attributes_lazily(lambda: self._attributes(observation))
            span.end(observation.started_wall_ns + observation.ended_ns - observation.started_ns)
            return
        attributes = self._attributes(observation)
        if content is not None:
            self._add_content(span, content, attributes)
        self._spans(observation, starter).end(
            span, self._standing.context, attributes, self._request_attributes(observation), self._operation
        )

    def _spans(self, observation: CallState, starter: SpanStarter) -> CallSpans:
        return CallSpans(starter, observation.record(), self._settings.level, self._settings.compat)

    def _attributes(self, observation: CallState) -> dict[str, Any]:
        return {
            **self._request_attributes(observation),
            **call_attributes(observation.record()),
            **self._experiment_attributes(),
        }

    def _request_attributes(self, observation: CallState) -> dict[str, Any]:
        if self._request is None:
            return {}
        return {names.OPERATION: self._operation, **request_attributes(observation.endpoint, self._request)}

    def _experiment_attributes(self) -> dict[str, Any]:
        return {} if self._experiment is None else experiment_attributes(self._experiment)

    def _add_content(self, span: Span, content: Content, attributes: dict[str, Any]) -> None:
        capture = self._settings.capture
        if capture in ("event_only", "span_and_event"):
            from .content import emit_content

            context = set_span_in_context(span, self._standing.context)
            emit_content({**attributes, **content.structured()}, self._settings, context)
        if capture in ("span_only", "span_and_event"):
            attributes.update(content.attributes())

    def _measure(self, observation: CallState) -> None:
        assert self._meters is not None
        span, standing = self._span, self._standing
        ended = EndedCall(
            observation,
            self._operation,
            provider_name(observation.origin),
            set_span_in_context(span, standing.context) if span is not None else None,
            self._experiment,
            standing.counts_generic,
        )
        self._meters.add(ended, self._settings.conventions)


@lru_cache(maxsize=8)
def _with_requests(settings: TelemetrySettings) -> TelemetrySettings:
    return settings.with_changes({"level": "attempts"})


def _went_wrong(observation: CallState, doing: str, error: Exception) -> None:
    # Raised here even by a strict client, it would be taken for an error of the request, and sent again.
    observation.pipeline.went_wrong("telemetry", doing, error, quietly=True)


def _own(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return what fastlane adds to another tool's span, which has the conventions' attributes already."""
    return {name: value for name, value in attributes.items() if name.startswith("fastlane.")}
