"""Servers of the benchmarks' own, each in a process of its own and, where the system allows it, on another core.

The embedded provider would be slower than some clients that are measured. All of these answer without a look at what is
asked for. `at_once` gives every request the same prepared completion, and `endless` writes prepared events as fast as
its clients take them, each as a DATA frame or a chunk of its own; both over TLS, HTTP/2 or HTTP/1.1. `collectors` are
collectors of OpenTelemetry's protocol, one that works and three that do not.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import select
import socket
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any
from unittest.mock import patch

from hpack.hpack import Encoder

from fastlane.emulator._server import make_tls

_SPAWN = multiprocessing.get_context("spawn")


@contextmanager
def child(
    serve: Callable[..., None], *arguments: Any, environment: Mapping[str, str] | None = None
) -> Iterator[Connection]:
    """Run `serve(connection, *arguments)` in a fresh process, which ends when its connection is closed."""
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=serve, args=(theirs, *arguments), daemon=True)
    with patch.dict(os.environ, environment or {}, clear=environment is not None):
        process.start()
    theirs.close()
    with ours:
        yield ours
    process.join()


@contextmanager
def trusted(authorities: Iterable[str]) -> Iterator[None]:
    """Trust these authorities (PEM), and no others, through SSL_CERT_FILE."""
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("".join(authorities))
        file.flush()
        with patch.dict(os.environ, SSL_CERT_FILE=file.name):
            yield


@contextmanager
def apart() -> Iterator[Callable[[], str]]:
    """Yield a function that moves this process off the cores of those that it has started, and says so."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) < 2:
        yield lambda: "not pinned"
        return

    def move() -> str:
        os.sched_setaffinity(0, cores[:1])
        return "client pinned to one, server to the others"

    os.sched_setaffinity(0, cores[1:])  # which a process that is started inherits
    try:
        yield move
    finally:
        os.sched_setaffinity(0, cores)


@contextmanager
def server_on_another_core(serve: Callable[[Connection], None]) -> Iterator[tuple[str, str]]:
    """Start `at_once` or `endless` on another core if there is one; yield its address and how the cores are shared."""
    with apart() as move, child(serve) as connection:
        cores = move()
        port, authority = connection.recv()
        with trusted([authority]):
            yield f"https://127.0.0.1:{port}/v1", cores


# What listens

_READ_BYTES = 262_144
_Speak = Callable[[Any], None]
"""Serves one connection to its end; an OSError ends it too."""


