"""Wherever a call waits and however its wait ends: the right error, a cancelled request, and no harm to other calls."""

from __future__ import annotations

import socket
from concurrent.futures import CancelledError
from time import perf_counter_ns as now_ns
from typing import Any, Self

import httpx2
import pytest

from fastlane.transport import PATIENCE, PHASES, Patience, Phases
from tests.transport.faces import FACES, Pending
from tests.transport.peer import CANCEL, INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS, Peer, by_path, one_piece, silent
from tests.transport.peer_h1 import CHUNKED, OK, PeerH1, Request1, SlowAnswer, chunk
from tests.waiting import comes_true, until

SOON_S = 0.3
TIMEOUTS = {"connect": "connect", "place": "pool", "upload": "write", "head": "read", "body": "read"}
"""Where a call waits, and which of its timeouts that is."""
ERRORS = {
    "connect": httpx2.ConnectTimeout,
    "pool": httpx2.PoolTimeout,
    "write": httpx2.WriteTimeout,
    "read": httpx2.ReadTimeout,
}
CASES = [
    (wait, end, version, kind)
    for wait in TIMEOUTS
    for end in ("given up", "deadline", "timeout", "cancelled")
    for version in ("HTTP/2", "HTTP/1.1")
    for kind in FACES
    if (kind == "async" or end != "cancelled") and (version == "HTTP/2" or wait != "connect")
]


class Servers:
    """A server of either protocol, and one that takes connections and says nothing."""

    def __init__(self, wait: str, version: str) -> None:
        self.slow = SlowAnswer()
        self.release = self.slow.release
        """Ends the answer of /slow, and the patience of an HTTP/1.1 server that does not read."""
        settings = {"place": {MAX_CONCURRENT_STREAMS: 1}, "upload": {INITIAL_WINDOW_SIZE: 0}}.get(wait)
        scripts = by_path(head=silent, upload=silent, body=one_piece, holds=one_piece, slow=self.slow.h2)
        self.h2 = Peer(scripts, settings=settings, grants=wait != "upload")
        self.h1 = PeerH1(self._h1)
        self.mute = socket.create_server(("127.0.0.1", 0))
        self.peer: Any = self.h2 if version == "HTTP/2" else self.h1
        self.url = self.peer.url if wait != "connect" else f"https://127.0.0.1:{self.mute.getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.release.set()
        self.h2.__exit__(kind)
        self.h1.__exit__(kind)
        self.mute.close()

    def _h1(self, request: Request1) -> None:
        if request.target == "/next":
            request.body()
            request.send(OK)
            return
        if request.target == "/upload":
            request.hold(self.release)
            request.close()
            return
        if request.target in ("/body", "/holds"):
            request.send(CHUNKED, chunk(b"piece"))
        request.left()

    @property
    def asked(self) -> list[str]:
        return [stream.path for stream in self.h2.requests] + [request.target for request in self.h1.requests]

    def was_cancelled(self) -> bool:
        """Whether the server knows that the call was abandoned."""
        if isinstance(self.peer, Peer):
            return comes_true(lambda: self.h2.resets == [CANCEL])
        self.release.set()
        return self.h1.left.acquire(timeout=30)


def error_of(call: Pending) -> BaseException | None:
    try:
        return call.error()
    except CancelledError as error:
        return error


def sees_end_of_stream(connection: socket.socket) -> bool:
    """Whether the client closes a connection without a response."""
    connection.settimeout(30)
    with connection:
        try:
            while connection.recv(65_536):
                pass
        except ConnectionResetError:
            pass
        except TimeoutError:
            return False
    return True


@pytest.mark.parametrize(("wait", "end", "version", "kind"), CASES)
def test_ended_wait_cancels_upstream_and_harms_no_other_call(wait: str, end: str, version: str, kind: str) -> None:
    patience, phases = Patience(), Phases()
    timeout = httpx2.Timeout(30, **({TIMEOUTS[wait]: SOON_S} if end == "timeout" else {}))
    with Servers(wait, version) as servers, FACES[kind](servers.url, max_connections=1) as face:
        shares = version == "HTTP/2" and wait in ("upload", "head", "body")
        other = face.open("/slow") if shares else face.open("/holds") if wait == "place" else None
        if end == "deadline":
            patience.until_ns = now_ns() + int(SOON_S * 1e9)
        content = bytes(40 << 20) if wait == "upload" else None
        options = {"extensions": {PATIENCE: patience, PHASES: phases}, "timeout": timeout, "content": content}
        call = face.begin(f"/{wait}", "POST" if content else "GET", **options)
        opened = servers.mute.accept()[0] if wait == "connect" else None
        if end in ("given up", "cancelled"):
            reached: dict[str, Any] = {
                "connect": lambda: opened is not None,
                "place": lambda: phases.connection_wait_started_ns is not None,
                "body": lambda: len(phases.data_ns) > 0,
            }
            until(reached.get(wait, lambda: f"/{wait}" in servers.asked))
            assert not call.future.done()
            if end == "given up":
                patience.give_up()
                patience.give_up()
            else:
                call.cancel()
        error = error_of(call)

        if end == "given up":
            assert isinstance(error, httpx2.ReadError)
            assert str(error) == "The request was given up."
        elif end == "cancelled":
            assert isinstance(error, CancelledError)
        else:
            assert isinstance(error, ERRORS[TIMEOUTS[wait]] if end == "timeout" else httpx2.TimeoutException)
            assert end == "timeout" or now_ns() >= (patience.until_ns or 0)
        if opened is not None:
            # A cancelled task leaves the connection to the next call.
            assert end == "cancelled" or sees_end_of_stream(opened)
            opened.close()
            return
        if other is not None and wait == "place":
            other.close()
        elif other is not None:
            assert servers.was_cancelled()
            servers.release.set()
            assert other.rest() in (b"last", b"first last")
        else:
            assert servers.was_cancelled()
        # The pool has one connection: what was not given back would be missed.
        servers.release.set()
        assert face.get("/next").content == b"ok"
        assert wait != "place" or "/place" not in servers.asked
        assert version == "HTTP/1.1" or len(servers.h2.connections) == 1
