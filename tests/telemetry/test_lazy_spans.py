"""Spans whose attributes the exporting thread computes are exported as any others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.context import Context, get_current
from opentelemetry.sdk.trace import Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler, SamplingResult
from opentelemetry.trace import TraceState

import fastlane
from fastlane.telemetry import TelemetrySettings, settings as telemetry_settings

MESSAGES: list[Any] = [{"role": "user", "content": "Name a river."}]


class Marking(Sampler):
    """Adds to each span what a sampler may add."""

    def should_sample(self, *arguments: Any, **more: Any) -> SamplingResult:
        found = ALWAYS_ON.should_sample(*arguments, **more)
        return SamplingResult(found.decision, {**found.attributes, "sampler": "marking"}, TraceState([("a", "1")]))

    def get_description(self) -> str:
        return "marks"


@pytest.fixture
def batching() -> Iterator[tuple[TracerProvider, InMemorySpanExporter]]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=Marking(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=60_000))
    telemetry_settings.use(TelemetrySettings(tracer_provider=provider))
    yield provider, exporter
    telemetry_settings.use(None)
    provider.shutdown()


Batching = tuple[TracerProvider, InMemorySpanExporter]


def call(arguments: dict[str, Any]) -> fastlane.CallRecord:
    with fastlane.OpenAI(**arguments) as client:
        for _ in client.chat.completions.create(model="m", messages=MESSAGES, stream=True, temperature=0.5):
            pass
        assert client.last_call is not None
        return client.last_call


def test_lazy_span_has_parent_sampling_and_attributes(arguments: dict[str, Any], batching: Batching) -> None:
    provider, exporter = batching
    before = get_current()
    with provider.get_tracer("app").start_as_current_span("request"):
        record = call(arguments)
    assert get_current() is before
    assert provider.force_flush()
    spans = {span.name: span for span in exporter.get_finished_spans()}
    made, parent = spans["chat m"], spans["request"]
    assert parent.context is not None
    assert made.context is not None
    assert made.parent == parent.context
    assert made.context.trace_id == parent.context.trace_id
    assert made.context.trace_state.get("a") == "1"
    assert made.start_time == record.timeline.started_wall_ns
    assert made.resource == provider.resource
    assert made.instrumentation_scope is not None
    assert (made.instrumentation_scope.name, made.instrumentation_scope.version) == ("fastlane", fastlane.__version__)
    attributes = dict(made.attributes or {})
    assert attributes["sampler"] == "marking"
    assert attributes["gen_ai.request.temperature"] == 0.5
    assert attributes["fastlane.time_to_first_token"] == record.time_to_first_token_s
    assert '"gen_ai.request.temperature": 0.5' in made.to_json()


def test_shutdown_exports_the_call_that_ended_just_before(arguments: dict[str, Any], batching: Batching) -> None:
    provider, exporter = batching
    call(arguments)
    provider.shutdown()
    assert "chat m" in [span.name for span in exporter.get_finished_spans()]


def test_attribute_limits_of_the_sdk_hold(
    arguments: dict[str, Any], batching: Batching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "5")
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    telemetry_settings.use(TelemetrySettings(tracer_provider=provider))
    call(arguments)
    provider.shutdown()
    (span,) = exporter.get_finished_spans()
    assert len(span.attributes or {}) == 5


class Starting(SpanProcessor):
    def __init__(self) -> None:
        self.started: list[str] = []

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self.started.append(span.name)
        span.set_attribute("tenant", 7)


def test_processor_that_changes_spans_at_their_start_gets_them(arguments: dict[str, Any], batching: Batching) -> None:
    provider, exporter = batching
    call(arguments)
    starting = Starting()
    provider.add_span_processor(starting)
    call(arguments)
    provider.force_flush()
    assert starting.started == ["chat m"]
    assert [(span.attributes or {}).get("tenant") for span in exporter.get_finished_spans()] == [None, 7]


def test_span_of_a_user_action_can_be_changed_inside(arguments: dict[str, Any], batching: Batching) -> None:
    from opentelemetry.trace import get_current_span

    provider, exporter = batching
    with fastlane.user_action("answer"):
        get_current_span().set_attribute("ticket", 7)
        get_current_span().add_event("read")
    provider.force_flush()
    (span,) = exporter.get_finished_spans()
    assert (span.attributes or {})["ticket"] == 7
    assert [event.name for event in span.events] == ["read"]
