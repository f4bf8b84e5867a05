"""Collectors of OpenTelemetry's protocol, one that works and three that do not, in a process of their own.

Says the port of each, and when it is asked how many bytes the one that works was sent, and how often the others were
asked. Nothing listens at the port of the one that refuses.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Callable

from benchmarks._child import questions, say
from benchmarks._serving import answer_http1

_OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n"
_FAILED = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n"

taken: Counter[str] = Counter()


def _answering(name: str, answer: bytes) -> Callable[[socket.socket], None]:
    def seen(size: int) -> None:
        taken[f"{name}_requests"] += 1
        taken[f"{name}_bytes"] += size

    return lambda sock: answer_http1(sock, answer, seen)


def _hang(sock: socket.socket) -> None:
    taken["hangs_requests"] += 1
    while sock.recv(65_536):
        pass


def _listen(serve: Callable[[socket.socket], None]) -> int:
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)

    def one(sock: socket.socket) -> None:
        with contextlib.suppress(OSError), sock:
            serve(sock)

    def accept() -> None:
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=one, args=(sock,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return int(listener.getsockname()[1])


if __name__ == "__main__":
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # and never listens
        ports = {
            "healthy": _listen(_answering("healthy", _OK)),
            "fails": _listen(_answering("fails", _FAILED)),
            "hangs": _listen(_hang),
            "refuses": reserved.getsockname()[1],
        }
        say(ports)
        for _ in questions():
            say(taken)
