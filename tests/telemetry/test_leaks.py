"""No header, key, prompt, answer or error text is in anything that is exported, logged or stored, wherever it stood."""

from __future__ import annotations

import base64
import gc
import json
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import openai
import pytest
from opentelemetry.context import attach, detach
from opentelemetry.trace import set_span_in_context

import fastlane
from fastlane import BoundedOutput, Connection, Play
from fastlane.telemetry import experiment
from tests.attempts.scripted import EVENTS, answer, two_upstreams
from tests.call_peer import JSON, CallPeer, Reply
from tests.telemetry.conftest import CapturedTelemetry, Listening
from tests.telemetry.planted import LogLines, Planted, exported, leaks, stored
from tests.transport.connect_proxy import ConnectProxy

NAMED = frozenset({"model", "previous_response_id", "conversation", "response id", "user action", "experiment"})
"""What is in spans by the conventions' own word: names and ids that the application or the provider has made up."""


VECTOR = {"object": "embedding", "index": 0, "embedding": [0.5]}


class Asking(NamedTuple):
    """A call with a secret in each of its fields."""

    chat: dict[str, Any]
    response: dict[str, Any]


def asking(planted: Planted) -> Asking:
    text, word = planted.text, planted.word
    schema = {
        "type": "object",
        "description": text("schema description"),
        "properties": {word("property"): {"type": "string", "description": text("property description")}},
        "required": [word("property")],
        "additionalProperties": False,
    }
    function = {"name": word("tool name"), "description": text("tool description"), "parameters": schema}
    messages = [
        {"role": "system", "content": text("system message")},
        {"role": "developer", "content": text("developer message")},
        {
            "role": "user",
            "name": word("name of the user"),
            "content": [
                {"type": "text", "text": text("user message")},
                {"type": "image_url", "image_url": {"url": f"https://x.invalid/{word('image')}.png"}},
                {"type": "file", "file": {"filename": f"{word('file name')}.pdf", "file_id": word("file id")}},
            ],
        },
        {
            "role": "assistant",
            "content": text("assistant message"),
            "tool_calls": [
                {
                    "id": word("tool call id"),
                    "type": "function",
                    "function": {"name": word("called tool"), "arguments": json.dumps({"a": text("tool arguments")})},
                }
            ],
        },
        {"role": "tool", "tool_call_id": word("tool call id"), "content": text("tool result")},
        {"role": "user", "content": text("last message")},
    ]
    anywhere = {
        "extra_headers": {"x-secret": word("extra header"), "cookie": f"session={word('cookie')}"},
        "extra_query": {"token": word("extra query")},
        "extra_body": {"made_up": {"deep": [{"er": text("extra body")}]}, "service_tier": text("asked tier")},
        "metadata": {"note": text("metadata")},
        "prompt_cache_key": text("prompt cache key"),
        "safety_identifier": text("safety identifier"),
        "user": text("user"),
        "model": word("model"),
    }
    chat = {
        **anywhere,
        "messages": messages,
        "tools": [{"type": "function", "function": function}],
        "response_format": {"type": "json_schema", "json_schema": {"name": word("schema name"), "schema": schema}},
        "stop": [text("stop")],
        "prediction": {"type": "content", "content": text("prediction")},
        "reasoning_effort": text("effort"),
    }
    response = {
        **anywhere,
        "instructions": text("instructions"),
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": text("input")}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": json.dumps(text("called with"))},
            {"type": "function_call_output", "call_id": "c", "output": text("called output")},
        ],
        "previous_response_id": word("previous_response_id"),
        "conversation": word("conversation"),
        "text": {"format": {"type": "json_schema", "name": word("format name"), "schema": schema}},
    }
    return Asking(chat, response)


def head(planted: Planted) -> tuple[tuple[str, str], ...]:
    return (("set-cookie", f"a={planted.word('set-cookie')}"), ("x-other", planted.word("response header")))


def called(planted: Planted) -> dict[str, Any]:
    function = {"name": planted.word("tool of the answer"), "arguments": json.dumps(planted.text("answered arguments"))}
    return {"id": planted.word("id of a tool call"), "type": "function", "function": function, "index": 0}