def _listen(speak: _Speak) -> int:
    """Serve every connection in a thread of its own, and return the port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)

    def one(sock: socket.socket) -> None:
        with contextlib.suppress(OSError), sock:
            speak(sock)

    def accept() -> None:
        while True:
            threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return int(listener.getsockname()[1])


def _serve(connection: Connection, http2: _Speak, http1: _Speak) -> None:
    """Send the port and the certificate authority, and serve until the connection is closed."""
    context, authority = make_tls("127.0.0.1", http2=True)

    def speak(sock: socket.socket) -> None:
        with context.wrap_socket(sock, server_side=True) as wrapped:
            wrapped.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            (http2 if wrapped.selected_alpn_protocol() == "h2" else http1)(wrapped)

    connection.send((_listen(speak), authority.decode()))
    connection.poll(None)


def _received(sock: Any) -> bytes:
    data: bytes = sock.recv(_READ_BYTES)
    if not data:
        raise ConnectionResetError
    return data


def _answer_http1(sock: Any, answer: bytes, seen: Callable[[int], object] = int) -> None:
    """Give every request the same answer, and call `seen` with the size of each body."""
    while True:
        buffer = b""  # a client that waits for its answer has sent nothing more
        while b"\r\n\r\n" not in buffer:
            buffer += _received(sock)
        head, _, body = buffer.partition(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        missing = size - len(body)
        while missing > 0:
            missing -= len(_received(sock))
        seen(size)
        sock.sendall(answer)


_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
_WINDOW, _LARGEST_WINDOW = 65_535, 2**31 - 1
_OWN_SETTINGS = ((3, 100), (4, _LARGEST_WINDOW))
_REFILL_BYTES = 2**30


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _window_update(increment: int) -> bytes:
    return _frame(_WINDOW_UPDATE, 0, 0, increment.to_bytes(4, "big"))


class _Http2:
    """A connection over HTTP/2, whose windows for requests never end."""

    def __init__(self, sock: Any) -> None:
        self._sock, self._buffer, self._unacknowledged = sock, b"", 0
        self.encode = Encoder().encode
        # The number of streams, which the stock client waits for, and the window of each.
        settings = b"".join(key.to_bytes(2, "big") + value.to_bytes(4, "big") for key, value in _OWN_SETTINGS)
        self.out = _frame(_SETTINGS, 0, 0, settings) + _window_update(_LARGEST_WINDOW - _WINDOW)
        while len(self._buffer) < 24:  # the client's preface
            self._buffer += _received(sock)
        self._buffer = self._buffer[24:]

    def frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Yield the kind, the flags, the stream and the payload of every whole frame that is there."""
        buffer = self._buffer
        while len(buffer) >= 9 and len(buffer) >= 9 + (length := int.from_bytes(buffer[:3], "big")):
            kind, flags, stream = buffer[3], buffer[4], int.from_bytes(buffer[5:9], "big")
            payload, buffer = buffer[9 : 9 + length], buffer[9 + length :]
            if kind in (_SETTINGS, _PING) and not flags & 1:
                self.out += _frame(kind, 1, 0, payload if kind == _PING else b"")
            self._unacknowledged += length if kind == _DATA else 0
            yield kind, flags, stream, payload
        self._buffer = buffer
        if self._unacknowledged > _REFILL_BYTES:
            self.out += _window_update(self._unacknowledged)
            self._unacknowledged = 0

    def flush(self) -> None:
        """Send what is to be sent."""
        if self.out:
            self._sock.sendall(self.out)
            self.out = b""

    def receive(self) -> None:
        """Wait for bytes."""
        self._buffer += _received(self._sock)


# One prepared completion

