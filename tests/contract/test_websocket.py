"""Responses over WebSocket: openai's API as it is, on fastlane's connections, with a record for each response."""

from __future__ import annotations

import gc
import importlib
import json
import ssl
import sys
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai._utils import maybe_transform
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponsesClientEventParam
from websockets.exceptions import ConnectionClosedError, InvalidStatus

import fastlane
from fastlane import CallRecord
from fastlane.compat.response_sockets import write_command
from fastlane.emulator import Emulator, RequestLog
from tests.waiting import Form, inner_of

MODEL = "gpt-test"
SHORT = {"x-emulator-output-tokens": "5"}
HELLO: Any = {"type": "response.create", "model": MODEL, "input": "Hello", "metadata": SHORT}
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


@pytest.fixture
def client(form: Form, arguments: dict[str, Any], reported: list[CallRecord]) -> Iterator[Any]:
    with form.make(fastlane, **arguments, on_call_end=[reported.append], raise_play_errors=True) as client:
        yield client


@pytest.fixture
def connection(client: Any) -> Iterator[Any]:
    with client.responses.connect() as connection:
        yield connection


def turn(connection: Any, **fields: Any) -> list[Any]:
    """Send one turn, and return its events."""
    connection.send({**HELLO, **fields})
    return until_end(connection)


def until_end(connection: Any) -> list[Any]:
    events = []
    for event in connection:
        events.append(event)
        if event.type in ENDS:
            break
    return events


def responses_of(provider: Emulator) -> list[RequestLog]:
    return [record for record in provider.log() if record.method == "WS"]


def test_turn_gives_the_events_of_openai_and_one_record(
    connection: Any, provider: Emulator, reported: list[CallRecord]
) -> None:
    events = turn(connection)

    assert [event.type for event in (events[0], events[-1])] == ["response.created", "response.completed"]
    assert {type(event).__module__.partition(".")[0] for event in events} == {"openai"}
    (record,), (log,) = reported, responses_of(provider)
    assert (record.outcome, record.events, record.response_id) == ("completed", len(events), events[-1].response.id)
    assert record.usage.output_tokens == log.output_tokens == 5
    assert record.last_attempt is not None
    assert (record.last_attempt.http_version, record.transport) == ("WebSocket", "fastlane")
    assert record.last_attempt.request_body_bytes == log.bytes_in
    assert record.time_to_first_token_s is not None
    assert len(record.timeline.token_ns) == 5


def test_continuation_sends_only_what_is_new(connection: Any, provider: Emulator) -> None:
    history = [{"role": "user", "content": f"line {number}" * 20} for number in range(50)]
    first = turn(connection, input=history, store=False)[-1].response
    second = turn(connection, input="More", previous_response_id=first.id, store=False)[-1].response

    one, two = responses_of(provider)
    assert two.bytes_in < one.bytes_in / 10
    assert second.usage.input_tokens > first.usage.input_tokens
    assert one.connection_id == two.connection_id


def test_unknown_parent_is_an_error_event_and_a_failed_record(connection: Any, reported: list[CallRecord]) -> None:
    (event,) = turn(connection, previous_response_id="resp_none")

    said = event.to_dict()
    assert (event.type, said["status"], said["error"]["code"]) == ("error", 400, "previous_response_not_found")
    assert [(record.outcome, record.error, record.status_code) for record in reported] == [
        ("failed", "previous_response_not_found", 400)
    ]


@pytest.mark.parametrize("after", [0, 1, 6, 12])
def test_kill_ends_the_record_and_is_billed_once(
    client: Any, provider: Emulator, reported: list[CallRecord], after: int
) -> None:
    provider.set_faults(f"drop;after_events={after};on=WS responses")
    with client.responses.connect() as connection:
        connection.send(HELLO)
        with pytest.raises(ConnectionClosedError):
            until_end(connection)

    assert len(responses_of(provider)) == 1
    assert [record.outcome for record in reported] == ["failed"]
    assert reported[0].error == "ConnectionClosedError"
    assert reported[0].events <= after


