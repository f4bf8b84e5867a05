"""The traces of calls and user actions. A call's span begins with its first attempt; all else is made at its end."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.trace import Span, SpanContext, SpanKind, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ..compat.clients import pool_settings_of
from ..transport.drivers.transports import TRACED
from . import running_calls
from .attributes import (
    CANCELLATIONS,
    OPERATIONS,
    call_attributes,
    experiment_attributes,
    most_important,
    printable,
    request_attributes,
    span_start,
)
from .coexistence import (
    HTTP_INSTRUMENTATION,
    SUPPRESS_HTTP,
    Standing,
    attached,
    is_http_instrumented,
    other_tools_span,
    standing_of,
    without_suppression,
)
from .experiments import ExperimentArm, experiment_of
from .metrics import EndedAction, EndedCall, meters_of
from .settings import Level, Providers, providers
from .spans import Step, end_span, make_spans_below, parent_in, span_maker, status_of

if TYPE_CHECKING:
    from ..engine.call_state import CallState
    from ..engine.user_action import user_action
    from ..records.record import CallRecord

_NOTHING: AbstractContextManager[None] = nullcontext()
_trace_context = TraceContextTextMapPropagator()  # never baggage, which holds values of the application
_FAILED = frozenset({"failed", "truncated"})
_SpanPlan = Literal["early", "sampled", "dropped", "asked"]
"""What a call's span will be: begun early, certainly sampled, certainly dropped, or up to its sampler at the end."""
_PROMPT_FIELDS = ("messages", "input", "instructions", "prompt", "tools")


def trace_of(observation: CallState, found: Providers) -> TracedCall | None:
    """Return the trace of a call that has begun; None for an endpoint without spans."""
    operation = OPERATIONS.get(observation.endpoint) if observation.method == "POST" else None
    if operation is None:
        return None
    if found.measures:
        meters_of(found)
    standing = standing_of(observation.issued, observation.client)
    # Whether another tool, the provider's processors or the server need the span while the call lasts.
    plan: _SpanPlan = "early"
    if standing.mode == "own" and not found.settings.propagate:
        if not found.keeps_spans:
            plan = "dropped"
        elif HTTP_INSTRUMENTATION not in sys.modules:
            maker = found.span_maker or span_maker(found)
            if maker.is_lazy():
                decision = maker.decision(parent_in(standing.context) if standing.context else None)
                plan = "asked" if decision is None else "sampled" if decision else "dropped"
        if plan == "dropped" and not found.measures:
            return None
    return TracedCall(found, operation, standing, experiment_of(observation.experiment), plan)


