"""CPU time grows as the input does, for every reader and each kind of input that might have it grow faster."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from fastlane.protocol.assembly import assembly_of
from fastlane.protocol.events import EventReader, EventSplitter
from fastlane.protocol.json_scanner import JsonScanner
from fastlane.transport import Phases
from fastlane.transport.protocols.exchange import Exchange, TransportError
from fastlane.transport.protocols.h1 import Http1Connection
from fastlane.transport.protocols.h2 import Http2Connection
from tests.fuzz.targets import _batch, _rate_limits
from tests.transport.h2_peer import head_bytes, raw_frame, request_head

FACTOR = 8
MOST_RATIO = 20.0
"""8 times the input takes 8 times as long where time grows as it does, and 64 times where it grows with the square."""
LARGEST = 4 << 20


def read_events(pieces: Sequence[bytes]) -> None:
    for reader in (EventReader(), EventSplitter()):
        for piece in pieces:
            for _ in reader.feed(piece):
                pass
            if getattr(reader, "stopped", False):
                break


def read_json(pieces: Sequence[bytes]) -> None:
    scanner = JsonScanner()
    for piece in pieces:
        scanner.feed(piece.decode())


def receive(connection: Any, pieces: Sequence[bytes]) -> None:
    exchange = Exchange(request_head(), Phases())
    connection.begin(exchange, end=True)
    try:
        for number, piece in enumerate(pieces):
            connection.receive(piece, number)
    except TransportError:
        pass


def receive_h1(pieces: Sequence[bytes]) -> None:
    receive(Http1Connection(), pieces)


def receive_h2(pieces: Sequence[bytes]) -> None:
    connection = Http2Connection()
    connection.start(0)
    receive(connection, [raw_frame(4, 0, 0), *pieces])


def assemble(events: Sequence[Any]) -> None:
    assembly = assembly_of("/chat/completions")
    assert assembly is not None
    for event in events:
        assembly.take(event)
    assembly.body()


def read_batch(pieces: Sequence[bytes]) -> None:
    _batch.check_line(pieces[0])


def read_limits(pieces: Sequence[bytes]) -> None:
    _rate_limits.check_readers(pieces[0].decode())


def tools(size: int, named: Callable[[int], dict[str, Any]]) -> list[Any]:
    calls = [[{"function": {"name": "f", "arguments": "x"}, **named(number)}] for number in range(size // 64)]
    return [{"id": "c", "choices": [{"index": 0, "delta": {"tool_calls": call}}]} for call in calls]


def texts(size: int, index: Callable[[int], int]) -> list[Any]:
    return [{"choices": [{"index": index(at), "delta": {"content": "x"}}]} for at in range(size // 64)]


def large_frames(size: int) -> bytes:
    return head_bytes(1) + raw_frame(0, 0, 1, bytes(16_000)) * (size // 16_000)


WHOLE = 1 << 30
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
JOB = b'{"custom_id":"a","url":"/v1/chat/completions","body":{"model":"m",'
# What reads it, in pieces of how many bytes, and an input of about so many bytes.
CASES: dict[str, tuple[Callable[[Any], None], int, Callable[[int], Any]]] = {
    "one long event": (read_events, 64, lambda size: b"data: " + b"x" * size + b"\n\n"),
    "a long line behind \\r": (read_events, 64, lambda size: b":\r\ndata: " + b"x" * size + b"\r\n\r\n"),
    "a line without an end": (read_events, 64, lambda size: b":\r\n" + b"x" * size),
    "many comments": (read_events, 64, lambda size: b": \n\n" * (size // 4)),
    "many lines of one event": (read_events, 64, lambda size: b"data: x\n" * (size // 8) + b"\n"),
    "many events at once": (read_events, WHOLE, lambda size: b"data: x\n\n" * (size // 9)),
    "a long text": (read_json, 16, lambda size: b'"' + b"x" * size + b'"'),
    "escapes": (read_json, 16, lambda size: b'"' + b"\\u00e9" * (size // 6) + b'"'),
    "a long number": (read_json, 16, lambda size: b"1" * size + b" "),
    "deep arrays": (read_json, 16, lambda size: b"[" * size),
    "many properties": (read_json, 16, lambda size: b"{" + b'"a":1,' * (size // 6)),
    "a fence": (read_json, 16, lambda size: b"`" * size),
    "blanks behind a fence": (read_json, 16, lambda size: b"```\n" + b"\n" * size + b"{}"),
    "small chunks": (receive_h1, WHOLE, lambda size: CHUNKED + b"1\r\na\r\n" * (size // 6)),
    "small chunks byte by byte": (receive_h1, 1, lambda size: CHUNKED + b"1\r\na\r\n" * (size // 6)),
    "one large chunk": (receive_h1, 64, lambda size: CHUNKED + b"%x\r\n" % size + b"a" * size),
    "a body of a stated length": (receive_h1, 64, lambda size: SIZED % size + b"a" * size),
    "a long line of a size": (receive_h1, 64, lambda size: CHUNKED + b"1;" + b" " * size),
    "a head in small reads": (receive_h1, 64, lambda size: b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * (size // 6)),
    "a long head of blanks": (receive_h1, 1_000, lambda size: b"HTTP/1.1 200 OK\r\nX:" + b" " * size),
    "empty lines in front": (receive_h1, 64, lambda size: b"\r\n" * (size // 2)),
    "small DATA frames": (receive_h2, WHOLE, lambda size: head_bytes(1) + raw_frame(0, 0, 1, b"x" * 7) * (size // 16)),
    "large DATA frames": (receive_h2, 64, large_frames),
    "many fields": (receive_h2, WHOLE, lambda size: raw_frame(1, 4, 1, (b"\0\1a\1b" * (size // 5))[:16_384])),
    "fields out of the table": (receive_h2, WHOLE, lambda size: raw_frame(1, 4, 1, (b"\x88" * size)[:16_384])),
    "pieces of a text": (assemble, 1, lambda size: texts(size, lambda _: 0)),
    "pieces of arguments": (assemble, 1, lambda size: tools(size, lambda _: {"index": 0, "id": "a"})),
    "many tools": (assemble, 1, lambda size: tools(size, lambda number: {"index": number, "id": f"{number}"})),
    "tools without an index": (assemble, 1, lambda size: tools(size, lambda number: {"id": f"{number}"})),
    "tools of one index": (assemble, 1, lambda size: tools(size, lambda number: {"index": 0, "id": f"{number}"})),
    "many choices": (assemble, 1, lambda size: texts(size, lambda number: number)),
    "deep lists": (read_batch, WHOLE, lambda size: b"[" * size),
    "many messages": (read_batch, WHOLE, lambda size: JOB + b'"messages":['
                      + b",".join([b'{"role":"user","content":"x"}'] * (size // 30)) + b"]}}"),
    "unknown arguments": (read_batch, WHOLE, lambda size: JOB + b'"messages":[],'
                          + b",".join(b'"a%d":1' % number for number in range(size // 10)) + b"}}"),
    "many digits": (read_limits, WHOLE, lambda size: b"1" * size),
    "many blanks": (read_limits, WHOLE, lambda size: b" " * size + b"1"),
}  # fmt: skip


def least_s(feed: Callable[[Any], None], step: int, data: Any, times: int) -> float:
    """Return the least CPU time of several runs: what else the machine does makes a run longer, never shorter."""
    pieces = [data[at : at + step] for at in range(0, len(data), step)] if isinstance(data, bytes) else data
    least = float("inf")
    gc.disable()
    try:
        for _ in range(times):
            began = time.thread_time()
            feed(pieces)
            least = min(least, time.thread_time() - began)
    finally:
        gc.enable()
    return least


def ratio(feed: Callable[[Any], None], step: int, make: Callable[[int], Any]) -> float:
    """Return how much longer FACTOR times the input takes; 0 if even that takes no time worth a measurement."""
    size = 2_048
    least_s(feed, step, make(size), 1)  # what is imported or remembered once
    while least_s(feed, step, make(size), 2) < 0.01 and size < LARGEST // FACTOR:
        size *= 2
    short = long = found = float("inf")
    for _ in range(3):
        short = min(short, least_s(feed, step, make(size), 2))
        long = min(long, least_s(feed, step, make(size * FACTOR), 2))
        found = long / short if long > 0.05 else 0.0
        if found <= MOST_RATIO:
            break
    return found


@pytest.mark.parametrize("case", CASES)
def test_time_grows_about_as_the_input_does(case: str) -> None:
    assert ratio(*CASES[case]) <= MOST_RATIO


@pytest.mark.slow
def test_quadratic_growth_is_detected() -> None:
    def forgetful(pieces: Sequence[bytes]) -> None:
        kept = b""
        for piece in pieces:
            kept += piece
            kept.find(b"xy")  # from the start each time

    assert ratio(forgetful, 1, lambda size: b"x" * (size // 8)) > MOST_RATIO
