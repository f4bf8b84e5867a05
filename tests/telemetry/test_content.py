"""Prompts and answers have the conventions' form where they are asked for, as far as the call has come."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessage
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import fastlane
from fastlane.emulator import Emulator
from fastlane.telemetry import settings as telemetry_settings
from fastlane.telemetry.content import MOST_INLINE_CHARACTERS, Content
from tests.attempts.scripted import (
    EVENTS,
    KINDS,
    Asked,
    Upstream,
    break_off_after,
    chunk,
    refuse,
    routing,
    two_upstreams,
)
from tests.call_peer import CallPeer, Reply
from tests.telemetry.conftest import Listening, Told

INPUT, OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
TOOL = {"type": "function", "function": {"name": "weather", "description": "Of a city.", "parameters": {}}}


def said(told: Told, name: str = OUTPUT) -> Any:
    """What the last call's span says under a name."""
    value = dict(told.named("chat")[-1].attributes or {}).get(name)
    return None if value is None else json.loads(str(value))


def text(content: str) -> dict[str, str]:
    return {"type": "text", "content": content}


def of(body: dict[str, Any], endpoint: str = "/chat/completions") -> Any:
    """The messages of a request's body."""
    return Content(endpoint, body).structured().get(INPUT)


def test_messages_are_what_the_official_instrumentation_writes(provider: Emulator) -> None:
    program = [sys.executable, "-m", "tests.telemetry.compared", provider.base_url]
    ran = subprocess.run(program, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    official, ours = (json.loads(line) for line in ran.stdout.splitlines())
    assert list(official) == list(ours)
    for way, told in official.items():
        assert ours[way] == told, way


# Prompts


def test_files_and_sounds_are_parts_of_their_own_kind() -> None:
    image = "data:image/png;base64,iVBORw0KGgo="
    (message,) = of(
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        "Look:",
                        {"type": "image_url", "image_url": {"url": image}},
                        {"type": "input_image", "file_id": "file-1"},
                        {"type": "file", "file": {"filename": "a.pdf", "file_data": "AAAA"}},
                        {"type": "input_file", "file_url": "https://x.invalid/a.pdf"},
                        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}},
                        {"type": "hologram", "data": "unknown to anybody"},
                    ],
                }
            ]
        }
    )
    assert message["parts"] == [
        text("Look:"),
        {"type": "blob", "mime_type": "image/png", "modality": "image", "content": "iVBORw0KGgo="},
        {"type": "file", "mime_type": None, "modality": "image", "file_id": "file-1"},
        {"type": "blob", "mime_type": "application/pdf", "modality": "document", "content": "AAAA"},
        {"type": "uri", "mime_type": None, "modality": "document", "uri": "https://x.invalid/a.pdf"},
        {"type": "blob", "mime_type": "audio/mpeg", "modality": "audio", "content": "AAAA"},
        {"type": "hologram"},
    ]


def test_of_a_large_file_its_size_is_told_and_a_long_text_is_told_whole() -> None:
    data = "A" * (MOST_INLINE_CHARACTERS + 1)
    url, long = f"data:image/png;base64,{data}", "river " * 100_000
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": long}]
    (message,) = of({"messages": [{"role": "user", "content": content}]})
    image, words = message["parts"]
    assert (image["content"], image["omitted_characters"]) == ("", len(data))
    assert words == text(long)


def test_a_message_of_the_answer_before_may_be_given_as_it_came() -> None:
    before = ChatCompletionMessage(role="assistant", content="Rhine", refusal=None)
    assert of({"messages": [before]}) == [{"role": "assistant", "parts": [text("Rhine")]}]


