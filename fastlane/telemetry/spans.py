"""Make the spans of calls that are over: of the call, each fallback model, attempt and phase of an attempt.

They are made with the SDK's tracer, or much cheaper where its processors only look at spans that have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, Tracer as SdkTracer
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, DEFAULT_OFF, DEFAULT_ON
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    get_current_span,
    get_tracer_provider,
    set_span_in_context,
)

from .._version import __version__
from .attributes import (
    Attributes,
    attempt_attributes,
    attempt_error,
    error_type,
    queued_ns,
    server_attributes,
    span_start,
)
from .settings import warn_of_error

if TYPE_CHECKING:
    from ..records.attempts import Attempt
    from ..records.record import CallRecord
    from .settings import Providers, TelemetrySettings

Compute = Callable[[], Mapping[str, Any]]
"""Computes attributes in the thread that exports them. It must neither block nor depend on the calling thread."""

_UNSET = Status(StatusCode.UNSET)
_SAMPLED, _NOT_SAMPLED = TraceFlags(TraceFlags.SAMPLED), TraceFlags(TraceFlags.DEFAULT)
_ROOT_DECISIONS = {id(ALWAYS_ON): True, id(DEFAULT_ON): True, id(ALWAYS_OFF): False, id(DEFAULT_OFF): False}

_EXPORTING = (SpanProcessor, BatchSpanProcessor, SimpleSpanProcessor)
_HOOKS = tuple(name for name in ("on_start", "_on_ending") if hasattr(SpanProcessor, name))
_NO_OPS = frozenset(getattr(kind, name) for kind in _EXPORTING for name in _HOOKS)


class LazyAttributes(Mapping[str, Any]):
    """The attributes of a span that has ended, computed and checked when an exporter first reads them."""

    __slots__ = ("_attributes", "_compute", "_limits")

    def __init__(self, attributes: Mapping[str, Any], compute: Compute, limits: SpanLimits) -> None:
        self._attributes = attributes
        self._compute: Compute | None = compute
        self._limits = limits

    def _all(self) -> Mapping[str, Any]:
        compute, attributes = self._compute, self._attributes
        if compute is not None:
            try:
                attributes = {**attributes, **compute()}
            except Exception as error:  # noqa: BLE001 - one span must not lose the batch that it is in
                warn_of_error("computing attributes", error)
            # As the SDK does: it drops values of invalid types and keeps to the limits of OTEL_SPAN_ATTRIBUTE_*.
            self._attributes = BoundedAttributes(
                self._limits.max_span_attributes, attributes, max_value_len=self._limits.max_span_attribute_length
            )
            self._compute = None
        return self._attributes

    def __getitem__(self, name: str) -> Any:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __bool__(self) -> bool:
        return True


class SpanMaker:
    """Makes the spans of one provider. Times are nanoseconds since the epoch."""

    def __init__(self, provider: Any) -> None:
        self._tracer: Any = provider.get_tracer("fastlane", __version__)
        self._limits = SpanLimits()
        self._scope = InstrumentationScope("fastlane", __version__)
        self._is_sdk = type(self._tracer) is SdkTracer
        self._is_enabled: Callable[[], bool] = getattr(self._tracer, "_is_enabled", lambda: True)
        # The decisions of the SDK's own samplers are known, and asking them costs more than all else.
        sampler = getattr(self._tracer, "sampler", None)
        self._root_decision = _ROOT_DECISIONS.get(id(sampler))
        self._follows_parent = sampler is DEFAULT_ON or sampler is DEFAULT_OFF
        self._processors: tuple[Any, bool] = (None, False)

    def start(
        self,
        name: str,
        context: Context,
        start_ns: int,
        attributes: Mapping[str, Any],
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Sequence[Link] = (),
    ) -> Span:
        """Start a span of the SDK's below the one of `context`."""
        return self._tracer.start_span(  # type: ignore[no-any-return]
            name,
            context=context,
            kind=kind,
            attributes=dict(attributes),
            links=links,
            start_time=start_ns,
            record_exception=False,
            set_status_on_exception=False,
        )

    def make(
        self,
        name: str,
        context: Context,
        start_ns: int,
        end_ns: int,
        attributes: Mapping[str, Any],
        *,
        parent: SpanContext | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Sequence[Link] = (),
        error: str | None = None,
        compute: Compute = dict,
    ) -> SpanContext | None:
        """Make a span that is over, and return its context; None where it is not recorded.

        Its parent is `parent`, or else the span of `context`. `attributes` are shown to the sampler, those that
        `compute` gives are not.
        """
        tracer = self._tracer
        if not self.is_lazy():
            around = context if parent is None else with_span(parent, context)
            span = self.start(name, around, start_ns, attributes, kind=kind, links=links)
            if not span.is_recording():
                return None
            try:
                end_span(span, end_ns, compute(), error)
            finally:
                span.end(end_ns)  # which does nothing once it has ended
            return span.get_span_context()
        above = _parent_in(context) if parent is None else parent
        trace_id = tracer.id_generator.generate_trace_id() if above is None else above.trace_id
        is_sampled = is_recording = self._decision(above)
        state = None if above is None else above.trace_state
        if is_sampled is None:
            around = context if parent is None else with_span(parent, context)
            sampling = tracer.sampler.should_sample(around, trace_id, name, kind, attributes, links)
            is_sampled, is_recording = sampling.decision.is_sampled(), sampling.decision.is_recording()
            state, attributes = sampling.trace_state, sampling.attributes
        if not is_recording:
            return None
        flags = _SAMPLED if is_sampled else _NOT_SAMPLED
        span_context = SpanContext(trace_id, tracer.id_generator.generate_span_id(), False, flags, state)
        tracer.span_processor.on_end(
            ReadableSpan(
                name,
                span_context,
                above,
                tracer.resource,
                LazyAttributes(attributes, compute, self._limits),
                links=links,
                kind=kind,
                status=_UNSET if error is None else Status(StatusCode.ERROR, error),
                start_time=start_ns,
                end_time=end_ns,
                instrumentation_scope=self._scope,
            )
        )
        return span_context

    def is_lazy(self) -> bool:
        """Return whether no processor acts on the start of a span: then `make` starts none, at a fifth of the cost."""
        if not self._is_sdk:
            return False
        processors = getattr(self._tracer.span_processor, "_span_processors", None)
        known, found = self._processors
        if processors is not known:
            found = processors is not None and all(
                getattr(type(one), hook) in _NO_OPS for one in processors for hook in _HOOKS
            )
            self._processors = (processors, found)
        return found and self._is_enabled()

    def drops(self, context: Context) -> bool:
        """Return whether a span that is made in this context is certainly not sampled."""
        return self._root_decision is not None and self.is_lazy() and not self._decision(_parent_in(context))

    def _decision(self, parent: SpanContext | None) -> bool | None:
        """Return whether a span is sampled; None where the sampler has to be asked."""
        if parent is None or self._root_decision is None or not self._follows_parent:
            return self._root_decision
        return parent.trace_flags.sampled