def chat_answer(planted: Planted, **more: Any) -> dict[str, Any]:
    text = planted.text
    message = {
        "role": "assistant",
        "content": text("answer"),
        "refusal": text("refusal"),
        "reasoning_content": text("reasoning"),
        "tool_calls": [called(planted)],
    }
    return {
        "id": planted.word("response id"),
        "object": "chat.completion",
        "created": 1,
        "model": text("model of the answer"),
        "system_fingerprint": text("fingerprint"),
        "service_tier": text("tier"),
        "choices": [{"index": 0, "finish_reason": text("finish reason"), "message": message}],
        "usage": {"prompt_tokens": 10**30, "completion_tokens": -5, "total_tokens": 3, "note": text("usage")},
        **more,
    }


def streamed(planted: Planted) -> bytes:
    whole = chat_answer(planted)
    (choice,) = whole.pop("choices")
    usage = whole.pop("usage")
    begun = {"index": 0, "delta": choice["message"], "finish_reason": None}
    ended = {"index": 0, "delta": {"content": planted.text("answer")}, "finish_reason": choice["finish_reason"]}
    events = [{**whole, "choices": [one]} for one in (begun, ended)] + [{**whole, "choices": [], "usage": usage}]
    written = [f"data: {json.dumps({**event, 'object': 'chat.completion.chunk'})}\n\n" for event in events]
    return f": {planted.word('comment')}\n\n{''.join(written)}data: [DONE]\n\n".encode()


def response_answer(planted: Planted) -> dict[str, Any]:
    content = [{"type": "output_text", "text": planted.text("output"), "annotations": []}]
    return {
        "id": planted.word("response id"),
        "object": "response",
        "created_at": 1,
        "model": planted.text("model of the answer"),
        "status": planted.text("status"),
        "output": [{"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": content}],
        "instructions": planted.text("instructions"),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def response_events(planted: Planted) -> bytes:
    begun = response_answer(planted) | {"output": [], "status": "in_progress"}
    reason = {"code": planted.text("error code"), "message": planted.text("error message")}
    failed = response_answer(planted) | {"error": reason, "incomplete_details": {"reason": planted.text("why not all")}}
    delta = {"item_id": "m", "output_index": 0, "content_index": 0, "delta": planted.text("output"), "logprobs": []}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_text.delta", **delta},
        {"type": planted.word("made up event"), "said": planted.text("made up")},
        {"type": "response.failed", "response": failed},
    ]
    numbered = [{**event, "sequence_number": number} for number, event in enumerate(events)]
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in numbered).encode()


def errors(planted: Planted) -> list[Reply]:
    schema_text = {
        "message": f"{planted.text('error message')} {planted.word('api key')} {planted.text('last message')}",
        "type": planted.text("error type"),
        "code": planted.text("error code"),
        "param": planted.text("error param"),
    }
    body = json.dumps({"error": schema_text}).encode()
    replies = [Reply(status, (JSON, *head(planted)), body) for status in (400, 401, 404, 429, 500)]
    html = f"<html>{planted.text('error page')}</html>".encode()
    replies.append(Reply(502, (("content-type", "text/html"),), html))
    replies.append(Reply(200, (EVENTS,), b"data: " + body + b"\n\n"))
    replies.append(Reply(200, (JSON,), f'{{"choices": "{planted.word("no answer")}'.encode()))
    replies.append(Reply(0))
    return replies


@pytest.fixture
def planted() -> Planted:
    return Planted()


@pytest.fixture
def log_lines() -> Iterator[LogLines]:
    with LogLines() as listening:
        yield listening


