"""Spans whose attributes the exporting thread computes are exported as any others."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.context import Context, get_current
from opentelemetry.sdk.trace import Span, SpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler, SamplingResult
from opentelemetry.trace import TraceState, get_current_span

import fastlane
from tests.telemetry.conftest import CapturedTelemetry, Listening, attributes_of

MESSAGES: list[Any] = [{"role": "user", "content": "Name a river."}]


class Marking(Sampler):
    """Adds to each span what a sampler may add."""

    def should_sample(self, *arguments: Any, **more: Any) -> SamplingResult:
        found = ALWAYS_ON.should_sample(*arguments, **more)
        return SamplingResult(found.decision, {**found.attributes, "sampler": "marking"}, TraceState([("a", "1")]))

    def get_description(self) -> str:
        return "marks"


@pytest.fixture
def batching(listening: Listening) -> CapturedTelemetry:
    return listening(Marking(), in_batches=True)


def call(arguments: dict[str, Any]) -> fastlane.CallRecord:
    with fastlane.OpenAI(**arguments) as client:
        for _ in client.chat.completions.create(model="m", messages=MESSAGES, stream=True, temperature=0.5):
            pass
        assert client.last_call is not None
        return client.last_call


def test_lazy_span_has_parent_sampling_and_attributes(arguments: dict[str, Any], batching: CapturedTelemetry) -> None:
    before = get_current()
    with batching.tracer_provider.get_tracer("app").start_as_current_span("request"):
        record = call(arguments)
    assert get_current() is before
    made, parent = batching.the("chat"), batching.the("request")
    assert parent.context is not None
    assert made.context is not None
    assert made.parent == parent.context
    assert made.context.trace_id == parent.context.trace_id
    assert made.context.trace_state.get("a") == "1"
    assert made.start_time == record.timeline.started_wall_ns
    assert made.resource == batching.tracer_provider.resource
    assert made.instrumentation_scope is not None
    assert (made.instrumentation_scope.name, made.instrumentation_scope.version) == ("fastlane", fastlane.__version__)
    attributes = attributes_of(made)
    assert attributes["sampler"] == "marking"
    assert attributes["gen_ai.request.temperature"] == 0.5
    assert attributes["fastlane.time_to_first_token"] == record.time_to_first_token_s
    assert '"gen_ai.request.temperature": 0.5' in made.to_json()


def test_shutdown_exports_the_call_that_ended_just_before(
    arguments: dict[str, Any], listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its span keeps the SDK's limit of attributes."""
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "5")
    captured = listening(in_batches=True)
    call(arguments)
    captured.tracer_provider.shutdown()
    (span,) = captured.spans_out.get_finished_spans()
    assert span.name == "chat m"
    assert len(attributes_of(span)) == 5


class Starting(SpanProcessor):
    def __init__(self) -> None:
        self.started: list[str] = []

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self.started.append(span.name)
        span.set_attribute("tenant", 7)


def test_processor_that_changes_spans_at_their_start_gets_them(
    arguments: dict[str, Any], batching: CapturedTelemetry
) -> None:
    call(arguments)
    starting = Starting()
    batching.tracer_provider.add_span_processor(starting)
    call(arguments)
    assert starting.started == ["chat m"]
    assert [attributes_of(span).get("tenant") for span in batching.spans] == [None, 7]


def test_span_of_a_user_action_can_be_changed_inside(batching: CapturedTelemetry) -> None:
    with fastlane.user_action("answer"):
        get_current_span().set_attribute("ticket", 7)
        get_current_span().add_event("read")
    (span,) = batching.spans
    assert attributes_of(span)["ticket"] == 7
    assert [event.name for event in span.events] == ["read"]
