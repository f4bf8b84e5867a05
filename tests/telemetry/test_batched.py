"""Where spans are exported in batches they are made behind the call's back, and a flush finds them all the same."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.context import Context, get_current
from opentelemetry.sdk.trace import Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler, SamplingResult

import fastlane
from fastlane.telemetry import TelemetrySettings, _settings

MESSAGES: list[Any] = [{"role": "user", "content": "Name a river."}]
_tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


class Noting(Sampler):
    """Notes where it is asked, and by whom."""

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.tenants: list[str] = []

    def should_sample(self, *arguments: Any, **more: Any) -> SamplingResult:
        self.threads.append(threading.get_ident())
        self.tenants.append(_tenant.get())
        return ALWAYS_ON.should_sample(*arguments, **more)

    def get_description(self) -> str:
        return "notes"


@pytest.fixture
def batching() -> Iterator[tuple[TracerProvider, InMemorySpanExporter, Noting]]:
    exporter, sampler = InMemorySpanExporter(), Noting()
    provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=60_000))
    _settings.use(TelemetrySettings(tracer_provider=provider, level="phases"))
    yield provider, exporter, sampler
    _settings.use(None)
    provider.shutdown()


def call(arguments: dict[str, Any]) -> fastlane.CallRecord:
    with fastlane.OpenAI(**arguments) as client:
        for _ in client.chat.completions.create(model="m", messages=MESSAGES, stream=True):
            pass
        assert client.last_call is not None
        return client.last_call


def test_spans_are_made_in_another_thread_and_in_the_context_of_the_call(
    arguments: dict[str, Any], batching: tuple[TracerProvider, InMemorySpanExporter, Noting]
) -> None:
    provider, exporter, sampler = batching
    _tenant.set("tenant 7")
    tracer = provider.get_tracer("app")
    with tracer.start_as_current_span("request"):
        record = call(arguments)
    until = time.monotonic() + 20
    while len(sampler.threads) < 4 and time.monotonic() < until:
        time.sleep(0.01)
    assert provider.force_flush()
    spans = {span.name: span for span in exporter.get_finished_spans()}
    made, parent = spans["chat m"], spans["request"]
    assert parent.context is not None
    assert made.parent is not None
    assert made.parent.span_id == parent.context.span_id
    assert made.start_time == record.timeline.started_wall_ns
    assert set(sampler.tenants) == {"tenant 7"}
    assert sampler.threads[0] == threading.get_ident()
    assert threading.get_ident() not in sampler.threads[1:]
    assert "POST" in spans


def test_a_shutdown_exports_what_was_told_just_before(
    arguments: dict[str, Any], batching: tuple[TracerProvider, InMemorySpanExporter, Noting]
) -> None:
    provider, exporter, _ = batching
    call(arguments)
    provider.shutdown()
    assert "chat m" in [span.name for span in exporter.get_finished_spans()]


class Counting(SpanProcessor):
    def __init__(self) -> None:
        self.started: list[int] = []

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self.started.append(threading.get_ident())


@pytest.mark.parametrize("other", [SimpleSpanProcessor(InMemorySpanExporter()), Counting()], ids=["simple", "own"])
def test_a_processor_that_looks_at_spans_at_once_has_them_made_at_once(
    other: SpanProcessor, arguments: dict[str, Any], batching: tuple[TracerProvider, InMemorySpanExporter, Noting]
) -> None:
    provider, _, sampler = batching
    call(arguments)
    provider.force_flush()
    sampler.threads.clear()
    provider.add_span_processor(other)
    call(arguments)
    assert set(sampler.threads) == {threading.get_ident()}


def test_the_processor_in_front_is_put_there_once(
    arguments: dict[str, Any], batching: tuple[TracerProvider, InMemorySpanExporter, Noting]
) -> None:
    provider, exporter, _ = batching
    for _ in range(3):
        call(arguments)
    provider.add_span_processor(BatchSpanProcessor(InMemorySpanExporter(), schedule_delay_millis=60_000))
    call(arguments)
    processors = [type(one).__name__ for one in provider._active_span_processor._span_processors]
    assert processors == ["Ahead", "BatchSpanProcessor", "BatchSpanProcessor"]
    provider.force_flush()
    assert [span.name for span in exporter.get_finished_spans()].count("chat m") == 4


def test_an_application_s_context_is_as_it_was_after_a_call(
    arguments: dict[str, Any], batching: tuple[TracerProvider, InMemorySpanExporter, Noting]
) -> None:
    before = get_current()
    call(arguments)
    assert get_current() is before
