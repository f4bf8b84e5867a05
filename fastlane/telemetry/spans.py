"""Start spans: with the SDK's tracer, or cheaper where its processors only look at spans that have ended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, Tracer as SdkTracer
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
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
)

from .._version import __version__
from .names import SCOPE

if TYPE_CHECKING:
    from .settings import TelemetrySettings

log = logging.getLogger("fastlane")

_UNSET = Status(StatusCode.UNSET)
_SAMPLED, _NOT_SAMPLED = TraceFlags(TraceFlags.SAMPLED), TraceFlags(TraceFlags.DEFAULT)

_EXPORTING = (SpanProcessor, BatchSpanProcessor, SimpleSpanProcessor)
_HOOKS = tuple(name for name in ("on_start", "_on_ending") if hasattr(SpanProcessor, name))
_NO_OPS = frozenset(getattr(kind, name) for kind in _EXPORTING for name in _HOOKS)


class LazyAttributes(Mapping[str, Any]):
    """The attributes of a span that has ended. A function computes them when an exporter first reads them."""

    __slots__ = ("_attributes", "_compute", "_limits")

    def __init__(self, attributes: Mapping[str, Any], compute: Callable[[], Mapping[str, Any]], limits: Any) -> None:
        self._attributes = attributes
        self._compute: Callable[[], Mapping[str, Any]] | None = compute
        self._limits = limits

    def _all(self) -> Mapping[str, Any]:
        compute = self._compute
        if compute is not None:
            attributes: Mapping[str, Any] = self._attributes
            try:
                attributes = {**attributes, **compute()}
            except Exception as error:  # noqa: BLE001 - one span must not lose the batch that it is in
                warn_once("computing attributes", type(error).__name__)
            # As the SDK does: it drops values of invalid types and keeps to the limits of OTEL_SPAN_ATTRIBUTE_*.
            limits = self._limits
            self._attributes = BoundedAttributes(
                limits.max_span_attributes, attributes, max_value_len=limits.max_span_attribute_length
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


class LazySpan(NonRecordingSpan):
    """A span whose attributes are computed in the thread that exports it."""

    def __init__(
        self,
        starter: SpanStarter,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        start_ns: int,
        attributes: Mapping[str, Any],
        kind: SpanKind,
        links: Sequence[Link],
    ) -> None:
        super().__init__(context)
        self._starter: SpanStarter | None = starter
        self._name, self._parent, self._start_ns, self._kind, self._links = name, parent, start_ns, kind, links
        self._begun: Mapping[str, Any] = attributes
        self._compute: Callable[[], Mapping[str, Any]] = dict
        self._status = _UNSET

    def is_recording(self) -> bool:
        """Return whether the span has not ended."""
        return self._starter is not None

    def set_attributes_lazily(self, compute: Callable[[], Mapping[str, Any]]) -> None:
        """Have a function compute further attributes. It must neither block nor depend on the calling thread."""
        self._compute = compute

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Add attributes."""
        self._begun = {**self._begun, **attributes}

    def set_attribute(self, key: str, value: Any) -> None:
        """Add an attribute."""
        self.set_attributes({key: value})

    def set_status(self, status: Any, description: str | None = None) -> None:
        """Set the status."""
        self._status = status if isinstance(status, Status) else Status(status, description)

    def end(self, end_time: int | None = None) -> None:
        """Pass the span to the processors. `end_time`: nanoseconds since the epoch."""
        starter, self._starter = self._starter, None
        if starter is None:
            return
        starter.tracer.span_processor.on_end(
            ReadableSpan(
                self._name,
                context=self.get_span_context(),
                parent=self._parent,
                resource=starter.tracer.resource,
                attributes=LazyAttributes(self._begun, self._compute, starter.limits),
                links=self._links,
                kind=self._kind,
                status=self._status,
                start_time=self._start_ns,
                end_time=end_time,
                instrumentation_scope=starter.scope,
            )
        )


class SpanStarter:
    """Starts the spans of one provider."""

    def __init__(self, provider: Any) -> None:
        self.provider = provider
        self.tracer: Any = provider.get_tracer(SCOPE, __version__)
        self.limits = SpanLimits()
        self.scope = InstrumentationScope(SCOPE, __version__)
        self._is_sdk = type(self.tracer) is SdkTracer
        self._is_enabled: Callable[[], bool] = getattr(self.tracer, "_is_enabled", lambda: True)
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
        is_private: bool = True,
    ) -> Span:
        """Start a span below the one of `context`. `start_ns`: nanoseconds since the epoch.

        `is_private`: no other code gets the span, as it does where the span is the current one.
        """
        if is_private and self._is_sdk and self._only_exports():
            return self._start_lazily(name, context, start_ns, attributes, kind, links)
        return self.tracer.start_span(  # type: ignore[no-any-return]
            name,
            context=context,
            kind=kind,
            attributes=dict(attributes),
            links=links,
            start_time=start_ns,
            record_exception=False,
            set_status_on_exception=False,
        )

    def _only_exports(self) -> bool:
        """Whether no processor does anything when a span starts: a real span costs five times as much."""
        processors = getattr(self.tracer.span_processor, "_span_processors", None)
        known, found = self._processors
        if processors is not known:
            found = processors is not None and all(
                getattr(type(one), hook) in _NO_OPS for one in processors for hook in _HOOKS
            )
            self._processors = (processors, found)
        return found and self._is_enabled()

    def _start_lazily(
        self,
        name: str,
        context: Context,
        start_ns: int,
        attributes: Mapping[str, Any],
        kind: SpanKind,
        links: Sequence[Link],
    ) -> Span:
        tracer = self.tracer
        parent: SpanContext | None = get_current_span(context).get_span_context()
        if parent is None or not parent.is_valid:
            parent, trace_id = None, tracer.id_generator.generate_trace_id()
        else:
            trace_id = parent.trace_id
        sampling = tracer.sampler.should_sample(context, trace_id, name, kind, attributes, links)
        span_context = SpanContext(
            trace_id,
            tracer.id_generator.generate_span_id(),
            is_remote=False,
            trace_flags=_SAMPLED if sampling.decision.is_sampled() else _NOT_SAMPLED,
            trace_state=sampling.trace_state,
        )
        if not sampling.decision.is_recording():
            return NonRecordingSpan(span_context)
        return LazySpan(self, name, span_context, parent, start_ns, sampling.attributes, kind, links)


_last: SpanStarter | None = None


def span_starter(settings: TelemetrySettings) -> SpanStarter:
    """Return what starts the spans of the provider in force."""
    global _last  # noqa: PLW0603 - that of the provider that was asked for last
    provider = settings.tracer_provider if settings.tracer_provider is not None else get_tracer_provider()
    starter = _last
    if starter is None or starter.provider is not provider:
        starter = _last = SpanStarter(provider)
    return starter


def set_failed(span: Span, what: str) -> None:
    """Mark a span as failed, by a class or a code: no status holds text of an error."""
    span.set_status(Status(StatusCode.ERROR, what))


@cache
def warn_once(doing: str, error: str) -> None:
    """Log the class of an error that telemetry has caught, once."""
    log.warning("telemetry: %s raised %s; calls are not affected (logged once)", doing, error)
