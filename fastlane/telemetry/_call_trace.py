"""One call as OpenTelemetry is told of it: its span begins with its first attempt, all else is made when it is over."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context as ContextVars, copy_context
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from opentelemetry.context import Context, get_current
from opentelemetry.trace import (
    Span,
    SpanKind,
    Tracer,
    get_current_span,
    get_tracer_provider,
    set_span_in_context,
)

from ..compat.clients import pool_settings_of
from ..transport.drivers.transports import TRACED
from . import _names as names, _settings
from ._around import Standing, attached, standing, stripped, their_span, without_http
from ._asked import asked, operation_of
from ._attributes import call_attributes, experiment_attributes
from ._batched import is_batched
from ._call_spans import beginning, tell_calls
from ._ended import EndedCall
from ._experiment import experiment_of
from ._glance import glance, is_plain as is_plain_call
from ._metrics import get_ready, tell
from ._propagation import propagate
from ._provider import provider_name
from ._tracer import tracer_of

if TYPE_CHECKING:
    from ..engine.observation import Observation
    from ..records.record import CallRecord
    from ._content import Content
    from ._settings import TelemetrySettings

_HTTP_INSTRUMENTATION = "opentelemetry.instrumentation.httpx"
_NOTHING: AbstractContextManager[None] = nullcontext()


def trace_of(observation: Observation) -> CallTrace | None:
    """What will be told of a call; None for one that asks no model for anything."""
    operation = operation_of(observation.method, observation.endpoint)
    return None if operation is None else CallTrace(observation, operation)


class CallTrace:
    """What is told of one call, however many ways it goes."""

    __slots__ = (
        "_asked", "_body", "_contents", "_experiment", "_first", "_is_measured", "_operation", "_parent",
        "_settings", "_span", "_standing", "_started", "_tracer", "_untold",
    )  # fmt: skip

    def __init__(self, observation: Observation, operation: str) -> None:
        self._settings = _settings.current()
        self._standing: Standing = standing(observation.issued)
        self._operation = operation
        self._experiment = experiment_of(observation.experiment)
        self._body: Mapping[str, Any] | None = None
        self._first: tuple[str, str | None] | None = None
        """Origin and model that the first attempt went to: the call may end elsewhere."""
        self._asked: dict[str, Any] = {}
        self._contents: dict[Observation, Content] | None = None
        """What each way of the call was asked and has answered, where that is to be told."""
        self._tracer: Tracer | None = None
        self._span: Span | None = self._standing.span
        """fastlane's own, or the one of another tool's that it adds to."""
        self._parent: Context | None = None
        """Of the spans below the call's, where that is another tool's."""
        self._started = False
        self._untold = [True]
        self._is_measured = get_ready()

    @property
    def is_deferred(self) -> bool:
        """Whether the call's span is another tool's."""
        return self._standing.mode == "defer"

    def around_stock(self) -> AbstractContextManager[None]:
        """Return the context that openai's own code runs in: other tools are silent there where the span is ours."""
        inner = self._standing.inner
        return _NOTHING if inner is None else attached(inner)

    # Before the call

    def asked(self, observation: Observation, body: Any) -> None:
        """Take down how the model is to answer, when the plays have had their say."""
        if not isinstance(body, Mapping):
            return
        if self._first is None:  # and the call has not begun on another way
            # Read when the span has begun: most are not recorded where sampling leaves few.
            self._body = body
        if self._settings.capture != "no_content" and self._standing.mode == "own":
            from ._content import Content

            content = Content(observation.endpoint, body)
            self._contents = {**(self._contents or {}), observation: content}
            if observation.stream:
                observation.watchers = (*observation.watchers, (content, content.see))

    def attempting(self, observation: Observation, request: Any) -> None:
        """An attempt is about to be sent: the first one begins the call's span."""
        try:
            self._attempting(observation, request)
        except Exception as error:  # noqa: BLE001 - an application's own sampler or processor may raise anything
            _went_wrong(observation, "an attempt", error)

    def _attempting(self, observation: Observation, request: Any) -> None:
        if self._first is None:
            self._first = (observation.origin, observation.model)
        if not self._started and not self._is_made_later():
            self._begin(observation)
        elif self._standing.mode == "defer" and (self._span is None or not self._span.is_recording()):
            self._find_theirs()  # some make one for each upstream that a call falls back to
        if self._settings.propagate and self._span is not None:
            propagate(request.headers, set_span_in_context(self._span, self._standing.context))

    def around_attempt(self, observation: Observation, http_client: Any, request: Any) -> AbstractContextManager[None]:
        """What is to hold while an attempt is sent, for an instrumentation of the HTTP client if there is one."""
        span = self._span
        if _HTTP_INSTRUMENTATION not in sys.modules or span is None or self._standing.mode != "own":
            return _NOTHING
        try:
            return self._around_attempt(span, http_client, request)
        except Exception as error:  # noqa: BLE001
            _went_wrong(observation, "an attempt", error)
            return _NOTHING

    def _around_attempt(self, span: Span, http_client: Any, request: Any) -> AbstractContextManager[None]:
        standing = self._standing
        from ._others import http_instrumented

        if not http_instrumented(http_client):
            return _NOTHING
        parent = set_span_in_context(span, standing.context)
        if self._settings.level == "call":
            if pool_settings_of(http_client) is None:
                return attached(parent)  # its span is the only one for the request, and belongs below the call's
            # With it, the HTTP library's own transport would have to carry the request. Ours takes its place.
            self._settings = _with_requests(self._settings)
        # Ours says the same and more. The server is to hear what it would have heard, and over the same connections as
        # without any instrumentation.
        propagate(request.headers, parent)
        request.extensions[TRACED] = True
        return attached(without_http(parent))

    def _is_made_later(self) -> bool:
        """Whether the call's span is made with all others when the call is over, in a thread that no call waits for.

        Not where somebody needs it before: another tool's span below it, or the server.
        """
        settings = self._settings
        if settings.propagate or self._standing.mode != "own" or _HTTP_INSTRUMENTATION in sys.modules:
            return False
        given = settings.tracer_provider
        return is_batched(get_tracer_provider() if given is None else given)

    def _begin(self, observation: Observation) -> None:
        self._started = True
        body, self._body = self._body, None
        standing = self._standing
        if standing.mode == "silent":
            return
        if standing.mode == "defer":
            self._find_theirs()
            return
        origin, model = self._first or (observation.origin, observation.model)
        name, attributes = beginning(self._operation, origin, model, observation.stream)
        if self._tracer is None:
            self._tracer = tracer_of(self._settings)
        # Under a suppressing context, other libraries' tracers make spans that record nothing.
        with attached(standing.context) if standing.suppresses else _NOTHING:
            self._span = self._tracer.start_span(
                name,
                context=standing.context,
                kind=SpanKind.CLIENT,
                attributes=dict(attributes),
                start_time=observation.started_wall_ns,
                record_exception=False,
                set_status_on_exception=False,
            )
        if body is not None and self._span.is_recording():
            self._asked = self._asked_of(observation, body)

    def _asked_of(self, observation: Observation, body: Mapping[str, Any]) -> dict[str, Any]:
        return {names.OPERATION: self._operation, **asked(observation.endpoint, body)}

    def _find_theirs(self) -> None:
        """The span of the other tool's, now that the call is inside of it, and the parent of what is below it."""
        span = self._span
        if span is None or not span.is_recording():
            span = self._span = their_span() or span
        if self._settings.level in ("attempts", "phases"):
            around = stripped(get_current())
            if span is not None:
                around = set_span_in_context(span, around)
            # Without anything around them they would be traces of their own.
            if get_current_span(around).get_span_context().is_valid:
                self._parent = around
                self._tracer = tracer_of(self._settings)

    # After it

    def answered(self, observation: Observation, answer: Any) -> None:
        """A whole answer is there. Another tool's span may end before the call does: tell it what is known."""
        content = None if self._contents is None else self._contents.get(observation)
        if content is not None:
            content.answer(answer)
        if self.is_deferred:
            self.progressed(observation)

    def progressed(self, observation: Observation) -> None:
        """A part of the call is over: another tool's span, which may end before the call, is told what is known."""
        try:
            if self._span is not None and self._span.is_recording():
                told = _own(call_attributes(observation.provisional_record()))
                told.pop(names.STREAM_END, None)
                self._span.set_attributes(told)
        except Exception as error:  # noqa: BLE001
            _went_wrong(observation, "an answer", error)

    def ended(self, observation: Observation) -> None:
        """The call is over: tell everything, once."""
        try:
            self._untold.pop()
        except IndexError:
            return
        if self._started or not self._is_made_later():
            ended = self._made(observation)
            if ended is not None:
                tell(ended)
            return
        if self._body is not None:
            # Not kept: it is the prompt.
            self._asked, self._body = self._asked_of(observation, self._body), None
        self._tracer = tracer_of(self._settings)  # another provider may have been set by the time that it is made
        tell(_Later(self, observation, copy_context()))

    def _made(self, observation: Observation) -> EndedCall | None:
        """Make the spans of a call that is over; what there is to measure, where anybody measures."""
        if not self._started:
            self._begin(observation)
        span, standing = self._span, self._standing
        if span is not None and (span.is_recording() or (standing.mode == "defer" and self._tracer is not None)):
            with attached(standing.context) if standing.suppresses else _NOTHING:
                self._tell(span, observation)
        elif standing.mode == "defer" and self._tracer is not None:
            self._below(observation.record())
        self._contents = None  # a way that was left still knows of this
        if not self._is_measured:
            return None
        told_of = set_span_in_context(span, standing.context) if span is not None else None
        provider = provider_name(observation.origin)
        return EndedCall(observation, self._operation, provider, told_of, self._experiment, standing.counts_generic)

    def _tell(self, span: Span, observation: Observation) -> None:
        is_plain = self._standing.mode == "own" and self._settings.level == "call" and is_plain_call(observation)
        told = glance(observation) if is_plain else call_attributes(observation.record())
        if self._experiment is not None:
            told.update(experiment_attributes(self._experiment))
        if self._standing.mode == "defer":
            if span.is_recording():
                span.set_attributes(_own(told))
            if self._tracer is not None:
                self._below(observation.record())
            return
        told.update(self._asked)
        contents, self._contents = self._contents, None
        content = None if contents is None else contents.get(observation)
        if content is not None:
            self._tell_content(span, content, told)
        if is_plain:
            span.set_attributes(told)
            span.end(observation.started_wall_ns + observation.ended_ns - observation.started_ns)
            return
        assert self._tracer is not None
        context, record = self._standing.context, observation.record()
        tell_calls(self._tracer, span, context, record, told, self._settings, self._asked)

    def _below(self, record: CallRecord) -> None:
        """The spans of the requests, below a span that is not fastlane's."""
        from ._call_spans import tell_requests

        if self._tracer is not None and self._parent is not None:
            with attached(self._standing.context) if self._standing.suppresses else _NOTHING:
                tell_requests(self._tracer, self._parent, record, self._settings)

    def _tell_content(self, span: Span, content: Content, told: dict[str, Any]) -> None:
        capture = self._settings.capture
        if capture in ("event_only", "span_and_event"):
            from ._content_event import tell_content

            context = set_span_in_context(span, self._standing.context)
            tell_content({**told, **content.structured()}, self._settings, context)
        if capture in ("span_only", "span_and_event"):
            told.update(content.attributes())


@lru_cache(maxsize=8)
def _with_requests(settings: TelemetrySettings) -> TelemetrySettings:
    return settings.with_changes({"level": "attempts"})


class _Later:
    """A call that is over, and whose spans are to be made as if its own thread made them."""

    __slots__ = ("_context", "_observation", "_trace")

    def __init__(self, trace: CallTrace, observation: Observation, context: ContextVars) -> None:
        self._trace, self._observation, self._context = trace, observation, context

    def made(self) -> EndedCall | None:
        """Make them."""
        return self._context.run(self._trace._made, self._observation)


def _went_wrong(observation: Observation, doing: str, error: Exception) -> None:
    # Raised here even by a strict client, it would be taken for an error of the request, and sent again.
    observation.pipeline.went_wrong("telemetry", doing, error, quietly=True)


def _own(told: Mapping[str, Any]) -> dict[str, Any]:
    """What fastlane adds to a span of another tool's, which says by itself what the conventions ask for."""
    return {name: value for name, value in told.items() if name.startswith("fastlane.")}
