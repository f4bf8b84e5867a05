"""What providers may send on a WebSocket: no answer is lost, billed twice or mistaken, and nothing leaks."""

from __future__ import annotations

import json
import logging
import threading
import traceback
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

import fastlane
from fastlane import Connection
from fastlane.plays import ResponseSocket
from fastlane.plays.response_socket.section import ResponseSocketSection
from fastlane.providers import registered
from tests.plays.response_socket.test_response_socket import HELLO, TAKES_SOCKETS
from tests.transport.peer import LOCAL_NAMES, server_context
from tests.waiting import HANG_S, Form

SECRET = "a prompt that is not to be shown"
ITEM = {
    "id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
    "content": [{"type": "output_text", "text": "Yes.", "annotations": []}],
}  # fmt: skip
RESPONSE = {
    "id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed", "output": [ITEM],
    "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None,
}  # fmt: skip
CREATED = {"type": "response.created", "sequence_number": 0, "response": {**RESPONSE, "output": []}}
DONE = {"type": "response.output_item.done", "sequence_number": 1, "output_index": 0, "item": ITEM}
COMPLETED = {"type": "response.completed", "sequence_number": 2, "response": RESPONSE}
FAILED = {"type": "error", "status": 500, "error": {"type": "server_error", "code": "overloaded", "message": "No."}}
ANSWER = [CREATED, DONE, COMPLETED]


class Provider:
    """Answers each command with the next of `answers`: events, bytes, or a code and a reason to close with."""

    def __init__(self) -> None:
        self.answers: list[list[Any]] = []
        self.commands: list[dict[str, Any]] = []
        self.client: Any = None

    def serve(self, server: ServerConnection) -> None:
        try:
            for message in server:
                self.commands.append(json.loads(message))
                for event in self.answers.pop(0):
                    if isinstance(event, tuple):
                        server.close(*event)
                    else:
                        server.send(event if isinstance(event, bytes) else json.dumps(event), text=True)
        except ConnectionClosed:
            pass

    def stream(self) -> list[Any]:
        with self.client.responses.create(model="m", input=[HELLO], stream=True) as stream:
            return list(stream)

    def ask(self, *more: Any) -> Any:
        return self.client.responses.create(model="m", input=[HELLO, *more])


@pytest.fixture
def provider(form: Form, trusting_peers: None) -> Iterator[Provider]:
    provider = Provider()
    with serve(provider.serve, "127.0.0.1", 0, ssl=server_context(LOCAL_NAMES, ["http/1.1"])) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        origin = f"https://127.0.0.1:{server.socket.getsockname()[1]}"
        options: dict[str, Any] = {"api_key": "sk-secret", "base_url": f"{origin}/v1", "raise_play_errors": True}
        plays = [Connection(), ResponseSocket()]
        try:
            with (
                registered(TAKES_SOCKETS, origins=[origin]),
                form.make(fastlane, only_plays=plays, timeout=20.0, **options) as provider.client,
            ):
                yield provider
        finally:
            server.shutdown()
            thread.join(HANG_S)


def test_error_of_a_whole_answer_that_has_begun_is_not_repeated(provider: Provider) -> None:
    provider.answers = [[CREATED, FAILED], ANSWER]
    with pytest.raises(openai.InternalServerError):
        provider.ask()

    assert len(provider.commands) == 1


@pytest.mark.parametrize("left", [{}, {"output": []}, {"output": None}])
def test_output_that_the_last_event_leaves_out_is_part_of_the_history(provider: Provider, left: dict[str, Any]) -> None:
    last = {**COMPLETED, "response": {**{k: v for k, v in RESPONSE.items() if k != "output"}, **left}}
    provider.answers = [[CREATED, DONE, last], ANSWER, ANSWER]

    assert provider.ask().output_text == "Yes."
    provider.ask(ITEM, {"role": "user", "content": "Go on."})
    assert provider.commands[1]["input"] == [{"role": "user", "content": "Go on."}]
    provider.stream()


@pytest.mark.parametrize(
    "odd",
    [
        b'{"type":"response.output_text.delta","delta":"\\ud83d","sequence_number":1}',
        b'{"sequence_number":1}',
        b'{"type":["a"],"sequence_number":1}',
        b'{"type":7,"sequence_number":1}',
        b'{\r\n "type": "vendor.notice",\r\n "sequence_number": 1\r\n}\r\n',
    ],
)
def test_odd_event_loses_none_of_the_others(provider: Provider, odd: bytes) -> None:
    provider.answers = [[CREATED, odd, COMPLETED], [CREATED, odd, COMPLETED]]

    events = provider.stream()
    assert [events[0].type, events[-1].type, len(events)] == ["response.created", "response.completed", 3]
    assert provider.ask().output_text == "Yes."


def test_events_before_the_beginning_are_no_beginning(provider: Provider) -> None:
    notice = {"type": "vendor.notice"}
    provider.answers = [[notice, FAILED], [notice, (1011, "Restarting.")], [notice, *ANSWER]]

    assert [event.type for event in provider.stream()] == [
        "vendor.notice", "response.created", "response.output_item.done", "response.completed",
    ]  # fmt: skip
    assert len(provider.commands) == 3


def test_error_headers_that_http_could_not_carry_are_left_out(provider: Provider) -> None:
    error = {**FAILED["error"], "headers": {"retry-after-ms": "1", "x-note": "café\n", "x-none": None}}  # type: ignore[dict-item]
    provider.answers = [[{**FAILED, "error": error}], ANSWER]

    assert provider.ask().output_text == "Yes."


@pytest.mark.parametrize("begun", [[], [CREATED]])
def test_what_the_provider_says_when_it_closes_is_not_shown(
    provider: Provider, begun: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    provider.client = provider.client.with_options(max_retries=0)
    provider.answers = [[*begun, (1011, SECRET)]] * 2
    shown = ""
    with caplog.at_level(logging.DEBUG, logger="websockets.client"):
        for ask in (provider.ask, provider.stream):
            with pytest.raises((openai.APIConnectionError, httpx2.RemoteProtocolError)) as raised:
                ask()
            shown += "".join(traceback.format_exception(raised.value))

    assert "code 1011" in shown
    for secret in (SECRET, HELLO["content"], "sk-secret"):
        assert secret not in shown + caplog.text


def test_history_that_changes_during_the_answer_is_compared_as_it_was_sent(provider: Provider) -> None:
    provider.answers = [ANSWER, ANSWER]
    history: list[Any] = [HELLO]
    with provider.client.responses.create(model="m", input=history, stream=True) as stream:
        history.extend(event.item.to_dict() for event in stream if event.type == "response.output_item.done")
    history.append({"role": "user", "content": "Go on."})
    provider.client.responses.create(model="m", input=history)

    assert provider.commands[1]["input"] == history[-1:]
    assert provider.client.last_call.get(ResponseSocketSection).sent == "delta"
