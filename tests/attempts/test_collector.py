"""What is streamed underneath comes to what the stock client is given without a stream."""

from __future__ import annotations

import json
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel

import fastlane
from fastlane import Connection, Hedging
from fastlane.emulator import Emulator
from tests.attempts.events import (
    CHAT,
    COMMENT,
    COMPLETIONS,
    DONE,
    RESPONSES,
    ROLE,
    STOP,
    USAGE,
    choice_event,
    chunk,
    data,
)
from tests.call_peer import ANSWER, CallPeer, Reply
from tests.waiting import SYNC, Form

MESSAGES: list[Any] = [{"role": "user", "content": "Name a river."}]
EVENT_STREAM = (("content-type", "text/event-stream"), ("x-request-id", "req_1"))
PROTOCOLS = {"HTTP/2": Connection(), "HTTP/1.1": Connection(http2="never")}


def streaming(arguments: dict[str, Any], protocol: str = "HTTP/2", form: Form = SYNC, **options: Any) -> Any:
    """A client that streams every answer underneath, as for a second attempt."""
    plays = [PROTOCOLS[protocol], Hedging()]
    return form.make(fastlane, **arguments, **options, only_plays=plays, raise_play_errors=True)


def peer_client(peer: CallPeer, **options: Any) -> Any:
    arguments = {"api_key": "sk-test", "base_url": f"{peer.url}/v1", "max_retries": 0, **options}
    return streaming(arguments, peer.protocol)


def create(client: Any, endpoint: str = CHAT, **asked: Any) -> Any:
    if endpoint == CHAT:
        return client.chat.completions.create(model="m", messages=MESSAGES, **asked)
    if endpoint == COMPLETIONS:
        return client.completions.create(model="m", **{"prompt": "Name a river.", **asked})
    # What is kept is made once only.
    return client.responses.create(model="m", input="Name a river.", store=False, **asked)


def without_ids(answer: Any) -> Any:
    if isinstance(answer, openai.BaseModel):
        answer = answer.model_dump(warnings=False)
    if isinstance(answer, dict):
        numbered = ("id", "call_id", "created", "created_at", "completed_at")
        return {name: without_ids(value) for name, value in answer.items() if name not in numbered}
    return [without_ids(one) for one in answer] if isinstance(answer, list) else answer


TOOL = {
    "name": "look",
    "parameters": {"type": "object", "properties": {"at": {"enum": ["a", "b"]}}, "required": ["at"]},
}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "t", "schema": TOOL["parameters"]}}
THINKING = {"extra_headers": {"x-emulator-reasoning-tokens": "9"}}

ASKED: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {}),
    (CHAT, {"n": 3}),
    (CHAT, {"max_completion_tokens": 3}),
    (CHAT, {"response_format": SCHEMA}),
    (CHAT, {"tools": [{"type": "function", "function": TOOL}], "tool_choice": "required", "n": 2}),
    (CHAT, {"service_tier": "priority"}),
    (CHAT, THINKING),
    (CHAT, {"tools": [{"type": "function", "function": TOOL}], "tool_choice": "required", **THINKING}),
    (COMPLETIONS, {"n": 2, "max_tokens": 5}),
    (RESPONSES, {}),
    (RESPONSES, {"tools": [{"type": "function", **TOOL}], "tool_choice": "required"}),
    (RESPONSES, THINKING),
    (RESPONSES, {"max_output_tokens": 3, "instructions": "Be short.", "metadata": {"a": "b"}}),
]


