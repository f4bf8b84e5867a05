"""Whatever the caller's parts of OpenTelemetry do, calls go on, and spans end where they belong."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Sampler, SamplingResult

import fastlane
from fastlane.telemetry import TelemetrySettings, settings as telemetry_settings
from tests.telemetry.conftest import Listening
from tests.telemetry.otlp_collector import run
from tests.waiting import Form

MESSAGES: list[Any] = [{"role": "user", "content": "Name a river."}]
EXPORT = pytest.mark.parametrize("in_batches", [False, True], ids=["simple", "batch"])


def words(client: Any, **options: Any) -> int:
    """The number of events of a streamed answer."""
    stream = client.chat.completions.create(model="m", messages=MESSAGES, stream=True, **options)
    return sum(1 for _ in stream)


# What the application has put into OpenTelemetry


class Raising(Sampler, SpanProcessor, RandomIdGenerator):
    """Raises on every use."""

    def __init__(self, where: str, after: int = 0) -> None:
        self._where, self._left = where, after

    def _raise(self, where: str) -> None:
        if where == self._where:
            self._left -= 1
            if self._left < 0:
                raise LookupError("of the application's")

    def should_sample(self, *arguments: Any, **more: Any) -> SamplingResult:
        self._raise("sampler")
        raise AssertionError

    def get_description(self) -> str:
        return "raises"

    def on_start(self, *arguments: Any, **more: Any) -> None:
        self._raise("start")

    def on_end(self, span: ReadableSpan) -> None:
        self._raise("end")

    def generate_span_id(self) -> int:
        self._raise("ids")
        return super().generate_span_id()


@EXPORT
@pytest.mark.parametrize("where", ["sampler", "start", "end", "ids"])
def test_failing_tracer_provider_does_not_affect_calls(
    where: str, in_batches: bool, form: Form, arguments: dict[str, Any], listening: Listening
) -> None:
    options = {"sampler": {"sampler": Raising(where)}, "ids": {"ids": Raising(where)}}.get(where, {})
    captured = listening(in_batches=in_batches, level="phases", **options)
    if not options:
        captured.tracer_provider.add_span_processor(Raising(where))
    with form.make(fastlane, **arguments) as client:
        assert words(client) > 2
        assert client.chat.completions.create(model="m", messages=MESSAGES).choices
        assert len(client.calls) == 2
    captured.tracer_provider.force_flush()


@EXPORT
@pytest.mark.parametrize("after", range(1, 7))
def test_spans_above_a_failed_span_are_ended(
    after: int, in_batches: bool, arguments: dict[str, Any], listening: Listening
) -> None:
    with fastlane.OpenAI(**arguments) as client:
        captured = listening(ids=Raising("ids", after), in_batches=in_batches, level="phases")
        words(client)
    assert len(captured.spans) == after
    assert len(captured.named("chat")) == 1


class Nothing:
    """A provider of no kind that is known."""

    def get_tracer(self, *arguments: Any, **more: Any) -> Any:
        raise LookupError("no tracer")

    def get_meter(self, *arguments: Any, **more: Any) -> Any:
        raise LookupError("no meter")


@pytest.mark.parametrize("what", ["tracer_provider", "meter_provider"])
def test_call_is_not_affected_by_a_provider_that_gives_nothing(
    what: str, arguments: dict[str, Any], listening: Listening
) -> None:
    listening()
    settings: dict[str, Any] = {what: Nothing()}
    telemetry_settings.use(TelemetrySettings(**settings))
    with fastlane.OpenAI(**arguments) as client, fastlane.user_action("ask"):
        assert words(client) > 2


CONNECT = """
import os, sys
import fastlane
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

def ask():
    answer = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
    print(answer.object)
"""


def test_missing_tracer_provider_variable_does_not_affect_calls(arguments: dict[str, Any]) -> None:
    program = """
client = fastlane.OpenAI(api_key="k", base_url=sys.argv[1])
with fastlane.user_action("ask"):
    ask()
"""
    printed = run(CONNECT + program, {"OTEL_PYTHON_TRACER_PROVIDER": "no_such"}, arguments["base_url"])
    assert "chat.completion" in printed.splitlines()


def test_no_call_pays_for_the_start_of_telemetry(arguments: dict[str, Any]) -> None:
    program = """
trace.set_tracer_provider(TracerProvider())
client = fastlane.OpenAI(api_key="k", base_url=sys.argv[1])
before = {name for name in sys.modules if "telemetry" in name}
ask()
print(sorted({name for name in sys.modules if "telemetry" in name} - before))
"""
    assert run(CONNECT + program, {}, arguments["base_url"]) == "chat.completion\n[]\n"


# The tree


def test_action_left_in_another_task_contains_no_later_calls(
    arguments: dict[str, Any], listening: Listening, caplog: pytest.LogCaptureFixture
) -> None:
    captured = listening()

    async def answers(client: Any) -> Any:
        async with fastlane.user_action("answer"):
            yield await client.chat.completions.create(model="m", messages=MESSAGES)
            yield "more"

    async def work() -> list[tuple[str, ...]]:
        async with fastlane.AsyncOpenAI(**arguments) as client:
            for _ in range(3):
                left = answers(client)
                await anext(left)
                await asyncio.create_task(left.aclose())
            await client.chat.completions.create(model="m", messages=MESSAGES)
            return [record.user_actions for record in client.calls]

    assert asyncio.run(work()) == [*[("answer",)] * 3, ()]
    assert [span.parent for span in captured.named("invoke_workflow")] == [None] * 3
    roots = [span.context.span_id for span in captured.named("invoke_workflow") if span.context]
    assert [span.parent.span_id for span in captured.named("chat")[:3] if span.parent] == roots
    assert [line for line in caplog.records if not line.name.startswith("opentelemetry.sdk.metrics")] == []


def test_unencodable_or_long_names_are_shortened(arguments: dict[str, Any], listening: Listening) -> None:
    captured = listening(in_batches=True)
    with fastlane.OpenAI(**arguments) as client, fastlane.user_action("half \ud83d of it"):
        client.chat.completions.create(model="m" * 10_000, messages=MESSAGES)
        with pytest.raises(UnicodeEncodeError):
            client.chat.completions.create(model="half \ud83d of it", messages=MESSAGES)
    assert [span.name for span in captured.spans] == [
        "invoke_workflow half ? of it",
        f"chat {'m' * 256}",
        "chat half ? of it",
    ]
    encode_spans(captured.spans)
    durations = captured.points()["gen_ai.client.operation.duration"]
    assert {point.attributes["gen_ai.request.model"] for point in durations} == {"_OTHER"}