def client_of(kind: Any, planted: Planted, url: str, *plays: Play, **options: Any) -> Any:
    """A client with a secret in all that it is made with. Its URL has a user, a password and a query."""
    scheme, _, rest = url.partition("://")
    name, password = planted.word("URL user"), planted.word("URL password")
    arguments = {
        "api_key": planted.word("api key"),
        "organization": planted.word("organization"),
        "project": planted.word("project"),
        "default_headers": {"x-default": planted.word("default header")},
        "default_query": {"key": planted.word("default query")},
        "base_url": f"{scheme}://{name}:{password}@{rest}/v1",
        "max_retries": 0,
        "only_plays": [Connection(), *plays],
    }
    return kind(**{**arguments, **options})


def found(
    planted: Planted,
    captured: CapturedTelemetry,
    log_lines: LogLines,
    where: Path,
    *clients: Any,
    allowed: Collection[str] = (),
) -> list[str]:
    """What leaks, and where to."""
    texts = {**exported(captured, where), "the log": "\n".join(log_lines.lines).encode()}
    for client in clients:
        texts |= stored(client)
    assert captured.spans
    return leaks(planted, texts, {*NAMED, *allowed})


def ask_every_entry_point(client: Any, peer: CallPeer, planted: Planted, asked: Asking) -> None:
    chat = Reply(200, (JSON, *head(planted)), json.dumps(chat_answer(planted)).encode())
    events = Reply(200, (EVENTS, *head(planted)), streamed(planted))
    response = Reply(200, (JSON, *head(planted)), json.dumps(response_answer(planted)).encode())
    completions, name = client.chat.completions, planted.word("user action")
    peer.replies = [chat, events, chat, events, events, response]
    peer.replies.append(Reply(200, (EVENTS, *head(planted)), response_events(planted)))
    vectors = {"object": "list", "model": planted.text("model of the answer"), "data": [VECTOR]}
    peer.replies.append(Reply(200, (JSON,), json.dumps(vectors).encode()))
    with fastlane.user_action(name), experiment("names", planted.word("experiment"), unit=planted.text("unit")):
        assert completions.create(**asked.chat).choices[0].message.content == planted.text("answer")
        assert len(list(completions.create(**asked.chat, stream=True))) == 3
        assert planted.word("response id") in completions.with_raw_response.create(**asked.chat).text
        with completions.create(**asked.chat, stream=True) as closed:
            next(closed)
        abandoned = completions.create(**asked.chat, stream=True)
        next(abandoned)
        del closed, abandoned
        gc.collect()
        assert client.responses.create(**asked.response).output_text == planted.text("output")
        assert len(list(client.responses.create(**asked.response, stream=True))) == 4
        vectors = client.embeddings.create(model=planted.word("model"), input=[planted.text("embedded")])
        assert vectors.model == planted.text("model of the answer")
    peer.replies = errors(planted)
    for number in range(len(peer.replies)):
        with suppress(openai.OpenAIError, ValueError, AttributeError), fastlane.user_action("failing"):
            result = completions.create(**asked.chat, stream=number % 2 == 0)
            list(result)


@pytest.mark.parametrize("level", ["call", "phases"])
def test_exported_telemetry_has_no_call_content(
    level: str, peer: CallPeer, planted: Planted, log_lines: LogLines, listening: Listening, tmp_path: Path
) -> None:
    captured = listening(level=level)
    with client_of(fastlane.OpenAI, planted, peer.url) as client:
        ask_every_entry_point(client, peer, planted, asking(planted))
        assert planted.word("extra query") in peer.asked[0].target
        assert len(captured.named("chat")) == 16
        assert found(planted, captured, log_lines, tmp_path, client) == []


def test_span_of_another_tool_gets_no_call_content(
    one_peer: CallPeer, planted: Planted, log_lines: LogLines, listening: Listening, tmp_path: Path
) -> None:
    captured = listening(level="phases")
    tracer = captured.tracer_provider.get_tracer("openinference.instrumentation.openai")
    asked = asking(planted)
    with client_of(fastlane.OpenAI, planted, one_peer.url) as client:
        for kind, reply in [("whole", chat_answer(planted)), ("raw", chat_answer(planted))]:
            one_peer.replies = [Reply(200, (JSON, *head(planted)), json.dumps(reply).encode())]
            with tracer.start_as_current_span(kind):
                completions = client.chat.completions
                (completions if kind == "whole" else completions.with_raw_response).create(**asked.chat)
        one_peer.replies = errors(planted)
        for _ in list(one_peer.replies):
            span = tracer.start_span("failed")
            token = attach(set_span_in_context(span))
            with suppress(openai.OpenAIError, ValueError, AttributeError):
                client.chat.completions.create(**asked.chat)
            detach(token)
            span.end()
        assert captured.named("chat") == []
        for kind in ("whole", "raw"):
            assert dict(captured.the(kind).attributes or {})["fastlane.attempt.count"] == 1
        assert found(planted, captured, log_lines, tmp_path, client) == []