class TracedCall:
    """The trace of one call, with all of its attempts at all upstreams."""

    _body: dict[str, Any] | None = None
    """The first upstream's request."""
    _parent: Context | None = None
    """The parent of the spans of requests, where the call's span is another tool's."""
    _is_started = False

    def __init__(
        self, found: Providers, operation: str, standing: Standing, arm: ExperimentArm | None, plan: _SpanPlan
    ) -> None:
        self._providers, self._operation, self._standing, self._experiment = found, operation, standing, arm
        self._plan = plan
        self._level: Level = found.settings.level
        self._span: Span | None = standing.span  # fastlane's own, or the one of another tool that fastlane adds to
        self._open = [True]

    @property
    def is_deferred(self) -> bool:
        """Whether the call's span is another tool's."""
        return self._standing.mode == "defer"

    # Before the call

    def planned(self, observation: CallState, body: Any) -> None:
        """Note the parameters of the request that the plays have planned."""
        if self._plan == "dropped":
            return
        if self._body is None and (type(body) is dict or isinstance(body, Mapping)):
            # The prompt must not wait for an exporter.
            self._body = kept = dict(body)
            for name in _PROMPT_FIELDS:
                kept.pop(name, None)
        if running_calls.watched is not None:
            running_calls.watched.begin(id(self), observation)

    def attempting(self, observation: CallState, request: Any) -> None:
        """An attempt is about to be sent: the first one begins the call's span, where that is needed early."""
        if self._plan != "early":
            return
        try:
            if not self._is_started:
                self._start(observation)
            elif self.is_deferred and (self._span is None or not self._span.is_recording()):
                self._find_other_span()  # some tools make one for each upstream that a call falls back to
            if self._providers.settings.propagate and self._span is not None:
                _trace_context.inject(request.headers, set_span_in_context(self._span, self._standing.context))
        except Exception as error:  # noqa: BLE001 - an application's own sampler or processor may raise anything
            _report_error(observation, "an attempt", error)

    def around_attempt(self, observation: CallState, http_client: Any, request: Any) -> AbstractContextManager[None]:
        """Return the context that an attempt is sent in, for an instrumentation of the HTTP client."""
        span = self._span
        if HTTP_INSTRUMENTATION not in sys.modules or span is None or self._standing.mode != "own":
            return _NOTHING
        try:
            if not is_http_instrumented(http_client):
                return _NOTHING
            parent = set_span_in_context(span, self._standing.context)
            if self._level == "call":
                if pool_settings_of(http_client) is None:
                    return attached(parent)  # its span is the only one for the request, and belongs below the call's
                # With it, the HTTP library's own transport would have to carry the request. Ours takes its place.
                self._level = "attempts"
            # Our span of the request replaces the instrumentation's, but the server still gets its trace context.
            _trace_context.inject(request.headers, parent)
            request.extensions[TRACED] = True
            return attached(Context({**parent, SUPPRESS_HTTP: True}))
        except Exception as error:  # noqa: BLE001
            _report_error(observation, "an attempt", error)
            return _NOTHING

    def _start(self, observation: CallState) -> None:
        self._is_started = True
        standing = self._standing
        if standing.mode == "defer":
            self._find_other_span()
        elif standing.mode == "own":
            name, attributes = span_start(self._operation, observation.origin, observation.model, observation.stream)
            start = span_maker(self._providers).start
            self._span = start(
                name, standing.context, SpanKind.CLIENT, dict(attributes), start_time=observation.started_wall_ns
            )

    def _find_other_span(self) -> None:
        """Find the other tool's span, which is current during the call, and the parent of what is below it."""
        span = self._span
        if span is None or not span.is_recording():
            span = self._span = other_tools_span() or span
        if self._level in ("attempts", "phases"):
            around = without_suppression(get_current())
            if span is not None:
                around = set_span_in_context(span, around)
            # Without anything around them they would be traces of their own.
            if get_current_span(around).get_span_context().is_valid:
                self._parent = around

    # After it

    def progressed(self, observation: CallState) -> None:
        """A part of the call is over: give another tool's span, which may end before the call, what is known."""
        if self._standing.mode != "defer":
            return
        try:
            if self._span is not None and self._span.is_recording():
                known = _own(self._attributes(observation.provisional_record()))
                known.pop("fastlane.stream.end", None)
                self._span.set_attributes(known)
        except Exception as error:  # noqa: BLE001
            _report_error(observation, "an answer", error)

    def ended(self, observation: CallState) -> None:
        """The call is over: end its span, make those below it, and have it measured, once."""
        try:
            self._open.pop()  # in one step, for upstreams that end at once
        except IndexError:
            return
        if running_calls.watched is not None:
            running_calls.watched.end(id(self))
        standing, context = self._standing, None
        try:
            if self._plan == "early" and not self._is_started:
                self._start(observation)
            if standing.mode == "defer":
                # Under a suppressing context, tracers make spans that record nothing.
                with attached(standing.context) if standing.suppresses else _NOTHING:
                    context = self._end_other(observation)
            elif standing.mode == "own" and self._plan != "dropped":
                context = self._end_own(observation)
        finally:
            self._body = None  # an upstream that was left still refers to this
            if self._providers.meters is not None:
                counts_generic = standing.counts_generic
                ended = EndedCall(observation, self._operation, context, self._experiment, counts_generic)
                self._providers.meters.add(ended)

    def _end_other(self, observation: CallState) -> SpanContext | None:
        """Add what is known to another tool's span, and make the spans of requests below it."""
        span = self._span
        if span is not None and span.is_recording():
            span.set_attributes(_own(self._attributes(observation.record())))
        if self._parent is not None:
            make_spans_below(span_maker(self._providers), self._parent, observation.record(), self._level, None)
        return None if span is None else span.get_span_context()

    def _end_own(self, observation: CallState) -> SpanContext | None:
        span, context = self._span, self._standing.context
        if span is not None and not span.is_recording():
            return span.get_span_context()
        maker = self._providers.span_maker or span_maker(self._providers)
        error = status_of(observation.record()) if observation.outcome in _FAILED else None
        step = partial(self._step, observation, self._body, error)
        made: SpanContext | None
        if self._plan == "sampled":
            made = maker.add(parent_in(context) if context else None, step)
        elif span is None:
            made = maker.make(step(), context)
        else:
            made, ended = span.get_span_context(), step()
            span.update_name(ended.name)  # of the model that answered, where a call fell back to another one
            end_span(span, ended.end_ns, {**ended.attributes, **ended.compute()}, error)
        if made is not None and self._level != "call":
            make_spans_below(maker, context, observation.record(), self._level, made)
        return made

    def _step(self, observation: CallState, body: dict[str, Any] | None, error: str | None) -> Step:
        def attributes() -> dict[str, Any]:
            asked = request_attributes(observation.endpoint, body) if body else {}
            return {"gen_ai.operation.name": self._operation, **asked, **self._attributes(observation.record())}

        name, start = span_start(self._operation, observation.origin, observation.model, observation.stream)
        end_ns = observation.started_wall_ns + observation.ended_ns - observation.started_ns
        return Step(name, observation.started_wall_ns, end_ns, start, SpanKind.CLIENT, (), error, attributes)

    def _attributes(self, record: CallRecord) -> dict[str, Any]:
        found = call_attributes(record, self._experiment)
        return most_important(found) if self._level == "call" else found