def _parent_in(context: Context) -> SpanContext | None:
    """Return the span that a context has; None where it has none."""
    parent = get_current_span(context).get_span_context() if context else None
    return None if parent is None or not parent.is_valid else parent


def with_span(span: SpanContext, context: Context) -> Context:
    """Return a context with a span that has been made."""
    return set_span_in_context(NonRecordingSpan(span), context)


def span_maker(providers: Providers) -> SpanMaker:
    """Return what makes the spans of the provider in force."""
    maker: SpanMaker | None = providers.span_maker
    if maker is None:
        provider = providers.tracer_provider
        maker = providers.span_maker = SpanMaker(get_tracer_provider() if provider is None else provider)
    return maker


def end_span(span: Span, end_ns: int, attributes: Mapping[str, Any], error: str | None) -> None:
    """End a span. `error`: a class or a code, because no status holds text of an error."""
    span.set_attributes(attributes)
    if error is not None:
        span.set_status(Status(StatusCode.ERROR, error))
    span.end(end_ns)


# The spans of a call


PREPARE_SPAN_MIN_NS: Final = 1_000_000
"""A shorter preparation has no span of its own; its duration is an attribute of the call's."""


class ModelCall(NamedTuple):
    """The attempts that went to one upstream: all of them, unless the call fell back to another one."""

    attempts: tuple[Attempt, ...]
    model: str | None
    origin: str
    start_ns: int
    end_ns: int
    is_last: bool
    """Whether the record's answer or error is from this one."""


def model_calls(record: CallRecord) -> tuple[ModelCall, ...]:
    """Cut a call where it fell back to another upstream. In order of time; at least one."""
    attempts = tuple(sorted(record.attempts, key=lambda attempt: attempt.number))
    starts = [at for at, attempt in enumerate(attempts) if attempt.kind == "fallback" and at]
    timeline = record.timeline
    if not starts:
        return (ModelCall(attempts, record.model, record.origin, timeline.started_ns, timeline.ended_ns, is_last=True),)
    answering = record.attempts[-1].number
    calls = []
    for begin, end in zip([0, *starts], [*starts, len(attempts)], strict=True):
        group = attempts[begin:end]
        first = group[0]
        is_last = any(attempt.number == answering for attempt in group)
        ended_ns = max(attempt.wire.ended_ns or attempt.wire.started_ns for attempt in group)
        calls.append(
            ModelCall(
                group,
                first.model,
                first.origin or record.origin,
                timeline.started_ns if begin == 0 else first.wire.started_ns,
                timeline.ended_ns if is_last else ended_ns,
                is_last,
            )
        )
    return tuple(calls)