TEXT = "Your reservation has been changed."
_MESSAGE: dict[str, Any] = {"role": "assistant", "content": TEXT, "refusal": None, "annotations": []}
_OF_BOTH = {
    "id": "chatcmpl-9a1c63d2b7f84e05",
    "created": 1_700_000_000,
    "model": "prepared-1",
    "service_tier": "default",
    "system_fingerprint": "fp_b1a7e9c240",
}
_COMPLETION = _OF_BOTH | {
    "object": "chat.completion",
    "choices": [{"index": 0, "message": _MESSAGE, "logprobs": None, "finish_reason": "stop"}],
    "usage": {
        "prompt_tokens": 9_000,
        "completion_tokens": 6,
        "total_tokens": 9_006,
        "prompt_tokens_details": {"cached_tokens": 8_960, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    },
}
_BODY = json.dumps(_COMPLETION).encode()
_ANSWER_HEADERS = [
    ("date", "Tue, 14 Nov 2023 22:13:20 GMT"),
    ("content-type", "application/json"),
    ("content-length", str(len(_BODY))),
    ("openai-processing-ms", "412"),
    ("openai-version", "2020-10-01"),
    ("x-ratelimit-limit-requests", "10000"),
    ("x-ratelimit-remaining-requests", "9999"),
    ("x-request-id", "req_5f1c9e1f4e1b4b0d8d2a7c3b6a9d0e11"),
]
_HTTP1_HEADERS = "".join(f"{name}: {value}\r\n" for name, value in _ANSWER_HEADERS).encode()
_HTTP1_ANSWER = b"HTTP/1.1 200 OK\r\n" + _HTTP1_HEADERS + b"\r\n" + _BODY


def _answer_http2(sock: Any) -> None:
    http = _Http2(sock)
    while True:
        for kind, flags, stream, _ in http.frames():
            if kind in (_DATA, _HEADERS) and flags & 1:
                head = http.encode([(":status", "200"), *_ANSWER_HEADERS])
                http.out += _frame(_HEADERS, 4, stream, head) + _frame(_DATA, 1, stream, _BODY)
        http.flush()
        http.receive()


def at_once(connection: Connection) -> None:
    """Answer every request at once."""
    _serve(connection, _answer_http2, lambda sock: _answer_http1(sock, _HTTP1_ANSWER))


# Events without end

_DELTA = {"index": 0, "delta": {"content": " word"}, "logprobs": None, "finish_reason": None}
_CHUNK = _OF_BOTH | {"object": "chat.completion.chunk", "choices": [_DELTA], "obfuscation": "0123456789abcdef"}
_EVENT = b"data: " + json.dumps(_CHUNK, separators=(",", ":")).encode() + b"\n\n"
_EVENTS_AT_ONCE = 64
_HTTP1_CHUNKS = b"%x\r\n%s\r\n" % (len(_EVENT), _EVENT) * _EVENTS_AT_ONCE
_HTTP1_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _stream_http2(sock: Any) -> None:
    """Write the events of one connection's streams in turns. One thread reads and writes: TLS is not for two."""
    http = _Http2(sock)
    windows: dict[int, int] = {0: _WINDOW}  # of the connection at 0
    begun = _WINDOW
    while True:
        for kind, flags, stream, payload in http.frames():
            if kind == _HEADERS:
                windows[stream] = begun
                head = http.encode([(":status", "200"), ("content-type", "text/event-stream")])
                http.out += _frame(_HEADERS, 4, stream, head)
            elif kind == _RESET:
                windows.pop(stream, None)
            elif kind == _WINDOW_UPDATE and stream in windows:
                windows[stream] += int.from_bytes(payload, "big")
            elif kind == _SETTINGS and not flags & 1:
                values = {
                    payload[at + 1]: int.from_bytes(payload[at + 2 : at + 6], "big") for at in range(0, len(payload), 6)
                }
                begun = values.get(4, begun)
        going = [stream for stream in windows if stream and windows[stream] >= len(_EVENT)]
        times = min(_EVENTS_AT_ONCE // max(1, len(going)) or 1, 4)
        size = len(_EVENT) * times
        writes = bool(going) and windows[0] >= size * len(going) and all(windows[stream] >= size for stream in going)
        if writes:
            windows[0] -= size * len(going)
            for stream in going:
                windows[stream] -= size
            http.out += b"".join(_frame(_DATA, 0, stream, _EVENT) for stream in going) * times
        http.flush()
        if sock.pending() or select.select([sock], [], [], 0 if writes else 0.05)[0]:
            http.receive()


def _stream_http1(sock: Any) -> None:
    asked = b""
    while b"\r\n\r\n" not in asked:
        asked += _received(sock)
    sock.sendall(_HTTP1_HEAD)
    while True:
        sock.sendall(_HTTP1_CHUNKS)


def endless(connection: Connection) -> None:
    """Write events as fast as they are taken."""
    _serve(connection, _stream_http2, _stream_http1)


# Collectors

_TAKEN = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n"
_FAILED = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n"


def collectors(connection: Connection) -> None:
    """Send the port of each collector and, when asked, how many requests and bytes each has got."""
    got: Counter[str] = Counter()

    def answering(name: str, answer: bytes) -> _Speak:
        def seen(size: int) -> None:
            got.update({f"{name}_requests": 1, f"{name}_bytes": size})

        return lambda sock: _answer_http1(sock, answer, seen)

    def hang(sock: socket.socket) -> None:
        got["hangs_requests"] += 1
        while _received(sock):
            pass

    with socket.socket() as reserved, contextlib.suppress(EOFError):
        reserved.bind(("127.0.0.1", 0))  # and never listens
        ports = {"refuses": int(reserved.getsockname()[1]), "hangs": _listen(hang)}
        answers = {"healthy": _TAKEN, "fails": _FAILED}
        connection.send(ports | {name: _listen(answering(name, answer)) for name, answer in answers.items()})
        while True:
            connection.recv()
            connection.send(dict(got))