@pytest.mark.parametrize("proxied", [False, True], ids=["another server", "a proxy"])
def test_redirect_is_exported_without_credentials(
    proxied: bool,
    one_peer: CallPeer,
    planted: Planted,
    log_lines: LogLines,
    listening: Listening,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    captured = listening(level="phases")
    host = one_peer.url.removeprefix("https://")
    target = f"https://{planted.word('target user')}@{host}/v1/elsewhere?token={planted.word('target token')}"
    one_peer.replies = [Reply(307, (("location", target),), planted.text("redirect").encode())]
    with ConnectProxy() as proxy:
        if proxied:
            at = proxy.url.removeprefix("http://")
            monkeypatch.setenv(
                "HTTPS_PROXY", f"http://{planted.word('proxy user')}:{planted.word('proxy password')}@{at}"
            )
        with client_of(fastlane.OpenAI, planted, one_peer.url) as client:
            client.chat.completions.create(**asking(planted).chat)
            assert found(planted, captured, log_lines, tmp_path, client) == []
        assert bool(proxy.asked) == proxied
    assert any("elsewhere" in asked.target for asked in one_peer.asked)


def test_invalid_answer_records_schema_names_and_exports_none(
    trusting_peers: None, planted: Planted, log_lines: LogLines, listening: Listening, tmp_path: Path
) -> None:
    captured = listening(level="phases")
    asked = asking(planted).chat
    options = {"model": "m", "messages": asked["messages"], "response_format": asked["response_format"]}
    key, value = planted.text("key of the answer"), planted.text("answer")
    with two_upstreams() as (near, _):
        url = f"{near.url}?token={planted.word('query of the URL')}"
        with client_of(fastlane.OpenAI, planted, near.url, BoundedOutput(), base_url=url) as client:
            for schema_text in (json.dumps({key: value}), json.dumps({planted.word("property"): [value]}), value):
                near.usually = answer(schema_text)
                with suppress(fastlane.InvalidOutputError):  # of a stream the record says it, unless it was stopped
                    list(client.chat.completions.create(**options, stream=True))
                with pytest.raises(fastlane.InvalidOutputError):
                    client.chat.completions.create(**options)
            assert dict(captured.named("validate")[0].attributes or {})["fastlane.output.verdict"] == "invalid"
            assert leaks(planted, exported(captured, tmp_path), NAMED) == []
            # They come from the caller's schema, and say where a bound is missing and what was wrong.
            assert found(planted, captured, log_lines, tmp_path, client, allowed={"schema name", "property"}) == []


def test_leak_is_found_in_every_encoding(
    planted: Planted, log_lines: LogLines, listening: Listening, tmp_path: Path
) -> None:
    plain, in_json, percent, coded, in_hex = map(planted.text, ("plain", "json", "percent", "base64", "hex"))
    coded_text = base64.b64encode(f"x{coded}".encode()).decode()
    notes = [plain, json.dumps([in_json]), quote(percent), coded_text, in_hex.encode().hex()]
    captured = listening()
    captured.tracer_provider.get_tracer("leaky").start_span("leaky", attributes={"notes": notes}).end()
    leaked = {*found(planted, captured, log_lines, tmp_path)}
    for form in ("plain", "json", "percent", "base64", "hex"):
        for where in ("spans", "spans as protobuf", "the file spans.jsonl"):
            assert f"{form} is in {where}" in leaked
