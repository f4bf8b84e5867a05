"""Whatever the caller's parts of OpenTelemetry do, calls go on, and spans end where they belong."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import (
    ReadableSpan,
    SpanProcessor,
    TracerProvider,
)
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Sampler, SamplingResult

import fastlane
from fastlane.engine.user_action import current_user_action
from fastlane.telemetry import TelemetrySettings, settings as telemetry_settings
from fastlane.telemetry.metrics import LabelValues
from tests.attempts.scripted import (
    Upstream,
    two_upstreams,
)

MESSAGES: list[Any] = [{"role": "user", "content": "Name a river."}]
EXPORT_MODES = ("simple", "batch")


class Telling:
    """A provider whose spans are exported at once, or in batches."""

    def __init__(self, export_mode: str, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False, **options)
        if export_mode == "batch":
            self.provider.add_span_processor(BatchSpanProcessor(self.exporter, schedule_delay_millis=60_000))
        else:
            self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def spans(self) -> list[ReadableSpan]:
        self.provider.force_flush()
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans() if span.name.split(" ")[0] == name]


Listen = Callable[..., Telling]


@pytest.fixture
def telling() -> Iterator[Listen]:
    made: list[Telling] = []

    def listen(
        export_mode: str, *, level: Any = "phases", settings: dict[str, Any] | None = None, **options: Any
    ) -> Telling:
        captured = Telling(export_mode, **options)
        made.append(captured)
        telemetry_settings.use(TelemetrySettings(tracer_provider=captured.provider, level=level, **(settings or {})))
        return captured

    yield listen
    telemetry_settings.use(None)
    for captured in made:
        captured.provider.shutdown()


@pytest.fixture
def upstreams(trusting_peers: None) -> Iterator[tuple[Upstream, Upstream]]:
    with two_upstreams() as both:
        yield both


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


@pytest.mark.parametrize("export_mode", EXPORT_MODES)
@pytest.mark.parametrize("where", ["sampler", "start", "end", "ids"])
def test_failing_tracer_provider_does_not_affect_calls(
    where: str, export_mode: str, arguments: dict[str, Any], telling: Listen
) -> None:
    options = {"sampler": {"sampler": Raising(where)}, "ids": {"id_generator": Raising(where)}}.get(where, {})
    captured = telling(export_mode, **options)
    if not options:
        captured.provider.add_span_processor(Raising(where))
    with fastlane.OpenAI(**arguments) as client:
        assert words(client) > 2
        assert client.chat.completions.create(model="m", messages=MESSAGES).choices
        assert len(client.calls) == 2

    async def ask() -> int:
        async with fastlane.AsyncOpenAI(**arguments) as client:
            stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            return len([event async for event in stream])

    assert asyncio.run(ask()) > 2
    captured.provider.force_flush()


@pytest.mark.parametrize("export_mode", EXPORT_MODES)
@pytest.mark.parametrize("after", range(1, 7))
def test_spans_above_a_failed_span_are_ended(
    after: int, export_mode: str, arguments: dict[str, Any], telling: Listen
) -> None:
    with fastlane.OpenAI(**arguments) as client:
        captured = telling(export_mode, id_generator=Raising("ids", after))
        words(client)
    assert len(captured.spans()) == after
    assert len(captured.named("chat")) == 1


class Nothing:
    """A provider of no kind that is known."""

    def get_tracer(self, *arguments: Any, **more: Any) -> Any:
        raise LookupError("no tracer")

    def get_meter(self, *arguments: Any, **more: Any) -> Any:
        raise LookupError("no meter")


@pytest.mark.parametrize("what", ["tracer_provider", "meter_provider"])
def test_call_is_not_affected_by_a_provider_that_gives_nothing(
    what: str, arguments: dict[str, Any], telling: Listen
) -> None:
    telling("simple")
    settings: dict[str, Any] = {what: Nothing()}
    telemetry_settings.use(TelemetrySettings(**settings))
    with fastlane.OpenAI(**arguments) as client, fastlane.user_action("ask"):
        assert words(client) > 2


def run(program: str, base_url: str, **environment: str) -> list[str]:
    """What a program of its own prints, where `client` and `ask()` are there."""
    begun = (
        "import sys, os, fastlane\n"
        "from opentelemetry import trace\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "def ask():\n"
        "    answer = client.chat.completions.create(model='m', messages=[{'role': 'user', 'content': 'x'}])\n"
        "    print(answer.object)\n"
        "def connect():\n"
        "    return fastlane.OpenAI(api_key='k', base_url=os.environ['BASE_URL'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", begun + program],
        env={**os.environ, "BASE_URL": base_url, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_missing_tracer_provider_variable_does_not_affect_calls(arguments: dict[str, Any]) -> None:
    program = "client = connect()\nwith fastlane.user_action('ask'):\n    ask()"
    assert run(program, arguments["base_url"], OTEL_PYTHON_TRACER_PROVIDER="no_such") == ["chat.completion"]


def test_no_call_pays_for_the_start_of_telemetry(arguments: dict[str, Any]) -> None:
    program = (
        "trace.set_tracer_provider(TracerProvider())\n"
        "client = connect()\n"
        "before = {name for name in sys.modules if 'telemetry' in name}\n"
        "ask()\n"
        "print(*sorted({name for name in sys.modules if 'telemetry' in name} - before))\n"
    )
    assert run(program, arguments["base_url"]) == ["chat.completion"]


# The tree


def test_action_left_in_another_task_contains_no_later_calls(arguments: dict[str, Any], telling: Listen) -> None:
    captured = telling("simple", level="call")

    async def answers(client: Any) -> Any:
        with fastlane.user_action("answer"):
            yield await client.chat.completions.create(model="m", messages=MESSAGES)
            yield "more"

    async def work() -> list[tuple[str, ...]]:
        async with fastlane.AsyncOpenAI(**arguments) as client:
            for _ in range(3):
                left = answers(client)
                await anext(left)
                await asyncio.create_task(left.aclose())
            assert current_user_action() is None
            return [record.user_actions for record in client.calls]

    assert asyncio.run(work()) == [("answer",)] * 3
    assert [span.parent for span in captured.named("invoke_workflow")] == [None] * 3
    roots = [span.context.span_id for span in captured.named("invoke_workflow") if span.context]
    assert [span.parent.span_id for span in captured.named("chat") if span.parent] == roots


def test_unencodable_or_long_names_are_shortened(arguments: dict[str, Any], telling: Listen) -> None:
    captured = telling("batch", level="call")
    with fastlane.OpenAI(**arguments) as client, fastlane.user_action("half \ud83d of it"):
        client.chat.completions.create(model="m" * 10_000, messages=MESSAGES)
        with pytest.raises(UnicodeEncodeError):
            client.chat.completions.create(model="half \ud83d of it", messages=MESSAGES)
    assert [span.name for span in captured.spans()] == [
        "invoke_workflow half ? of it",
        f"chat {'m' * 256}",
        "chat half ? of it",
    ]
    encode_spans(captured.spans())
    assert LabelValues().limited("model", "half \ud83d") == "_OTHER"


@pytest.mark.parametrize("export_mode", EXPORT_MODES)
def test_abandoned_stream_span_ends_at_garbage_collection(
    export_mode: str, arguments: dict[str, Any], telling: Listen
) -> None:
    captured = telling(export_mode)
    client = fastlane.OpenAI(**arguments)
    stream: Any = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
    del stream
    gc.collect()
    assert eventually(lambda: len(captured.named("chat")) == 1)
    assert len(client.calls) == 1
    assert len(captured.named("chat")) == 1
    client.close()


def eventually(holds: Callable[[], bool]) -> bool:
    """Whether something comes to hold within a time that is long for it."""
    until = time.monotonic() + 20
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True
