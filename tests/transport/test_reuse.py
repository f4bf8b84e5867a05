"""One connection for calls that follow each other, and a new one only where the old one is no good."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.transport.callers import text_of
from tests.transport.peer_h1 import CHUNKED, LAST_CHUNK
from tests.transport.scripted_server import Script, ScriptedServer, Seen, event

HELLO = event('{"choices": [{"index": 0, "delta": {"content": "Hello"}}]}')
STOP = event('{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}')
DONE = event("[DONE]")


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("apart", [False, True], ids=["in one write", "in writes of their own"])
def test_body_end_directly_after_done_keeps_the_connection(make_caller: Any, apart: bool) -> None:
    pieces = (CHUNKED, HELLO, STOP, DONE)
    body = Script([*pieces, 0.01, LAST_CHUNK] if apart else [b"".join(pieces) + LAST_CHUNK])
    with (
        ScriptedServer(lambda _: body) as server,
        make_caller(base_url=server.base_url, api_key="sk-test") as caller,
    ):
        for _ in range(5):
            assert text_of(caller.read()) == "Hello"

        assert server.connections == 1
    assert [call.outcome for call in caller.calls] == ["completed"] * 5


# What goes on does so for ten minutes, which is longer than any test may take.
GOES_ON = [piece for _ in range(120_000) for piece in (event(": more"), 0.005)]


@pytest.mark.parametrize("ending", ["none", "more", "broken off"])
def test_body_without_end_after_done_costs_one_connection(make_caller: Any, ending: str) -> None:
    never = threading.Event()
    rest: dict[str, list[Any]] = {"none": [never], "more": GOES_ON, "broken off": []}
    script = Script([CHUNKED, HELLO, STOP, DONE, *rest[ending]], closes=ending == "broken off")
    with (
        ScriptedServer(lambda _: script) as server,
        make_caller(base_url=server.base_url, api_key="sk-test", timeout=20) as caller,
    ):
        for _ in range(3):
            assert text_of(caller.read()) == "Hello"
        never.set()

        assert server.connections == 3
    assert [call.outcome for call in caller.calls] == ["completed"] * 3


def test_refusal_with_endless_body_is_retried_elsewhere(make_caller: Any) -> None:
    limited = b"HTTP/1.1 429 Too Many\r\ncontent-length: 1000\r\nretry-after-ms: 1\r\n\r\n{"
    never = threading.Event()

    def respond(seen: Seen) -> Script:
        if seen.connection == 1:
            return Script([limited, never])
        return Script([CHUNKED, HELLO, STOP, DONE, LAST_CHUNK])

    with (
        ScriptedServer(respond) as server,
        make_caller(base_url=server.base_url, api_key="sk-test", timeout=20) as caller,
    ):
        assert text_of(caller.read()) == "Hello"
        never.set()

        assert server.connections == 2
    assert [attempt.status_code for attempt in caller.last_call.attempts] == [429, 200]
