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
    TraceState,
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


class Step(NamedTuple):
    """A span that is over: of a call, an attempt or a part of one."""

    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Any] = {}
    """Those that a sampler sees."""
    kind: SpanKind = SpanKind.INTERNAL
    links: Sequence[Link] = ()
    error: str | None = None
    """A class or a code, because no status holds text of an error."""
    compute: Callable[[], Mapping[str, Any]] = dict
    """Returns further attributes, in the thread that exports them."""


_UNSET = Status(StatusCode.UNSET)
_SAMPLED, _NOT_SAMPLED = TraceFlags(TraceFlags.SAMPLED), TraceFlags(TraceFlags.DEFAULT)
_ROOT_DECISIONS = {id(ALWAYS_ON): True, id(DEFAULT_ON): True, id(ALWAYS_OFF): False, id(DEFAULT_OFF): False}

_EXPORTING = (SpanProcessor, BatchSpanProcessor, SimpleSpanProcessor)
_HOOKS = tuple(name for name in ("on_start", "_on_ending") if hasattr(SpanProcessor, name))
_NO_OPS = frozenset(getattr(kind, name) for kind in _EXPORTING for name in _HOOKS)


class EndedSpan(ReadableSpan):
    """A span that has ended. All but its context and its parent is filled in when an exporter first reads it."""

    def __init__(
        self, maker: SpanMaker, context: SpanContext, parent: SpanContext | None, describe: Callable[[], Step]
    ) -> None:
        self._maker, self._context, self._parent = maker, context, parent
        self._describe: Callable[[], Step] | None = describe

    def __getattr__(self, name: str) -> Any:  # called only for attributes that are missing
        describe = self.__dict__.get("_describe")
        if describe is not None:
            self._maker.fill(self, describe())
            self._describe = None  # it holds the whole call
        return object.__getattribute__(self, name)


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

    def make(self, step: Step, context: Context, parent: SpanContext | None = None) -> SpanContext | None:
        """Make a span below `parent`, or else below the span of `context`. Return its context; None if not recorded."""
        tracer, (name, start_ns, end_ns, attributes, kind, links, error, compute) = self._tracer, step
        if not self.is_lazy():
            span = self.start(name, _below(parent, context), kind, dict(attributes), links, start_ns)
            if not span.is_recording():
                return None
            try:
                end_span(span, end_ns, compute(), error)
            finally:
                span.end(end_ns)  # which does nothing once it has ended
            return span.get_span_context()
        above = parent or parent_in(context)
        is_sampled = self.decision(above)
        if is_sampled is not None:
            return self.add(above, lambda: step) if is_sampled else None
        trace_id = tracer.id_generator.generate_trace_id() if above is None else above.trace_id
        sampling = tracer.sampler.should_sample(_below(parent, context), trace_id, name, kind, attributes, links)
        if not sampling.decision.is_recording():
            return None
        step = step._replace(attributes=sampling.attributes)
        flags = _SAMPLED if sampling.decision.is_sampled() else _NOT_SAMPLED
        return self.add(above, lambda: step, trace_id, sampling.trace_state, flags)

    def add(
        self,
        parent: SpanContext | None,
        describe: Callable[[], Step],
        trace_id: int = 0,
        state: TraceState | None = None,
        flags: TraceFlags = _SAMPLED,
    ) -> SpanContext:
        """Add a span that is recorded. `describe` is called in the thread that exports it."""
        tracer = self._tracer
        if parent is not None and not trace_id:
            trace_id, state = parent.trace_id, parent.trace_state
        trace_id = trace_id or tracer.id_generator.generate_trace_id()
        context = SpanContext(trace_id, tracer.id_generator.generate_span_id(), False, flags, state)
        tracer.span_processor.on_end(EndedSpan(self, context, parent, describe))
        return context

    def fill(self, span: EndedSpan, step: Step) -> None:
        """Fill in a span, when an exporter first reads it."""
        attributes = step.attributes
        try:
            attributes = {**attributes, **step.compute()}
        except Exception as caught:  # noqa: BLE001 - one span must not lose the batch that it is in
            warn_of_error("computing attributes", caught)
        # As the SDK does: it drops values of invalid types and keeps to the limits of OTEL_SPAN_ATTRIBUTE_*.
        most, longest = self._limits.max_span_attributes, self._limits.max_span_attribute_length
        ReadableSpan.__init__(
            span,
            step.name,
            span._context,
            span._parent,
            self._tracer.resource,
            BoundedAttributes(most, attributes, max_value_len=longest),
            links=step.links,
            kind=step.kind,
            status=_UNSET if step.error is None else Status(StatusCode.ERROR, step.error),
            start_time=step.start_ns,
            end_time=step.end_ns,
            instrumentation_scope=self._scope,
        )

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

    def decision(self, parent: SpanContext | None) -> bool | None:
        """Return whether a span is sampled; None if the sampler has to be asked."""
        if parent is None or self._root_decision is None or not self._follows_parent:
            return self._root_decision
        return parent.trace_flags.sampled


def parent_in(context: Context) -> SpanContext | None:
    """Return the span that a context has; None if it has none."""
    if not context:
        return None
    parent = get_current_span(context).get_span_context()
    return parent if parent.is_valid else None


def _below(parent: SpanContext | None, context: Context) -> Context:
    return context if parent is None else set_span_in_context(NonRecordingSpan(parent), context)


