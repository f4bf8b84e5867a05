"""The telemetry of fastlane at its levels, and three other instrumentations, each as a side of the same calls."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import getattr_static
from typing import Any

import openai
from openai.resources.chat.completions import Completions
from opentelemetry.context import get_current
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON
from opentelemetry.trace import SpanKind

from benchmarks._telemetry_blocks import Side
from fastlane._clock import wall_ns
from fastlane.telemetry import settings as telemetry_settings
from fastlane.telemetry.settings import TelemetrySettings

OTHERS = {
    "genai_openai": "opentelemetry.instrumentation.genai.openai",
    "openllmetry": "opentelemetry.instrumentation.openai",
    "openinference": "openinference.instrumentation.openai",
}
"""The official instrumentation, OpenLLMetry's and OpenInference's: the modules that hold an `OpenAIInstrumentor`."""

_AT_THE_BEGINNING = {
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.request.stream",
    "server.address",
    "server.port",
}
"""What a sampler has to know."""

# What instrumentations put their own in the place of.
_PATCHED: tuple[tuple[type, str], ...] = ((Completions, "create"), (openai.OpenAI, "request"))


class Discarding(SpanExporter):
    """Counts spans, and lets go of all but the last."""

    def __init__(self) -> None:
        self.spans = 0
        self.last: ReadableSpan | None = None

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Count a batch, and read it as an exporter does that encodes it."""
        self.spans += sum(1 for span in spans if dict(span.attributes or {}))
        self.last = spans[-1]
        return SpanExportResult.SUCCESS


class _DiscardingMetrics(MetricExporter):
    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        pass


@contextmanager
def tracing(*, sampled: bool = True) -> Iterator[tuple[TracerProvider, Discarding]]:
    """Make a provider of tracers as an application would, whose batches go nowhere."""
    exporter = Discarding()
    provider = TracerProvider(sampler=ALWAYS_ON if sampled else ALWAYS_OFF)
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=65_536))
    try:
        yield provider, exporter
    finally:
        provider.shutdown()


@contextmanager
def metering() -> Iterator[MeterProvider]:
    """Make a provider of meters as an application would, whose figures go nowhere."""
    reader = PeriodicExportingMetricReader(_DiscardingMetrics(), export_interval_millis=3_600_000)
    provider = MeterProvider(metric_readers=[reader])
    try:
        yield provider
    finally:
        provider.shutdown()


def _nothing() -> None:
    pass


def own_side(client: openai.OpenAI, settings: TelemetrySettings) -> Side:
    """Make a side whose calls are told as `settings` say."""
    flushes = [
        provider.force_flush for provider in (settings.tracer_provider, settings.meter_provider) if provider is not None
    ]

    def flush() -> None:
        for one in flushes:
            one()

    return Side(client=client, begin=lambda: telemetry_settings.use(settings), flush=flush)


def sdk_side(client: openai.OpenAI, provider: TracerProvider, like: ReadableSpan) -> Side:
    """Make a side where nothing but a span of the SDK's own is around each call, with the attributes of one of ours."""
    tracer, told = provider.get_tracer("benchmark"), dict(like.attributes or {})
    begun = {name: told.pop(name) for name in list(told) if name in _AT_THE_BEGINNING}

    def around(call: Callable[[], None]) -> None:
        context, start_ns = get_current(), wall_ns()
        span = tracer.start_span(
            like.name,
            context=context,
            kind=SpanKind.CLIENT,
            attributes=begun,
            start_time=start_ns,
            record_exception=False,
            set_status_on_exception=False,
        )
        call()
        span.set_attributes(told)
        span.end(wall_ns())

    off = TelemetrySettings(level="off")
    return Side(client, lambda: telemetry_settings.use(off), provider.force_flush, around)


@contextmanager
def instrumented(name: str) -> Iterator[Callable[[openai.OpenAI], tuple[Side, Side]]]:
    """Have an instrumentation tell of calls; what is given makes a side where nobody tells, and one where it does."""
    instrumentor = importlib.import_module(OTHERS[name]).OpenAIInstrumentor()
    bare = [getattr_static(owner, attribute) for owner, attribute in _PATCHED]
    with tracing() as (tracer_provider, exporter), metering() as meter_provider:
        instrumentor.instrument(tracer_provider=tracer_provider, meter_provider=meter_provider)
        patched = [getattr_static(owner, attribute) for owner, attribute in _PATCHED]
        if all(one is other for one, other in zip(patched, bare, strict=True)):
            raise RuntimeError(f"{OTHERS[name]} instruments something else than it did: nothing would be measured")

        def use(methods: list[Any]) -> Callable[[], None]:
            def begin() -> None:
                for (owner, attribute), method in zip(_PATCHED, methods, strict=True):
                    setattr(owner, attribute, method)

            return begin

        def flush() -> None:
            tracer_provider.force_flush()
            meter_provider.force_flush()

        yield lambda client: (Side(client, use(bare), _nothing), Side(client, use(patched), flush))
        if not exporter.spans:
            raise RuntimeError(f"{OTHERS[name]} has exported no span: nothing was measured")