@pytest.mark.parametrize(
    "body",
    [
        {"messages": 3},
        {"messages": [3, None, ["x"]]},
        {"messages": [{"role": 3, "content": 4, "tool_calls": 5}]},
        {"messages": [{"role": "user", "content": [None, 3, {"type": ["image_url"]}, {"type": "input_audio"}]}]},
        {"messages": [{"role": "assistant", "tool_calls": [None, 3, {"function": 4}, {}]}]},
        {"messages": [{"role": "user", "content": object()}], "tools": {"a": 1}},
        {"messages": [{"role": "user", "content": float("nan"), "name": 10**400}], "tools": [None, {"type": None}]},
        {"input": [{"type": "reasoning", "summary": [3]}, {"type": ["x"]}, {"type": "web_search_call"}]},
        {"prompt": [[1, 2], [3]], "input": object()},
    ],
)
@pytest.mark.parametrize("endpoint", ["/chat/completions", "/responses", "/completions"])
def test_no_body_is_too_odd_to_be_told(endpoint: str, body: dict[str, Any]) -> None:
    told = Content(endpoint, body).attributes()
    assert all(json.loads(value, parse_constant=pytest.fail) for value in told.values())


def test_no_depth_is_too_deep_to_be_told() -> None:
    deep: Any = "end"
    for _ in range(100_000):
        deep = [deep]
    assert "end" not in str(of({"messages": [{"role": "tool", "content": deep}]}))


def test_half_a_character_costs_no_more_than_itself(
    one_peer: CallPeer, listening: Listening, caplog: pytest.LogCaptureFixture
) -> None:
    told = listening(capture="span_and_event")
    one_peer.replies = [Reply(body=Reply().body.replace(b"Rhine", b"Rhine \\ud83d"))]
    with fastlane.OpenAI(api_key="k", base_url=one_peer.url) as client:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "a river"}])
    assert said(told)[0]["parts"] == [text("Rhine ?")]
    encode_spans(told.spans)
    assert not caplog.records
    assert of({"messages": [{"role": "user", "content": "\ud83d!"}]}) == [{"role": "user", "parts": [text("?!")]}]


# Answers


@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_of_the_model_that_answered_is_told_and_of_no_other(
    kind: str, trusting_peers: None, listening: Listening
) -> None:
    told = listening(capture="span_only")
    with two_upstreams() as (near, far), Asked(kind, near.url, routing(near, far)) as asked:
        near.scripts = [refuse(503)] * 2
        for stream in (True, False):
            assert asked.text(stream=stream).strip() == "from far"
            assert "".join(part["content"] for part in said(told)[0]["parts"]).strip() == "from far"
            assert said(told, INPUT) == [{"role": "user", "parts": [text("Name a river.")]}]


def test_a_stream_that_breaks_off_is_told_as_far_as_it_came(trusting_peers: None, listening: Listening) -> None:
    told = listening(capture="span_only")
    with two_upstreams() as (near, _), Asked("sync", near.url) as asked:
        near.may_break.set()
        near.scripts = [break_off_after("Some "), called_in_pieces]
        with pytest.raises(openai.APIConnectionError):
            asked.text("m", stream=True)
        assert said(told) == [{"role": "assistant", "parts": [text("Some ")], "finish_reason": "error"}]
        asked.text("m", stream=True)
        calls = {"type": "tool_call", "id": "call_1", "name": "weather", "arguments": '{"city": "Ro'}
        thought = {"type": "reasoning", "content": "A city."}
        assert said(told) == [{"role": "assistant", "parts": [thought, calls], "finish_reason": "length"}]


def called_in_pieces(upstream: Upstream, stream: Any, body: dict[str, Any]) -> None:
    """Think, and call a tool with arguments that are cut off."""
    stream.head(200, (EVENTS,))
    stream.data(chunk("m", {"role": "assistant", "reasoning_content": "A "}))
    stream.data(chunk("m", {"reasoning_content": "city."}))
    begun = {"index": 0, "id": "call_1", "function": {"name": "weather", "arguments": ""}}
    stream.data(chunk("m", {"tool_calls": [begun]}))
    for piece in ('{"city"', ': "Ro'):
        stream.data(chunk("m", {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}))
    stream.data(chunk("m", {}, "length"))
    stream.data(b"data: [DONE]\n\n", end=True)


def test_a_response_that_is_left_is_told_as_far_as_it_came(arguments: dict[str, Any], listening: Listening) -> None:
    told = listening(capture="span_only")
    with fastlane.OpenAI(**arguments) as client:
        delta = ""
        with client.responses.create(model="m", input="Hi", stream=True) as stream:
            for event in stream:
                if event.type == "response.output_text.delta":
                    delta = event.delta
                    break
        assert said(told) == [{"role": "assistant", "parts": [text(delta)], "finish_reason": "error"}]
        tool: Any = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}
        options: Any = {"tools": [tool], "tool_choice": "required", "stream": True}
        with client.responses.create(model="m", input="Hi", **options) as stream:
            for event in stream:
                if event.type == "response.function_call_arguments.delta":
                    break
        (part,) = said(told)[0]["parts"]
        assert (part["type"], part["name"]) == ("tool_call", "weather")


