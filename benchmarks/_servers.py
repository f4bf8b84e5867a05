"""Servers of the benchmarks' own, each in a process of its own and, where the system allows it, on another core.

`at_once` gives every request the same prepared completion, over TLS, HTTP/2 or HTTP/1.1: the embedded provider would
take longer than some clients that are measured. `collectors` are collectors of OpenTelemetry's protocol, one that works
and three that do not.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import socket
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any
from unittest.mock import patch

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, StreamEnded
from h2.settings import SettingCodes

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
def server_on_another_core() -> Iterator[tuple[str, str]]:
    """Start `at_once` on another core if there is one; yield its address and how the cores are shared."""
    with apart() as move, child(at_once) as connection:
        cores = move()
        port, authority = connection.recv()
        with trusted([authority]):
            yield f"https://127.0.0.1:{port}/v1", cores


# What listens

_READ_BYTES, _LARGEST_WINDOW = 262_144, 2**31 - 1
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


# One prepared completion

TEXT = "Your reservation has been changed."
_MESSAGE: dict[str, Any] = {"role": "assistant", "content": TEXT, "refusal": None, "annotations": []}
_COMPLETION = {
    "id": "chatcmpl-9a1c63d2b7f84e05",
    "object": "chat.completion",
    "created": 1_700_000_000,
    "model": "prepared-1",
    "service_tier": "default",
    "system_fingerprint": "fp_b1a7e9c240",
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
    http = H2Connection(H2Configuration(client_side=False, header_encoding=None))
    http.initiate_connection()
    # No request ever waits for a window.
    http.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: _LARGEST_WINDOW})
    http.increment_flow_control_window(_LARGEST_WINDOW - 65_535)
    while True:
        sock.sendall(http.data_to_send())
        for event in http.receive_data(_received(sock)):
            if isinstance(event, DataReceived):
                http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, StreamEnded):
                http.send_headers(event.stream_id, [(":status", "200"), *_ANSWER_HEADERS])
                http.send_data(event.stream_id, _BODY, end_stream=True)


def at_once(connection: Connection) -> None:
    """Answer every request at once, until the connection is closed; send the port and the certificate authority."""
    context, authority = make_tls("127.0.0.1", http2=True)

    def speak(sock: socket.socket) -> None:
        with context.wrap_socket(sock, server_side=True) as wrapped:
            wrapped.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if wrapped.selected_alpn_protocol() == "h2":
                _answer_http2(wrapped)
            else:
                _answer_http1(wrapped, _HTTP1_ANSWER)

    connection.send((_listen(speak), authority.decode()))
    connection.poll(None)


def connect_proxy(connection: Connection) -> None:
    """Open tunnels by CONNECT, until the connection is closed; send the port."""

    def pass_on(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_READ_BYTES):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def speak(client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += _received(client)
        host, _, port = head.split()[1].decode().rpartition(":")
        with socket.create_connection((host, int(port))) as server:
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            threading.Thread(target=pass_on, args=(server, client), daemon=True).start()
            pass_on(client, server)

    connection.send(_listen(speak))
    connection.poll(None)


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
