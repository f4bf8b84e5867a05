"""A server that sends one canned stream as fast as it is read, for measuring what a client can take."""

from __future__ import annotations

import json
import socket
import threading
from multiprocessing.connection import Connection
from typing import Final

STREAM_CHUNKS: Final = 2_000
"""Chunks with output in each answer."""

_READ: Final = 65_536
_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
    b"x-request-id: calibration\r\n\r\n"
)


def _event(delta: dict[str, str], finish_reason: str | None = None) -> bytes:
    chunk = {
        "id": "chatcmpl-calibration000000000000000",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "calibration",
        "service_tier": "default",
        "system_fingerprint": "fp_0000000000",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}],
    }
    return _framed(b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n")


def _framed(event: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(event), event)


def canned_stream() -> bytes:
    """Return one whole answer: each event in an HTTP chunk of its own, as servers send them."""
    return (
        _HEAD
        + _event({"role": "assistant", "content": ""})
        + _event({"content": " token"}) * STREAM_CHUNKS
        + _event({}, "stop")
        + _framed(b"data: [DONE]\n\n")
        + b"0\r\n\r\n"
    )


def serve(pipe: Connection) -> None:
    """Answer every request on a port of loopback, which is sent through `pipe`, until `pipe` ends.

    For a process of its own: the sender must not take the interpreter from the client that is measured.
    """
    answer = canned_stream()
    with pipe, socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_accept, args=(listening, answer), daemon=True).start()
        pipe.send(listening.getsockname()[1])
        try:
            pipe.recv()
        except (EOFError, OSError):
            return


def _accept(listening: socket.socket, answer: bytes) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:  # Closed: the end.
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_answer, args=(connection, answer), daemon=True).start()


def _answer(connection: socket.socket, answer: bytes) -> None:
    waiting: bytes | None = b""
    with connection:
        try:
            while waiting is not None and (waiting := _after_request(connection, waiting)) is not None:
                connection.sendall(answer)
        except OSError:  # The client has gone.
            return


def _after_request(connection: socket.socket, waiting: bytes) -> bytes | None:
    """Read one whole request, and return what came after it; None where the client has closed."""
    while b"\r\n\r\n" not in waiting:
        if not (read := connection.recv(_READ)):
            return None
        waiting += read
    head, _, body = waiting.partition(b"\r\n\r\n")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in head.split(b"\r\n"))
    }
    if b"chunked" in headers.get(b"transfer-encoding", b""):
        while b"0\r\n\r\n" not in body:
            if not (read := connection.recv(_READ)):
                return None
            body += read
        return body.partition(b"0\r\n\r\n")[2]
    length = int(headers.get(b"content-length", b"0"))
    while len(body) < length:
        if not (read := connection.recv(_READ)):
            return None
        body += read
    return body[length:]
