"""Make the spans of calls that are over: of the call, each fallback model, attempt and phase of an attempt.

They are made with the SDK's tracer, or much cheaper where its processors only look at spans that have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

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
from .attributes import Attributes, attempt_attributes, attempt_error, error_type, queued_ns, server_attributes
from .settings import warn_of_error

if TYPE_CHECKING:
    from ..records.attempts import Attempt
    from ..records.record import CallRecord
    from .settings import Providers

Compute = Callable[[], Mapping[str, Any]]
"""Computes attributes in the thread that exports them. It must neither block nor depend on the calling thread."""

Step = tuple[str, int, int, Attributes]
"""Name, start and end of a span in monotonic nanoseconds, and its attributes."""

_UNSET = Status(StatusCode.UNSET)
_SAMPLED, _NOT_SAMPLED = TraceFlags(TraceFlags.SAMPLED), TraceFlags(TraceFlags.DEFAULT)
_ROOT_DECISIONS = {id(ALWAYS_ON): True, id(DEFAULT_ON): True, id(ALWAYS_OFF): False, id(DEFAULT_OFF): False}

_EXPORTING = (SpanProcessor, BatchSpanProcessor, SimpleSpanProcessor)
_HOOKS = tuple(name for name in ("on_start", "_on_ending") if hasattr(SpanProcessor, name))
_NO_OPS = frozenset(getattr(kind, name) for kind in _EXPORTING for name in _HOOKS)


class LazyAttributes(Mapping[str, Any]):
    """The attributes of a span that has ended, computed and checked when an exporter first reads them."""

    def __init__(self, attributes: Mapping[str, Any], compute: Compute, limits: SpanLimits) -> None:
        self._attributes, self._compute, self._limits = attributes, compute, limits

    @cached_property
    def _all(self) -> Mapping[str, Any]:
        attributes = self._attributes
        try:
            attributes = {**attributes, **self._compute()}
        except Exception as error:  # noqa: BLE001 - one span must not lose the batch that it is in
            warn_of_error("computing attributes", error)
        self._compute = dict  # it holds the whole call
        # As the SDK does: it drops values of invalid types and keeps to the limits of OTEL_SPAN_ATTRIBUTE_*.
        limits = self._limits
        return BoundedAttributes(limits.max_span_attributes, attributes, max_value_len=limits.max_span_attribute_length)

    def __getitem__(self, name: str) -> Any:
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __bool__(self) -> bool:
        return True


class SpanMaker:
    """Makes the spans of one provider. Times are nanoseconds since the epoch."""

    def __init__(self, provider: Any) -> None:
        self._tracer: Any = provider.get_tracer("fastlane", __version__)
        self.start: Callable[..., Span] = partial(
            self._tracer.start_span, record_exception=False, set_status_on_exception=False
        )
        """Start a span of the SDK's; takes the arguments of its `start_span()`."""
        self._limits = SpanLimits()
        self._scope = InstrumentationScope("fastlane", __version__)
        self._is_sdk = type(self._tracer) is SdkTracer
        self._is_enabled: Callable[[], bool] = getattr(self._tracer, "_is_enabled", lambda: True)
        # The decisions of the SDK's own samplers are known, and asking them costs more than all else.
        sampler = getattr(self._tracer, "sampler", None)
        self._root_decision = _ROOT_DECISIONS.get(id(sampler))
        self._follows_parent = sampler is DEFAULT_ON or sampler is DEFAULT_OFF
        self._processors: tuple[Any, bool] = (None, False)

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
        """Make a span that is over, and return its context; None if it is not recorded.

        Its parent is `parent`, or else the span of `context`. `attributes` are shown to the sampler, those that
        `compute` gives are not.
        """

        def around() -> Context:
            return context if parent is None else set_span_in_context(NonRecordingSpan(parent), context)

        tracer = self._tracer
        if not self.is_lazy():
            span = self.start(name, around(), kind, dict(attributes), links, start_ns)
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
            sampling = tracer.sampler.should_sample(around(), trace_id, name, kind, attributes, links)
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
        return self._root_decision is not None and not self._decision(_parent_in(context))

    def _decision(self, parent: SpanContext | None) -> bool | None:
        """Return whether a span is sampled; None if the sampler has to be asked."""
        if parent is None or self._root_decision is None or not self._follows_parent:
            return self._root_decision
        return parent.trace_flags.sampled


def _parent_in(context: Context) -> SpanContext | None:
    """Return the span that a context has; None if it has none."""
    parent = get_current_span(context).get_span_context() if context else None
    return None if parent is None or not parent.is_valid else parent


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


def status_of(record: CallRecord) -> str | None:
    """Return the description of the status of a call's span: its error and status code; None if it did not fail."""
    error, status = error_type(record), record.status_code
    has_status = record.outcome == "failed" and status is not None and status >= 400
    return f"{error} ({status})" if has_status else error


