"""Whatever a client sends, the server answers or closes, and serves the next one."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from fastlane.emulator import Emulator
from tests.emulator.raw_http2 import ended
from tests.emulator.requests import chat, raw_http2

NAMES = [
    "model", "messages", "input", "prompt", "role", "content", "tools", "type", "function", "name", "parameters", "n",
    "text", "tool_choice", "response_format", "json_schema", "schema", "stream", "stream_options", "include_usage",
    "stop", "format", "max_tokens", "max_output_tokens", "reasoning", "effort", "reasoning_effort", "instructions",
    "service_tier", "minimum", "properties", "items", "enum", "anyOf", "$ref", "required", "minItems", "multipleOf",
    "maxLength", "prompt_cache_key", "prompt_cache_options", "comparison_response_id", "verbosity",
]  # fmt: skip
WORDS = [
    "user", "function", "required", "json_schema", "json_object", "object", "array", "string", "integer", "f", "#", "",
]  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 40) | st.sampled_from(WORDS) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=25,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=8), VALUES, st.booleans())
def test_any_body_is_answered_or_refused(http: httpx2.Client, body: dict[str, Any], schema: Any, forced: bool) -> None:
    tool = {"type": "function", "name": "f", "function": {"name": "f", "parameters": schema}, "parameters": schema}
    sound = {**chat(), "input": "x", "prompt": "x", **body}
    if forced:
        sound |= {"tools": [tool], "tool_choice": "required"}
    for path in ("/chat/completions", "/responses", "/completions"):
        answer = http.post(path, json=sound)
        assert answer.status_code in (200, 400)
        if answer.status_code == 200 and sound.get("stream") is not True:
            assert answer.json()["model"] == sound["model"]


def connect(emulator: Emulator, *, alpn: str = "http/1.1") -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(emulator.certificate_authority))
    context.set_alpn_protocols([alpn])
    raw = socket.create_connection(("127.0.0.1", urlsplit(emulator.direct_base_url).port or 0), timeout=40)
    return context.wrap_socket(raw, server_hostname="localhost")


def request(body: bytes, *headers: str) -> bytes:
    head = ["POST /v1/chat/completions HTTP/1.1", "host: localhost", "authorization: Bearer any", *headers]
    return "\r\n".join([*head, f"content-length: {len(body)}", "", ""]).encode() + body


def read_all(connection: ssl.SSLSocket) -> bytes:
    came = b""
    while data := connection.recv(65_536):
        came += data
    return came


def still_serves(emulator: Emulator) -> bool:
    with connect(emulator) as connection:
        connection.sendall(request(json.dumps(chat()).encode(), "connection: close"))
        return read_all(connection).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "garbage", [b"\x00" * 100 + b"\r\n\r\n", b"GET\r\n\r\n", b"x" * 300_000, b"POST / HTTP/1.1\r\n\r\n"]
)
def test_garbage_on_http1_ends_that_connection_alone(emulator: Emulator, garbage: bytes) -> None:
    with connect(emulator) as connection:
        try:
            connection.sendall(garbage)
            answer = read_all(connection)
        except (ConnectionError, ssl.SSLError):
            answer = b""

    assert answer[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.1 431")
    assert still_serves(emulator)


def test_garbage_on_http2_ends_that_connection_alone(emulator: Emulator) -> None:
    with connect(emulator, alpn="h2") as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000004 06 00 00000000 00000000"))
        read_all(connection)

    assert still_serves(emulator)


def test_pipelined_requests_are_answered_in_order(emulator: Emulator) -> None:
    with connect(emulator) as connection:
        first, second = (request(json.dumps(chat(text)).encode()) for text in ("a", "b"))
        third = request(json.dumps(chat("a")).encode(), "connection: close")
        connection.sendall(first + second + third)
        answers = read_all(connection).split(b"HTTP/1.1 200")[1:]

    bodies = [json.loads(answer.partition(b"\r\n\r\n")[2]) for answer in answers]
    assert bodies[0]["choices"] == bodies[2]["choices"] != bodies[1]["choices"]
    assert {record.connection_id for record in emulator.log()} == {emulator.log()[0].connection_id}


def test_client_that_waits_for_100_continue_gets_it(emulator: Emulator) -> None:
    body = json.dumps(chat()).encode()
    head = request(body, "expect: 100-continue", "connection: close").removesuffix(body)
    with connect(emulator) as connection:
        connection.sendall(head)
        assert connection.recv(1_000).startswith(b"HTTP/1.1 100")
        connection.sendall(body)
        assert read_all(connection).startswith(b"HTTP/1.1 200")


def test_unread_http1_stream_is_limited_by_backpressure(emulator: Emulator) -> None:
    with connect(emulator) as connection:
        body = json.dumps(chat(stream=True)).encode()
        connection.sendall(request(body, "x-emulator-output-tokens: 100000"))
        seen = 0
        # Until there are some, and no more of them than a while ago.
        while not seen or seen != emulator.log()[0].output_tokens:
            seen = sum(record.output_tokens for record in emulator.log())
            threading.Event().wait(0.2)

    assert seen < 100_000
    assert still_serves(emulator)


def test_stream_completes_after_client_goaway(emulator: Emulator) -> None:
    with raw_http2(emulator) as raw:
        asked = raw.post(chat(stream=True), x_emulator_token_ms="3")
        raw.read_until(lambda event: len(raw.body(asked)) > 1_000)
        raw.socket.sendall(bytes.fromhex("000008 07 00 00000000 00000000 00000000"))
        raw.read_until(ended(asked))
        raw.read_until(lambda event: False)

    assert raw.body(asked).endswith(b"[DONE]\n\n")
    assert raw.closed
