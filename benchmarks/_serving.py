"""The part of the benchmarks' own servers that listens: TLS, a thread for each connection, the protocol by its ALPN."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

from benchmarks._child import say
from fastlane.emulator._server import make_tls

_READ_BYTES = 262_144

Speak = Callable[[Any], None]
"""Serve one connection to its end; an OSError ends it too."""


def serve(http2: Speak, http1: Speak) -> None:
    """Say the port and the certificate authority on stdout, and serve until stdin ends."""
    context, authority_pem = make_tls("127.0.0.1", http2=True)

    def one(sock: socket.socket) -> None:
        with contextlib.suppress(OSError), context.wrap_socket(sock, server_side=True) as wrapped:
            wrapped.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            (http2 if wrapped.selected_alpn_protocol() == "h2" else http1)(wrapped)

    def accept(listener: socket.socket) -> None:
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=one, args=(sock,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        say({"port": listener.getsockname()[1], "authority": authority_pem.decode()})
        sys.stdin.read()


def answer_http1(sock: Any, answer: bytes, seen: Callable[[int], object] = int) -> None:
    """Give every request of a connection the same answer, and tell the size of each body; to the connection's end."""
    buffer = b""
    while True:
        while b"\r\n\r\n" not in buffer:
            data = sock.recv(_READ_BYTES)
            if not data:
                return
            buffer += data
        head, _, buffer = buffer.partition(b"\r\n\r\n")
        _, _, rest = head.lower().partition(b"content-length:")
        size = int(rest.partition(b"\r\n")[0])
        missing = size - len(buffer)
        while missing > 0:
            data = sock.recv(_READ_BYTES)
            if not data:
                return
            missing -= len(data)
        buffer = b""  # a client that waits for its answer has sent nothing more
        seen(size)
        sock.sendall(answer)