@pytest.mark.parametrize(("endpoint", "asked"), ASKED)
def test_assembled_answer_matches_stock_client(
    provider: Emulator, arguments: dict[str, Any], endpoint: str, asked: dict[str, Any]
) -> None:
    with streaming(arguments) as client, openai.OpenAI(**arguments) as stock:
        answer, expected = create(client, endpoint, **asked), create(stock, endpoint, **asked)
        record = client.calls[0]
    assert type(answer) is type(expected)
    assert without_ids(answer) == without_ids(expected)
    assert [request.stream for request in provider.log()] == [True, False]
    assert (record.stream, record.outcome) == (False, "completed")
    assert record.time_to_first_token_s is not None
    assert (
        record.usage.output_tokens
        == expected.usage.model_dump()["output_tokens" if endpoint == RESPONSES else "completion_tokens"]
    )
    assert not record.usage.estimated


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_assembled_answer_matches_stock_over_each_protocol(
    protocol: str, form: Form, arguments: dict[str, Any]
) -> None:
    with streaming(arguments, protocol, form) as client, form.make(openai, **arguments) as stock:
        assert without_ids(create(client)) == without_ids(create(stock))
        (record,) = client.calls
    assert record.time_to_first_token_s is not None
    assert record.attempts[0].http_version == protocol


class Place(BaseModel):
    at: Literal["a", "b"]


def test_parse_and_raw_response_match_stock_client(arguments: dict[str, Any]) -> None:
    with streaming(arguments) as client, openai.OpenAI(**arguments) as stock:
        asked: dict[str, Any] = {"model": "m", "messages": MESSAGES, "response_format": Place}
        parsed, expected = client.chat.completions.parse(**asked), stock.chat.completions.parse(**asked)
        assert parsed.choices[0].message.parsed == expected.choices[0].message.parsed
        assert isinstance(parsed.choices[0].message.parsed, Place)
        raw = client.chat.completions.with_raw_response.create(model="m", messages=MESSAGES)
        assert raw.headers["content-type"] == "application/json"
        assert without_ids(json.loads(raw.content)) == without_ids(create(stock).to_dict())


def test_first_token_counts_when_it_arrived(provider: Emulator, arguments: dict[str, Any]) -> None:
    headers = {"x-emulator-prefill-ms": "50", "x-emulator-token-ms": "5", "x-emulator-fault": "early_role"}
    headers["x-emulator-output-text"] = "The Danube flows."
    with streaming(arguments) as client:
        create(client, extra_headers=headers)
        timeline = client.calls[0].timeline
    (request,) = provider.log()
    assert timeline.first_token_ns is not None
    assert timeline.first_token_ns - request.received_ns >= 50_000_000
    assert timeline.first_token_ns < timeline.token_ns[-1]


def test_usage_that_a_provider_leaves_out_is_estimated(arguments: dict[str, Any]) -> None:
    with streaming(arguments) as client, openai.OpenAI(**arguments) as stock:
        answer = create(client, extra_headers={"x-emulator-fault": "no_usage"})
        expected = create(stock)
        assert client.calls[0].usage.estimated
        with_thoughts = {"x-emulator-fault": "no_usage", **THINKING["extra_headers"]}
        thoughtful = create(client, extra_headers=with_thoughts)
    assert answer.usage.estimated is True
    assert thoughtful.usage.completion_tokens > answer.usage.completion_tokens
    assert 0 < answer.usage.prompt_tokens <= 3 * expected.usage.prompt_tokens
    assert 0 < answer.usage.completion_tokens <= 3 * expected.usage.completion_tokens
    assert without_ids(answer) | {"usage": None} == without_ids(expected) | {"usage": None}


def test_stream_without_finish_reason_is_retried(arguments: dict[str, Any]) -> None:
    headers = {"x-emulator-fault": "truncate;after=3;times=1", "x-emulator-tag": "truncated once"}
    with streaming(arguments) as client, openai.OpenAI(**arguments) as stock:
        answer = create(client, extra_headers=headers)
        assert without_ids(answer) == without_ids(create(stock))
        (record,) = client.calls
    assert [attempt.kind for attempt in record.attempts] == ["first", "retry"]


# What a server may say instead