def make_spans_below(
    maker: SpanMaker, context: Context, record: CallRecord, level: str, parent: SpanContext | None
) -> None:
    """Make the spans of a call's attempts and their phases; without a `parent`, below the span of the context."""
    if level not in ("attempts", "phases"):
        return
    has_phases, timeline = level == "phases", record.timeline
    offset_ns = timeline.started_wall_ns - timeline.started_ns
    made: dict[int, SpanContext] = {}
    attempts = sorted(record.attempts, key=lambda attempt: attempt.number)

    def add(above: SpanContext | None, step: Step, **more: Any) -> SpanContext | None:
        name, start_ns, end_ns, attributes = step
        end_ns = max(start_ns, end_ns) + offset_ns
        return maker.make(name, context, start_ns + offset_ns, end_ns, attributes, parent=above, **more)

    if has_phases and attempts:
        started_ns = attempts[0].wire.started_ns
        waiting_ns = started_ns - queued_ns(record, started_ns - timeline.started_ns)
        if waiting_ns - timeline.started_ns >= PREPARE_SPAN_MIN_NS:
            add(parent, ("prepare", timeline.started_ns, waiting_ns, {}))
        if waiting_ns < started_ns:
            add(parent, ("wait_for_place", waiting_ns, started_ns, {}))
    for attempt in attempts:
        before = made.get(attempt.number - 1)
        reason = "retry" if attempt.kind == "plain" else attempt.kind
        ended_ns = timeline.ended_ns if attempt.wire.ended_ns is None else attempt.wire.ended_ns
        own = add(
            parent,
            (record.method, attempt.wire.started_ns, ended_ns, {}),
            kind=SpanKind.CLIENT,
            links=() if before is None else (Link(before, {"fastlane.link.reason": reason}),),
            error=attempt_error(attempt),
            compute=partial(attempt_attributes, attempt, record),
        )
        if own is not None:
            made[attempt.number] = own
            for phase, steps in _phases(attempt, record) if has_phases else ():
                below = add(own, phase)
                for step in steps if below is not None else ():
                    add(below, step)
    if has_phases and timeline.validate_started_ns and timeline.validate_ended_ns:
        verdict = {} if record.verdict is None else {"fastlane.output.verdict": record.verdict}
        add(parent, ("validate", timeline.validate_started_ns, timeline.validate_ended_ns, verdict))


def _phases(attempt: Attempt, record: CallRecord) -> Iterator[tuple[Step, Sequence[Step]]]:
    """Yield the phases of an attempt that were seen, each with the steps below it."""
    wire, timeline = attempt.wire, record.timeline
    server = server_attributes(attempt.origin or record.origin)
    host = server["server.address"]
    address = f"{host}:{server.get('server.port', '')}"
    opening_ns = wire.dns_started_ns if wire.dns_started_ns is not None else wire.connect_started_ns
    wait_ended_ns = wire.send_started_ns if opening_ns is None else opening_ns
    if wire.connection_wait_started_ns is not None and wait_ended_ns is not None:
        yield (f"HTTP wait_for_connection {address}", wire.connection_wait_started_ns, wait_ended_ns, {}), ()
    if opening_ns is not None:
        tls = {} if attempt.tls_version is None else {"tls.protocol.version": attempt.tls_version.removeprefix("TLSv")}
        peer = attempt.peer_address or address
        possible: tuple[tuple[str, int | None, int | None, Attributes], ...] = (
            (f"DNS lookup {host}", wire.dns_started_ns, wire.dns_ended_ns, {"dns.question.name": host}),
            (f"socket connect {peer}", wire.connect_started_ns, wire.connect_ended_ns, {}),
            (f"TLS client handshake {host}", wire.tls_started_ns, wire.tls_ended_ns, tls),
        )
        steps = [
            (name, from_ns, until_ns, attributes)
            for name, from_ns, until_ns, attributes in possible
            if from_ns is not None and until_ns is not None
        ]
        end_ns = max([opening_ns, *(until_ns for _, _, until_ns, _ in steps)])
        yield (f"HTTP connection_setup {address}", opening_ns, end_ns, {}), steps
    sent_ns, head_ns = wire.send_ended_ns, wire.headers_received_ns
    if wire.send_started_ns is None or sent_ns is None:
        return
    if head_ns is not None:
        # The sending thread may read the clock only after another has seen the head of the response.
        sent_ns = max(wire.send_started_ns, min(sent_ns, head_ns))
    yield ("HTTP send_request", wire.send_started_ns, sent_ns, {}), ()
    if head_ns is None:
        return
    yield ("HTTP wait_for_response", sent_ns, head_ns, {}), ()
    first_ns = timeline.first_token_ns
    if attempt.number != record.attempts[-1].number or first_ns is None:
        return
    kind = {} if timeline.first_token_kind is None else {"fastlane.first_token.kind": timeline.first_token_kind}
    yield ("first_token", head_ns, first_ns, kind), ()
    if len(timeline.token_ns) > 1:
        yield ("decode", first_ns, timeline.token_ns[-1], {}), ()
