"""A small HTTP/1.1 server on real sockets that answers with the bytes it is given, in the pieces it is given."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.transport.peer_h1 import PeerH1, Request1, chunk


@dataclass(frozen=True, slots=True)
class Script:
    """One answer: bytes are sent in a write of their own, a number is a pause in seconds, an event is awaited."""

    pieces: Sequence[bytes | float | threading.Event]
    closes: bool = False
    """End the connection after the answer."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as it came."""

    connection: int
    path: str
    body: bytes


def event(data: str) -> bytes:
    """One server-sent event in a chunk of its own."""
    return chunk(f"data: {data}\n\n".encode())


class ScriptedServer(PeerH1):
    """Answers each request by the script that `respond` gives for it."""

    def __init__(self, respond: Callable[[Seen], Script]) -> None:
        super().__init__(self._follow)
        self._script_of = respond

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    def _follow(self, request: Request1) -> None:
        script = self._script_of(Seen(request.connection, request.target, request.body()))
        for piece in script.pieces:
            if isinstance(piece, bytes):
                request.send(piece)
            elif isinstance(piece, threading.Event):
                request.hold(piece)
            else:
                time.sleep(piece)
        if script.closes:
            request.close()