def test_error_event_in_stream_raises_error_with_its_status(peer: CallPeer) -> None:
    error = {"error": {"message": "Too many.", "type": "rate_limit_exceeded", "code": None}}
    peer.replies = [Reply(headers=EVENT_STREAM, body=COMMENT + ROLE + data(error))]
    with peer_client(peer) as client, pytest.raises(openai.RateLimitError, match="Too many"):
        create(client)


def test_unstreamed_answer_to_a_streamed_request_is_returned(peer: CallPeer) -> None:
    with peer_client(peer) as client:
        assert create(client).to_dict() == ANSWER


def test_empty_stream_is_assembled_to_an_empty_answer(peer: CallPeer) -> None:
    peer.replies = [Reply(headers=EVENT_STREAM, body=b"".join((ROLE, STOP, USAGE, DONE)))]
    with peer_client(peer) as client:
        answer = create(client)
    assert answer.choices[0].message.content == ""
    assert answer.usage.total_tokens == 3


@pytest.mark.parametrize("called", ["application/json", "text/plain", "text/html"])
def test_event_stream_with_other_content_type_is_parsed(peer: CallPeer, called: str) -> None:
    body = b"".join((ROLE, choice_event(content="Rhine"), STOP, USAGE, DONE))
    peer.replies = [Reply(headers=(("content-type", called),), body=body)]
    with peer_client(peer) as client:
        answer = create(client)
        assert len(client.calls[0].attempts) == 1
    assert answer.choices[0].message.content == "Rhine"
    assert answer.usage.total_tokens == 3


def test_empty_event_stream_is_not_retried(peer: CallPeer) -> None:
    peer.usually = lambda _: Reply(headers=EVENT_STREAM, body=b"")
    with peer_client(peer, max_retries=2) as client:
        with pytest.raises(json.JSONDecodeError):
            create(client)
        assert len(peer.take()) == len(client.calls[0].attempts) == 1


@pytest.mark.parametrize("name", ["stream_options", "stream"])
def test_call_whose_stream_is_refused_is_sent_again_without_it(peer: CallPeer, name: str) -> None:
    refusal = {"error": {"message": f"Unknown parameter: '{name}'.", "param": name, "code": "unknown_parameter"}}
    streams = Reply(headers=EVENT_STREAM, body=b"".join((ROLE, choice_event(content="Rhine"), STOP, DONE)))
    peer.replies = [Reply(status=400, body=json.dumps(refusal).encode()), streams if name != "stream" else Reply()]
    with peer_client(peer) as client:
        answer = create(client)
        assert answer.choices[0].message.content == "Rhine"
        assert answer.usage is not None
        first, second = [json.loads(asked.body) for asked in peer.take()]
        assert first.keys() - second.keys() == {"stream", "stream_options"} - ({"stream"} - {name})
        assert [attempt.kind for attempt in client.calls[0].attempts] == ["first", "plain"]


@pytest.mark.parametrize(
    ("asked", "choices"),
    [
        ({"prompt": ["a", "b"], "n": 1}, 2),
        ({"prompt": [[1, 2], [3]]}, 2),
        ({"prompt": "a", "n": 2}, 2),
        ({"prompt": [1, 2, 3]}, 1),
        ({"prompt": "a", "n": None}, 1),
        ({"prompt": []}, 1),
    ],
)
def test_stream_without_the_end_of_each_choice_is_retried(
    one_peer: CallPeer, asked: dict[str, Any], choices: int
) -> None:
    ends = [data(chunk({"index": index, "text": "Rhine", "finish_reason": "stop"})) for index in range(choices)]
    one_peer.replies = [Reply(headers=EVENT_STREAM, body=ends[0])]
    one_peer.usually = lambda _: Reply(headers=EVENT_STREAM, body=b"".join(ends))
    with peer_client(one_peer, max_retries=1) as client:
        answer = create(client, COMPLETIONS, **asked)
        (record,) = client.calls

    assert [choice.text for choice in answer.choices] == ["Rhine"] * choices
    assert [attempt.kind for attempt in record.attempts] == ["first", "retry"][:choices]