def span_maker(providers: Providers) -> SpanMaker:
    """Return what makes the spans of the provider in force."""
    maker: SpanMaker | None = providers.span_maker
    if maker is None:
        provider = providers.tracer_provider
        maker = providers.span_maker = SpanMaker(get_tracer_provider() if provider is None else provider)
    return maker


def end_span(span: Span, end_ns: int, attributes: Mapping[str, Any], error: str | None) -> None:
    """End a span. `error` is that of `Step`."""
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

    def add(above: SpanContext | None, step: Step) -> SpanContext | None:
        start_ns, end_ns = step.start_ns + offset_ns, max(step.start_ns, step.end_ns) + offset_ns
        return maker.make(step._replace(start_ns=start_ns, end_ns=end_ns), context, above)

    if has_phases and attempts:
        started_ns = attempts[0].wire.started_ns
        waiting_ns = started_ns - queued_ns(record, started_ns - timeline.started_ns)
        if waiting_ns - timeline.started_ns >= PREPARE_SPAN_MIN_NS:
            add(parent, Step("prepare", timeline.started_ns, waiting_ns))
        if waiting_ns < started_ns:
            add(parent, Step("wait_for_place", waiting_ns, started_ns))
    for attempt in attempts:
        before = made.get(attempt.number - 1)
        reason = "retry" if attempt.kind == "plain" else attempt.kind
        ended_ns = timeline.ended_ns if attempt.wire.ended_ns is None else attempt.wire.ended_ns
        links = () if before is None else (Link(before, {"fastlane.link.reason": reason}),)
        compute = partial(attempt_attributes, attempt, record)
        step = Step(record.method, attempt.wire.started_ns, ended_ns, {}, SpanKind.CLIENT, links)
        own = add(parent, step._replace(error=attempt_error(attempt), compute=compute))
        if own is not None:
            made[attempt.number] = own
            for phase, steps in _phases(attempt, record) if has_phases else ():
                below = add(own, phase)
                for step in steps if below is not None else ():
                    add(below, step)
    if has_phases and timeline.validate_started_ns and timeline.validate_ended_ns:
        verdict = {} if record.verdict is None else {"fastlane.output.verdict": record.verdict}
        add(parent, Step("validate", timeline.validate_started_ns, timeline.validate_ended_ns, verdict))


def _phases(attempt: Attempt, record: CallRecord) -> Iterator[tuple[Step, Sequence[Step]]]:
    """Yield the phases of an attempt that were seen, each with the steps below it."""
    wire, timeline = attempt.wire, record.timeline
    server = server_attributes(attempt.origin or record.origin)
    host = server["server.address"]
    address = f"{host}:{server.get('server.port', '')}"
    begun = (wire.dns_started_ns, wire.connect_started_ns, wire.proxy_started_ns)
    opening_ns = next((moment for moment in begun if moment is not None), None)
    name = host if attempt.proxy is None else attempt.proxy.rpartition(":")[0]
    wait_ended_ns = wire.send_started_ns if opening_ns is None else opening_ns
    if wire.connection_wait_started_ns is not None and wait_ended_ns is not None:
        yield Step(f"HTTP wait_for_connection {address}", wire.connection_wait_started_ns, wait_ended_ns), ()
    if opening_ns is not None:
        tls = {} if attempt.tls_version is None else {"tls.protocol.version": attempt.tls_version.removeprefix("TLSv")}
        peer = attempt.peer_address or address
        possible: tuple[tuple[str, int | None, int | None, Attributes], ...] = (
            (f"DNS lookup {name}", wire.dns_started_ns, wire.dns_ended_ns, {"dns.question.name": name}),
            (f"socket connect {peer}", wire.connect_started_ns, wire.connect_ended_ns, {}),
            (f"proxy connect {attempt.proxy}", wire.proxy_started_ns, wire.proxy_ended_ns, {}),
            (f"TLS client handshake {host}", wire.tls_started_ns, wire.tls_ended_ns, tls),
        )
        steps = [
            Step(title, from_ns, until_ns, attributes)
            for title, from_ns, until_ns, attributes in possible
            if from_ns is not None and until_ns is not None
        ]
        end_ns = max([opening_ns, *(step.end_ns for step in steps)])
        yield Step(f"HTTP connection_setup {address}", opening_ns, end_ns), steps
    sent_ns, head_ns = wire.send_ended_ns, wire.headers_received_ns
    if wire.send_started_ns is None or sent_ns is None:
        return
    if head_ns is not None:
        # The sending thread may read the clock only after another has seen the head of the response.
        sent_ns = max(wire.send_started_ns, min(sent_ns, head_ns))
    yield Step("HTTP send_request", wire.send_started_ns, sent_ns), ()
    if head_ns is None:
        return
    yield Step("HTTP wait_for_response", sent_ns, head_ns), ()
    first_ns = timeline.first_token_ns
    if attempt.number != record.attempts[-1].number or first_ns is None:
        return
    kind = {} if timeline.first_token_kind is None else {"fastlane.first_token.kind": timeline.first_token_kind}
    yield Step("first_token", head_ns, first_ns, kind), ()
    if len(timeline.token_ns) > 1:
        yield Step("decode", first_ns, timeline.token_ns[-1]), ()