def _error_of(call: ModelCall, record: CallRecord) -> tuple[str, str] | None:
    """Return `error.type` and the status description of a call to one model; None where it did not fail."""
    if call.is_last:
        error, status = error_type(record), record.status_code
        if error is None:
            return None
        has_status = record.outcome == "failed" and status is not None and status >= 400
        return error, f"{error} ({status})" if has_status else error
    last = call.attempts[-1]
    if last.given_up == "lost":
        return None
    error = attempt_error(last) or ("timeout" if last.given_up == "late" else "unfit")
    return error, error


class CallSpans:
    """Makes the spans of one call, each before those below it."""

    def __init__(
        self, maker: SpanMaker, context: Context, record: CallRecord, operation: str, settings: TelemetrySettings
    ) -> None:
        """`context`: the one that the call's own span is made in; where that is another tool's, the context with it."""
        self._maker, self._context, self._record, self._operation = maker, context, record, operation
        self._settings = settings
        self._offset_ns = record.timeline.started_wall_ns - record.timeline.started_ns
        self._attempts: dict[int, SpanContext] = {}

    def make(self, attributes: Compute, request: Compute) -> SpanContext | None:
        """Make all spans of the call, and return the context of its own; None where that is not recorded.

        `attributes` computes those of the call, `request` those of its request alone.
        """
        first, *further = model_calls(self._record)
        own = self._make_call(first, attributes, request)
        if own is not None:
            self._make_further(further, own, attributes, request)
        return own

    def end(self, span: Span, attributes: Compute, request: Compute) -> None:
        """End the call's own span, which was started in the context, and make all others."""
        first, *further = model_calls(self._record)
        error = _error_of(first, self._record)
        computed = attributes if first.is_last else _of_left(first, error, request)
        end_span(span, first.end_ns + self._offset_ns, computed(), None if error is None else error[1])
        own = span.get_span_context()
        self._make_below(first, own)
        self._make_further(further, own, attributes, request)

    def make_requests(self) -> None:
        """Make the spans of a call's requests, where the call's own span is another tool's."""
        for call in model_calls(self._record):
            self._make_below(call, None)

    def _make_further(self, calls: list[ModelCall], own: SpanContext, attributes: Compute, request: Compute) -> None:
        # Without a span around the call, the further ones would begin traces of their own.
        parent = own if _parent_in(self._context) is None else None
        for call in calls:
            self._make_call(call, attributes, request, parent, (Link(own, {"fastlane.link.reason": "fallback"}),))

    def _make_call(
        self,
        call: ModelCall,
        attributes: Compute,
        request: Compute,
        parent: SpanContext | None = None,
        links: tuple[Link, ...] = (),
    ) -> SpanContext | None:
        error = _error_of(call, self._record)
        name, start_attributes = span_start(self._operation, call.origin, call.model, self._record.stream)
        own = self._maker.make(
            name,
            self._context,
            call.start_ns + self._offset_ns,
            call.end_ns + self._offset_ns,
            start_attributes,
            parent=parent,
            kind=SpanKind.CLIENT,
            links=links,
            error=None if error is None else error[1],
            compute=attributes if call.is_last else _of_left(call, error, request),
        )
        if own is not None:
            self._make_below(call, own)
        return own

    def _make_below(self, call: ModelCall, parent: SpanContext | None) -> None:
        """Make the spans below that of one call to a model; without a `parent`, below the context's."""
        if self._settings.level not in ("attempts", "phases"):
            return
        has_phases, record = self._settings.level == "phases", self._record

        def add(
            above: SpanContext | None,
            name: str,
            start_ns: int,
            end_ns: int,
            attributes: Attributes | None = None,
            **more: Any,
        ) -> SpanContext | None:
            """Make a span between two monotonic times."""
            return self._maker.make(
                name,
                self._context,
                start_ns + self._offset_ns,
                max(start_ns, end_ns) + self._offset_ns,
                attributes or {},
                parent=above,
                **more,
            )

        if has_phases and call.attempts:
            started_ns = call.attempts[0].wire.started_ns
            waiting_ns = started_ns - queued_ns(record, started_ns - call.start_ns)
            if waiting_ns - call.start_ns >= PREPARE_SPAN_MIN_NS:
                add(parent, "prepare", call.start_ns, waiting_ns)
            if waiting_ns < started_ns:
                add(parent, "wait_for_place", waiting_ns, started_ns)
        for attempt in call.attempts:
            before = self._attempts.get(attempt.number - 1)
            reason = "retry" if attempt.kind == "plain" else attempt.kind
            own = add(
                parent,
                record.method,
                attempt.wire.started_ns,
                call.end_ns if attempt.wire.ended_ns is None else attempt.wire.ended_ns,
                kind=SpanKind.CLIENT,
                links=() if before is None else (Link(before, {"fastlane.link.reason": reason}),),
                error=attempt_error(attempt),
                compute=partial(attempt_attributes, attempt, record),
            )
            if own is not None:
                self._attempts[attempt.number] = own
                if has_phases:
                    for name, start_ns, end_ns, attributes, steps in phases(attempt, record):
                        below = add(own, name, start_ns, end_ns, attributes)
                        for step in steps if below is not None else ():
                            add(below, *step)
        timeline = record.timeline
        if has_phases and call.is_last and timeline.validate_started_ns and timeline.validate_ended_ns:
            verdict = {} if record.verdict is None else {"fastlane.output.verdict": record.verdict}
            add(parent, "validate", timeline.validate_started_ns, timeline.validate_ended_ns, verdict)


