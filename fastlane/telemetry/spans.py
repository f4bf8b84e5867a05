"""Make spans: with the SDK's tracer, or much cheaper where its processors only look at spans that have ended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, Tracer as SdkTracer
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, DEFAULT_OFF, DEFAULT_ON
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    get_current_span,
    get_tracer_provider,
)

from .._version import __version__

if TYPE_CHECKING:
    from .settings import Providers

log = logging.getLogger("fastlane")

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
                warn_once("computing attributes", type(error).__name__)
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
        kind: SpanKind = SpanKind.INTERNAL,
        links: Sequence[Link] = (),
        error: str | None = None,
        compute: Compute = dict,
    ) -> SpanContext | None:
        """Make a span that is over, and return its context; None where it is not recorded.

        `attributes` are shown to the sampler, those that `compute` gives are not.
        """
        tracer = self._tracer
        if not self.is_lazy():
            span = self.start(name, context, start_ns, attributes, kind=kind, links=links)
            if not span.is_recording():
                return None
            try:
                end_span(span, end_ns, compute(), error)
            finally:
                span.end(end_ns)  # which does nothing once it has ended
            return span.get_span_context()
        parent = _parent_in(context)
        trace_id = tracer.id_generator.generate_trace_id() if parent is None else parent.trace_id
        is_sampled = is_recording = self._decision(parent)
        state = None if parent is None else parent.trace_state
        if is_sampled is None:
            sampling = tracer.sampler.should_sample(context, trace_id, name, kind, attributes, links)
            is_sampled, is_recording = sampling.decision.is_sampled(), sampling.decision.is_recording()
            state, attributes = sampling.trace_state, sampling.attributes
        if not is_recording:
            return None
        flags = _SAMPLED if is_sampled else _NOT_SAMPLED
        span_context = SpanContext(
            trace_id, tracer.id_generator.generate_span_id(), is_remote=False, trace_flags=flags, trace_state=state
        )
        tracer.span_processor.on_end(
            ReadableSpan(
                name,
                span_context,
                parent,
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


@cache
def warn_once(doing: str, error: str) -> None:
    """Log the class of an error that telemetry has caught, once."""
    log.warning("telemetry: %s raised %s; calls are not affected (logged once)", doing, error)