def test_refused_upgrade_is_websockets_error_and_says_what_to_do(client: Any, provider: Emulator) -> None:
    provider.set_faults("status=503;on=GET responses")

    with pytest.raises(InvalidStatus) as raised, client.responses.connect():
        pass

    assert raised.value.response.status_code == 503
    assert "use client.responses.create() or .stream() over HTTP" in raised.value.__notes__[0]


def test_too_large_message_names_the_limit_and_the_option(client: Any) -> None:
    with client.responses.connect(websocket_connection_options={"max_size": 200}) as connection:
        connection.send(HELLO)
        with pytest.raises(ConnectionClosedError) as raised:
            until_end(connection)

    assert raised.value.sent is not None
    assert raised.value.sent.code == 1009
    assert "max_size=200" in raised.value.__notes__[0]


def test_invalid_json_in_an_event_is_a_json_error_with_advice(client: Any, provider: Emulator) -> None:
    provider.set_faults("malformed;after=2;on=WS responses")
    with client.responses.connect() as connection:
        connection.send(HELLO)
        with pytest.raises(json.JSONDecodeError) as raised:
            until_end(connection)

    assert "is not valid JSON" in raised.value.__notes__[0]


def test_client_without_the_extra_says_how_to_install_it(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "fastlane.transport.drivers.websocket"
    importlib.import_module(name)
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delattr(name)

    with pytest.raises(fastlane.MissingExtraError, match=r"fastlane-llm\[realtime\]"), client.responses.connect():
        pass


ANSWER = [
    ResponseOutputMessage.model_validate(
        {
            "id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "d\u00e9j\u00e0", "annotations": []}],
        }
    ),
    ResponseFunctionToolCall(arguments="{}", call_id="call_1", name="look_up", type="function_call"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "fast"),
    [
        ({"input": [{"role": "user", "content": "\u2028 \U0001f600 \x7f"}], "temperature": 0.5}, True),
        ({"input": ({"role": "user", "content": "a"},), "tools": [{"type": "function", "name": "f"}]}, True),
        ({"input": [*ANSWER, {"type": "function_call_output", "call_id": "call_1", "output": "x"}]}, True),
        ({"input": ({"role": "user", "content": text} for text in "ab")}, False),
        ({"input": "a", "metadata": openai.omit, "store": openai.not_given}, False),
        ({"input": "a", "temperature": float("nan")}, False),
        ({"input": "a", "temperature": 1e-7}, False),
        ({"input": "\ud800"}, False),
        ({"input": "a", "top_logprobs": 1 << 70}, False),
    ],
)
def test_command_is_the_json_that_openai_writes(fields: dict[str, Any], fast: bool) -> None:
    event = {"type": "response.create", "model": MODEL, **fields}
    written = write_command(event)

    assert (written is not None) is fast
    if written is not None:
        assert json.loads(written) == json.loads(json.dumps(maybe_transform(event, ResponsesClientEventParam)))


def test_closing_the_client_closes_its_sockets(form: Form, arguments: dict[str, Any]) -> None:
    """Without waiting for a timeout: each side ends TLS when the other has."""
    client = form.make(fastlane, **arguments)
    connection = client.responses.connect(websocket_connection_options={"close_timeout": None}).enter()

    client.close()

    assert not inner_of(connection)._connection.is_open


def test_next_connection_of_a_manager_outlives_the_one_before(client: Any) -> None:
    manager = client.responses.connect()
    for _ in range(2):
        with manager as connection:  # the one before is dropped here
            gc.collect()
            assert turn(connection)[-1].type == "response.completed"


def test_stock_client_and_ours_send_the_same(
    form: Form, arguments: dict[str, Any], provider: Emulator, client: Any
) -> None:
    stock = form.make(openai, **arguments)
    bytes_in, types = [], []
    context = ssl.create_default_context(cafile=str(provider.certificate_authority))
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # with 1.3 the stock client loses one in a hundred requests
    for each, options in ((stock, {"ssl": context}), (client, {})):
        provider.clear()
        with each.responses.connect(websocket_connection_options=options) as connection:
            types.append([type(event) for event in turn(connection, input=[{"role": "user", "content": "déjà"}])])
        (log,) = responses_of(provider)
        bytes_in.append(log.prompt_tokens)
    stock.close()

    assert types[0] == types[1]
    assert bytes_in[0] == bytes_in[1]
