"""Responses over WebSocket as the emulator serves them: lanes, memory, limits and faults."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect
from websockets.sync.connection import Connection

from fastlane.emulator import Emulator

CREATE: dict[str, Any] = {"type": "response.create", "model": "m", "input": "Hello"}
SHORT = {"x-emulator-output-tokens": "3"}
ENDS = ("response.completed", "error")


def opened(emulator: Emulator, trust: ssl.SSLContext, **headers: str) -> ClientConnection:
    headers = {"authorization": "Bearer secret-key", **SHORT, **headers}
    url = emulator.base_url.replace("https", "wss") + "/responses"
    return connect(url, ssl=trust, additional_headers=headers, max_size=None)


@pytest.fixture
def trust(emulator: Emulator) -> ssl.SSLContext:
    """One of its own: httpx2 writes into a context that it offers HTTP/2.

    With TLS 1.3 one in a hundred requests is lost: two threads of `websockets` write it and read tickets at once.
    """
    context = ssl.create_default_context(cafile=str(emulator.certificate_authority))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


@pytest.fixture
def socket(emulator: Emulator, trust: ssl.SSLContext) -> Iterator[Connection]:
    with opened(emulator, trust) as socket:
        yield socket


def events(socket: Connection, count: int = 1) -> list[dict[str, Any]]:
    """Return all events up to the last one of so many responses."""
    found: list[dict[str, Any]] = []
    while count:
        found.append(json.loads(socket.recv(timeout=30)))
        count -= found[-1]["type"] in ENDS
    return found


def ask(socket: Connection, **fields: Any) -> dict[str, Any]:
    """Send one turn; return its last event."""
    socket.send(json.dumps({**CREATE, **fields}))
    return events(socket)[-1]


def code(event: dict[str, Any]) -> Any:
    return event["error"]["code"]


def test_other_connection_does_not_know_the_response(
    socket: Connection, emulator: Emulator, trust: ssl.SSLContext
) -> None:
    known = ask(socket)["response"]["id"]
    with opened(emulator, trust) as other:
        assert code(ask(other, previous_response_id=known)) == "previous_response_not_found"


def test_lane_is_first_in_first_out_and_lanes_overlap(socket: Connection) -> None:
    slow = {"metadata": {"x-emulator-prefill-ms": "300"}}
    for lane, fields in (("a", slow), ("a", {}), ("b", {})):
        socket.send(json.dumps({**CREATE, **fields, "stream_id": lane}))
    ends = [event for event in events(socket, 3) if event["type"] in ENDS]

    assert [event["stream_id"] for event in ends] == ["b", "a", "a"]
    numbers = [int(event["response"]["id"].removeprefix("resp_")) for event in ends]
    assert numbers[1] < numbers[2] < numbers[0]


def test_seventeenth_response_waits_for_a_place(socket: Connection) -> None:
    slow = {"metadata": {"x-emulator-prefill-ms": "300"}}
    for number in range(17):
        socket.send(json.dumps({**CREATE, **slow, "stream_id": f"lane-{number}"}))
    types = [event["type"] for event in events(socket, 17)]

    assert types.count("response.created") == types.count("response.completed") == 17
    assert types.index("response.completed") < len(types) - 1 - types[::-1].index("response.created")


def test_thirty_third_name_is_refused(socket: Connection) -> None:
    for number in range(32):
        ask(socket, stream_id=f"lane-{number}")

    assert code(ask(socket, stream_id="one too many")) == "too_many_stream_ids"
    assert ask(socket, stream_id="lane-0")["type"] == "response.completed"


def test_preparing_generates_nothing_and_can_be_continued(socket: Connection) -> None:
    prepared = ask(socket, generate=False)["response"]

    assert (prepared["output"], prepared["usage"]["output_tokens"]) == ([], 0)
    assert ask(socket, previous_response_id=prepared["id"])["type"] == "response.completed"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("{", "invalid_json"),
        ("[]", "invalid_value"),
        ('{"type":"response.cancel"}', "invalid_value"),
        ('{"type":"response.create","stream_id":1}', "invalid_type"),
        ('{"type":"response.create"}', "missing_required_parameter"),
    ],
)
def test_invalid_message_is_an_error_event(socket: Connection, message: str, expected: str) -> None:
    socket.send(message)
    (event,) = events(socket)

    assert (event["status"], code(event)) == (400, expected)
    assert ask(socket)["type"] == "response.completed"


def test_steering_is_not_supported(socket: Connection) -> None:
    socket.send(json.dumps({"type": "response.steer", "previous_response_id": "resp_1", "input": "Stop"}))
    event = json.loads(socket.recv(timeout=30))

    assert (event["type"], code(event)) == ("response.steer.failed", "steering_not_supported")
