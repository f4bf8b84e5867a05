"""A program for tests: the messages that the official instrumentation writes of calls, and those that fastlane writes.

Instrumentations change openai for the whole process. Its argument is a base URL; it writes both as lines of JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "span_only"

import openai
from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import fastlane
from fastlane.telemetry import TelemetrySettings, settings as telemetry_settings

IMAGE = "data:image/png;base64,iVBORw0KGgo="
PARAMETERS: Any = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER: Any = {"name": "weather", "description": "Of a city.", "parameters": PARAMETERS}
TOOLS: list[Any] = [{"type": "function", "function": WEATHER}]
SERVED: list[Any] = [{"type": "function", **WEATHER}, {"type": "web_search"}]
QUESTION: list[Any] = [{"role": "user", "content": "And where is it warm?"}]
SEVERAL: list[Any] = [
    {"type": "text", "text": "What are these?"},
    {"type": "image_url", "image_url": {"url": IMAGE}},
    {"type": "image_url", "image_url": {"url": "https://example.invalid/river.png"}},
    {"type": "file", "file": {"file_id": "file-1", "filename": "a.pdf"}},
    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
]
CALLED: Any = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}
CONVERSATION: list[Any] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "name": "ann", "content": SEVERAL},
    {"role": "assistant", "content": None, "tool_calls": [CALLED]},
    {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    {"role": "assistant", "content": None, "refusal": "I will not say."},
    *QUESTION,
]
ITEMS: list[Any] = [
    {"role": "user", "content": [{"type": "input_text", "text": "Hi"}, {"type": "input_image", "image_url": IMAGE}]},
    {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
    {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
]


def left(client: Any) -> None:
    with client.chat.completions.create(model="m", messages=QUESTION, stream=True) as stream:
        events = iter(stream)
        next(events)
        next(events)


def refused(client: Any) -> None:
    with suppress(openai.BadRequestError):
        fault = {"x-emulator-fault": "status=400"}
        client.chat.completions.create(model="m", messages=QUESTION, extra_headers=fault)


WAYS: dict[str, Callable[[Any], object]] = {
    "conversation": lambda c: c.chat.completions.create(model="m", messages=CONVERSATION, tools=TOOLS),
    "stream": lambda c: [*c.chat.completions.create(model="m", messages=CONVERSATION[:1] + QUESTION, stream=True)],
    "choices": lambda c: c.chat.completions.create(model="m", messages=QUESTION, n=2, max_tokens=3),
    "choices of a stream": lambda c: [
        *c.chat.completions.create(model="m", messages=QUESTION, n=2, max_tokens=3, stream=True)
    ],
    "tools": lambda c: c.chat.completions.create(model="m", messages=QUESTION, tools=TOOLS, tool_choice="required"),
    "tools of a stream": lambda c: [
        *c.chat.completions.create(
            model="m", messages=QUESTION, tools=TOOLS, tool_choice="required", stream=True
        )
    ],
    "raw": lambda c: c.chat.completions.with_raw_response.create(model="m", messages=QUESTION),
    "left": left,
    "refused": refused,
    "response": lambda c: c.responses.create(model="m", input=ITEMS, instructions="Be brief.", tools=SERVED),
    "response with tools": lambda c: c.responses.create(
        model="m", input="Hi", tools=SERVED[:1], tool_choice="required"
    ),
    "response of a stream": lambda c: [*c.responses.create(model="m", input="Hi", stream=True)],
}  # fmt: skip


def without_nothing(value: Any) -> Any:
    """Without what is null, which the official one writes for all that is not given; and calls have a number."""
    if isinstance(value, dict):
        if str(value.get("id")).startswith("call_0"):
            value["id"] = "call"
        return {name: without_nothing(member) for name, member in value.items() if member is not None}
    return [without_nothing(member) for member in value] if isinstance(value, list) else value


def told_of(client: Any, spans: InMemorySpanExporter) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for way, call in WAYS.items():
        spans.clear()
        call(client)
        (span,) = spans.get_finished_spans()
        found = dict(span.attributes or {})
        names = (
            "gen_ai.system_instructions",
            "gen_ai.input.messages",
            "gen_ai.output.messages",
            "gen_ai.tool.definitions",
        )
        told[way] = {name: without_nothing(json.loads(str(found[name]))) for name in names if name in found}
    return told


def main(base_url: str) -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    instrumentor = OpenAIInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    seed = {"x-emulator-draw": "7"}
    with openai.OpenAI(api_key="k", base_url=base_url, max_retries=0, default_headers=seed) as stock:
        sys.stdout.write(f"{json.dumps(told_of(stock, spans))}\n")
    instrumentor.uninstrument()
    telemetry_settings.use(TelemetrySettings(tracer_provider=provider, capture="span_only"))
    with fastlane.OpenAI(api_key="k", base_url=base_url, max_retries=0, default_headers=seed) as ours:
        sys.stdout.write(f"{json.dumps(told_of(ours, spans))}\n")


if __name__ == "__main__":
    main(sys.argv[1])
