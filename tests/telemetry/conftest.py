"""What the tests of telemetry share: providers of OpenTelemetry of their own, and the spans that came out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler

from fastlane.telemetry import TelemetrySettings, metrics, settings as telemetry_settings
from fastlane.telemetry.metrics import EndedAction, EndedCall, Meters as Instruments, meters_of, record_waiting
from fastlane.telemetry.settings import providers


def seconds(span: ReadableSpan) -> float:
    """How long a span took."""
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.end_time - span.start_time) / 1e9


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def instruments(settings: TelemetrySettings) -> Instruments:
    """What telemetry records metrics with, once it has these settings."""
    telemetry_settings.use(settings)
    found = meters_of(providers())
    assert found is not None
    return found


@dataclass
class CapturedTelemetry:
    """What OpenTelemetry got, read back."""

    spans_out: InMemorySpanExporter
    reader: InMemoryMetricReader
    tracer_provider: TracerProvider
    meter_provider: MeterProvider
    settings: TelemetrySettings = field(default_factory=TelemetrySettings)
    recording: Instruments | None = None

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans that have ended, in the order of their beginning."""
        self.tracer_provider.force_flush()
        return sorted(self.spans_out.get_finished_spans(), key=lambda span: (span.start_time, span.end_time))

    def named(self, name: str) -> list[ReadableSpan]:
        """The spans whose name begins with `name`."""
        return [span for span in self.spans if span.name == name or span.name.startswith(f"{name} ")]

    def the(self, name: str) -> ReadableSpan:
        """The only span of a name."""
        (span,) = self.named(name)
        return span

    def below(self, span: ReadableSpan) -> list[str]:
        """The names of a span's children, in the order of their beginning."""
        return [child.name for child in self.children(span)]

    def children(self, span: ReadableSpan) -> list[ReadableSpan]:
        """A span's children, in the order of their beginning."""
        assert span.context is not None
        return [child for child in self.spans if child.parent and child.parent.span_id == span.context.span_id]

    def points(self) -> dict[str, list[Any]]:
        """Every data point of the metrics, by the metric's name."""
        data = self.reader.get_metrics_data()
        resources = () if data is None else data.resource_metrics
        metrics = [metric for one in resources for scope in one.scope_metrics for metric in scope.metrics]
        return {metric.name: list(metric.data.data_points) for metric in metrics}

    def tell(self, *events: EndedCall | EndedAction) -> None:
        """Record what is made by hand."""
        self.recording = self.recording or instruments(self.settings)
        for each in events:
            self.recording.add(each)

    def values(self, name: str) -> dict[tuple[Any, ...], float]:
        """The sum of each data point of a metric by the values of its labels that are not those of every call."""
        usual = {"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.response.model"}
        usual |= {"server.address", "server.port"}
        found = {}
        for point in self.points().get(name, ()):
            labels = {name: value for name, value in point.attributes.items() if name not in usual}
            key = tuple(value for _, value in sorted(labels.items()))
            found[key] = point.sum if hasattr(point, "sum") else point.value
        return found

    def clear(self) -> None:
        """Forget the spans."""
        self.spans_out.clear()


Listening = Callable[..., CapturedTelemetry]


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listening]:
    """Have telemetry tell a provider of the test's own: `listening(level="phases")`, which may export in batches."""
    made: list[CapturedTelemetry] = []
    monkeypatch.setattr(metrics, "_LOCK_TIMEOUT_S", 60.0)  # readers wait, however slow the thread is that records

    def listen(
        sampler: Sampler = ALWAYS_ON,
        *,
        ids: IdGenerator | None = None,
        in_batches: bool = False,
        readers: Sequence[Any] = (),
        **settings: Any,
    ) -> CapturedTelemetry:
        spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
        tracing = TracerProvider(sampler=sampler, id_generator=ids, shutdown_on_exit=False)
        tracing.add_span_processor(
            BatchSpanProcessor(spans, schedule_delay_millis=60_000) if in_batches else SimpleSpanProcessor(spans)
        )
        captured = CapturedTelemetry(spans, reader, tracing, MeterProvider([reader, *readers], shutdown_on_exit=False))
        captured.settings = TelemetrySettings(
            tracer_provider=tracing,
            meter_provider=captured.meter_provider,
            **settings,
        )
        telemetry_settings.use(captured.settings)
        made.append(captured)
        return captured

    yield listen
    telemetry_settings.use(None)
    record_waiting()  # or the next test logs a provider that has been shut down
    for captured in made:
        captured.tracer_provider.shutdown()
        captured.meter_provider.shutdown()


@pytest.fixture
def meters(listening: Listening) -> CapturedTelemetry:
    """Metrics are recorded from the beginning: while a reader collects, no instrument can be made."""
    captured = listening()
    captured.tell()
    return captured