def _report_error(observation: CallState, doing: str, error: Exception) -> None:
    # Raised here even by a strict client, it would be taken for an error of the request, and sent again.
    observation.pipeline.report_error("telemetry", doing, error, quietly=True)


def _own(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return what fastlane adds to another tool's span, which has the conventions' attributes already."""
    return {name: value for name, value in attributes.items() if name.startswith("fastlane.")}


class ActionSpan:
    """`invoke_workflow {name}`, from the action's start to its end: the current span meanwhile."""

    __slots__ = ("_before", "_context", "_experiment", "_meters", "_span", "_token")

    def __init__(self, action: user_action, previous: ActionSpan | None = None) -> None:
        """`previous`: the span of an action that ended in another context and is still current in this one."""
        assert action.started_wall_ns is not None
        found = providers()
        self._experiment = experiment_of()
        self._meters = meters_of(found)
        name = printable(action.name)
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.workflow.name": name,
            "fastlane.interaction.name": name,
            "openinference.span.kind": "CHAIN",
            **experiment_attributes(self._experiment),
        }
        before = get_current()
        if previous is not None and previous._context is before:
            before = previous._before
        self._before: Context = before
        self._span = span_maker(found).start(
            f"invoke_workflow {name}", before, attributes=attributes, start_time=action.started_wall_ns
        )
        self._context: Context = set_span_in_context(self._span, before)
        # Last, so that nothing has to be undone when a step before it fails.
        self._token: Any = attach(self._context)

    def ended(self, action: user_action, error: type[BaseException] | None, *, is_here: bool) -> None:
        """End the span of an action that is over. `is_here`: in the context that it began in."""
        token, self._token = self._token, None
        if is_here:
            detach(token)
        assert action.started_wall_ns is not None
        assert action.started_ns is not None
        assert action.ended_ns is not None
        duration_ns = action.ended_ns - action.started_ns
        failed = None if error is None or error.__name__ in CANCELLATIONS else error.__name__
        span = self._span
        if span.is_recording():
            attributes: dict[str, Any] = {
                "fastlane.application.duration": duration_ns / 1e9,
                "fastlane.interaction.calls": action.call_count,
            }
            if failed is not None:
                attributes["error.type"] = failed
            end_span(span, action.started_wall_ns + duration_ns, attributes, failed)
        if self._meters is not None:
            own = span.get_span_context()
            own_or_none = own if own.is_valid else None
            ended = EndedAction(action.name, duration_ns / 1e9, failed, own_or_none, self._experiment)
            self._meters.add(ended)