@pytest.mark.parametrize("way", ["with_raw_response", "with_streaming_response"])
def test_an_answer_that_the_application_takes_undecoded_is_told(
    way: str, arguments: dict[str, Any], listening: Listening
) -> None:
    told = listening(capture="span_only")
    question: Any = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}
    with fastlane.OpenAI(**arguments) as client:
        if way == "with_raw_response":
            body = client.chat.completions.with_raw_response.create(**question).text
        else:
            with client.chat.completions.with_streaming_response.create(**question) as response:
                body = response.read().decode()
    content = json.loads(body)["choices"][0]["message"]["content"]
    assert said(told) == [{"role": "assistant", "parts": [text(content)], "finish_reason": "length"}]


def test_completions_are_told_as_texts(arguments: dict[str, Any], listening: Listening) -> None:
    told = listening(capture="span_only")
    with fastlane.OpenAI(**arguments) as client:
        answered = client.completions.create(model="m", prompt=["One.", "Two."], max_tokens=4)
    found = dict(told.the("text_completion").attributes or {})
    assert json.loads(str(found[INPUT])) == [{"role": "user", "parts": [text(one)]} for one in ("One.", "Two.")]
    messages = json.loads(str(found[OUTPUT]))
    assert [message["parts"] for message in messages] == [[text(choice.text)] for choice in answered.choices]


def test_an_event_has_the_messages_as_they_are_and_the_call_s_attributes(
    arguments: dict[str, Any], listening: Listening, caplog: pytest.LogCaptureFixture
) -> None:
    told = listening(capture="event_only")
    question: Any = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5, "tools": [TOOL]}
    with fastlane.OpenAI(**arguments) as client:
        client.chat.completions.create(**question)
    (log,) = told.logs_out.get_finished_logs()
    event, call = log.log_record, told.the("chat")
    assert event.event_name == "gen_ai.client.inference.operation.details"
    assert call.context is not None
    assert (event.trace_id, event.span_id) == (call.context.trace_id, call.context.span_id)
    found: Any = dict(event.attributes or {})
    assert json.loads(json.dumps(found[INPUT], default=dict)) == [{"role": "user", "parts": [text("Hi")]}]
    assert found["gen_ai.tool.definitions"][0]["name"] == "weather"
    assert found["gen_ai.usage.output_tokens"] == 5
    assert said(told, INPUT) is None
    encode_logs(told.logs_out.get_finished_logs())
    # (Metrics of other tests may be worked out meanwhile.)
    assert [line for line in caplog.records if not line.name.startswith("opentelemetry.sdk.metrics")] == []


def test_a_prompt_is_told_as_it_was_sent_when_spans_are_made_later(
    arguments: dict[str, Any], listening: Listening
) -> None:
    kept = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(kept))
    told = listening(capture="span_only")
    telemetry_settings.use(told.settings.with_changes({"tracer_provider": provider}))
    message: Any = {"role": "user", "content": "One."}
    with fastlane.OpenAI(**arguments) as client:
        for stream in (False, True):
            answered = client.chat.completions.create(model="m", messages=[message], max_tokens=3, stream=stream)
            list(answered)
            message["content"] = "Two."
    provider.force_flush()
    found = [json.loads(str(dict(span.attributes or {})[INPUT])) for span in kept.get_finished_spans()]
    assert sorted(messages[0]["parts"][0]["content"] for messages in found) == ["One.", "Two."]
    provider.shutdown()


def test_nothing_is_kept_of_a_prompt_where_nobody_asked(arguments: dict[str, Any], listening: Listening) -> None:
    told = listening(level="phases")
    with fastlane.OpenAI(**arguments) as client:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])
    assert not [name for span in told.spans for name in (span.attributes or {}) if "messages" in name]
    assert told.logs_out.get_finished_logs() == ()