def _of_left(call: ModelCall, error: tuple[str, str] | None, request: Compute) -> Compute:
    """Return what computes the attributes of a call to a model that was left for another one."""
    known = {"fastlane.attempt.count": len(call.attempts), **({} if error is None else {"error.type": error[0]})}
    return lambda: {**request(), **known}


Step = tuple[str, int, int, Attributes]
"""Name, start and end of a span in monotonic nanoseconds, and its attributes."""


def phases(attempt: Attempt, record: CallRecord) -> Iterator[tuple[str, int, int, Attributes, Sequence[Step]]]:
    """Yield the phases of an attempt that were seen, each with the steps below it."""
    wire, timeline = attempt.wire, record.timeline
    server = server_attributes(attempt.origin or record.origin)
    host = server["server.address"]
    address = f"{host}:{server.get('server.port', '')}"
    opening_ns = wire.dns_started_ns if wire.dns_started_ns is not None else wire.connect_started_ns
    wait_ended_ns = wire.send_started_ns if opening_ns is None else opening_ns
    if wire.connection_wait_started_ns is not None and wait_ended_ns is not None:
        yield f"HTTP wait_for_connection {address}", wire.connection_wait_started_ns, wait_ended_ns, {}, ()
    if opening_ns is not None:
        tls = {} if attempt.tls_version is None else {"tls.protocol.version": attempt.tls_version.removeprefix("TLSv")}
        steps = [
            (name, from_ns, until_ns, attributes)
            for name, from_ns, until_ns, attributes in (
                (f"DNS lookup {host}", wire.dns_started_ns, wire.dns_ended_ns, {"dns.question.name": host}),
                (
                    f"socket connect {attempt.peer_address or address}",
                    wire.connect_started_ns,
                    wire.connect_ended_ns,
                    {},
                ),
                (f"TLS client handshake {host}", wire.tls_started_ns, wire.tls_ended_ns, tls),
            )
            if from_ns is not None and until_ns is not None
        ]
        end_ns = max([opening_ns, *(until_ns for _, _, until_ns, _ in steps)])
        yield f"HTTP connection_setup {address}", opening_ns, end_ns, {}, steps
    sent_ns, head_ns = wire.send_ended_ns, wire.headers_received_ns
    if wire.send_started_ns is None or sent_ns is None:
        return
    if head_ns is not None:
        # The sending thread may read the clock only after another has seen the head of the response.
        sent_ns = max(wire.send_started_ns, min(sent_ns, head_ns))
    yield "HTTP send_request", wire.send_started_ns, sent_ns, {}, ()
    if head_ns is None:
        return
    yield "HTTP wait_for_response", sent_ns, head_ns, {}, ()
    first_ns = timeline.first_token_ns
    if attempt.number != record.attempts[-1].number or first_ns is None:
        return
    kind = timeline.first_token_kind
    yield "first_token", head_ns, first_ns, {} if kind is None else {"fastlane.first_token.kind": kind}, ()
    if len(timeline.token_ns) > 1:
        yield "decode", first_ns, timeline.token_ns[-1], {}, ()
