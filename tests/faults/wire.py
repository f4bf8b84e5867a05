"""What a script does to one request, over either protocol, and the servers that follow scripts and count."""

from __future__ import annotations

import contextlib
import gzip
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import hpack
from hyperframe.frame import HeadersFrame

from tests.transport.peer import HANG_S, Peer, Stream
from tests.transport.peer_h1 import LAST_CHUNK, PeerH1, Request1, chunk

DRIP_S = 0.1
"""Between two bytes of what is dripped: far less than any read timeout."""


@dataclass
class Counts:
    """What the server saw: the requests, those that it began to generate for, and keys where none belongs."""

    requests: int = 0
    begun: int = 0
    keys_elsewhere: int = 0
    """Requests with a key at another origin than the one that the client was made for."""
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)


class Received:
    """One request over either protocol."""

    def __init__(self, server: Server, method: str, path: str, body: bytes, encoding: str | None) -> None:
        self.server = server
        self.method = method
        self.path = path
        self.large_bytes = server.large_bytes
        if encoding == "gzip":
            body = gzip.decompress(body)
        read: Any = json.loads(body) if body else {}
        self.streamed = bool(read.get("stream"))
        """Whether the client asks for an event stream, as some plays do underneath."""
        self.with_usage = bool((read.get("stream_options") or {}).get("include_usage"))

    def begin(self) -> None:
        """The model begins to generate, and the provider to bill."""
        with self.server.counts.lock:
            self.server.counts.begun += 1

    @property
    def kind(self) -> str:
        return "text/event-stream" if self.streamed else "application/json"


class WireH1(Received):
    def __init__(self, server: Server, request: Request1) -> None:
        body = request.body()
        super().__init__(server, request.method, request.target, body, request.header("content-encoding"))
        self._request = request
        self._chunked = True

    def head(
        self,
        status: int = 200,
        kind: str | None = None,
        headers: Iterable[tuple[str, str]] = (),
        *,
        length: int | None = None,
    ) -> None:
        self._chunked = length is None
        framing = ("transfer-encoding", "chunked") if length is None else ("content-length", str(length))
        fields = [("content-type", kind or self.kind), framing, *headers]
        lines = [f"HTTP/1.1 {status} Whatever", *(f"{name}: {value}" for name, value in fields), "", ""]
        self._request.send("\r\n".join(lines).encode("latin-1"))

    def head_dripped(self) -> None:
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {self.kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
        for at in range(0, len(head), 2):
            self._request.send(head[at : at + 2])
            time.sleep(DRIP_S)

    def send(self, data: bytes) -> None:
        if data:
            self._request.send(chunk(data) if self._chunked else data)

    def end(self) -> None:
        if self._chunked:
            self._request.send(LAST_CHUNK)

    def cut_short(self) -> None:
        self._request.send(b"1000\r\n{")
        self._request.close()

    def reset_connection(self) -> None:
        self._request.tcp_reset()

    def stall(self) -> None:
        self._request.left()


class WireH2(Received):
    def __init__(self, server: Server, stream: Stream) -> None:
        body = stream.body()
        super().__init__(server, stream.method, stream.path, body, stream.header("content-encoding"))
        self._stream = stream

    def head(
        self,
        status: int = 200,
        kind: str | None = None,
        headers: Iterable[tuple[str, str]] = (),
        *,
        length: int | None = None,
    ) -> None:
        self._stream.head(status, [("content-type", kind or self.kind), *headers], length=length)

    def head_dripped(self) -> None:
        frame = HeadersFrame(
            self._stream.id, data=hpack.Encoder().encode([(":status", "200"), ("content-type", self.kind)])
        )
        frame.flags.add("END_HEADERS")
        with self.server.dripping:
            self._stream.connection.drip(frame.serialize(), 2 * DRIP_S)

    def send(self, data: bytes) -> None:
        if data:
            self._stream.data(data)

    def end(self) -> None:
        self._stream.data(b"", end=True)

    def cut_short(self) -> None:
        self._stream.data(b"{", end=True)

    def reset_connection(self) -> None:
        self._stream.connection.tcp_reset()

    def reset_stream(self, code: int) -> None:
        self._stream.rst(code)

    def stall(self) -> None:
        self._stream.hold_until_left()


Wire = Any
"""A request and what can be done to it: `WireH1` or `WireH2`."""
Script = Callable[[Wire], None]


class Server:
    """Follows one script for every request, over one protocol and TLS."""

    def __init__(
        self,
        protocol: str,
        script: Script,
        counts: Counts,
        *,
        large_bytes: int = 0,
        context: ssl.SSLContext | None = None,
        main: Server | None = None,
    ) -> None:
        self.script = script
        self.counts = counts
        self.large_bytes = large_bytes
        self.main = main
        """The server that sent the client here; None for that one itself."""
        self.dripping = threading.Lock()
        self.other: Server | None = None
        """Another origin, for scripts that send the client elsewhere."""
        self.peer: Any = (
            Peer(self._respond_h2, context=context)
            if protocol == "HTTP/2"
            else PeerH1(self._respond_h1, tls=True, context=context)
        )
        self.url: str = self.peer.url

    def __enter__(self) -> Self:
        self.peer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # `complaints` reports what the client did wrong: the stock client is not ours to judge.
        self.peer.__exit__(kind, error or Exception(), trace)

    def complaints(self) -> list[str]:
        """What the client broke of the protocol, and what the script failed by."""
        script_errors = [f"{type(error).__name__} in the script" for error in self.peer.errors]
        return script_errors + list(getattr(self.peer, "violations", ()))

    def is_left(self) -> bool:
        """Whether the client has closed every connection within the time that anything is waited for."""
        if isinstance(self.peer, Peer):
            return all(connection.closed.wait(HANG_S) for connection in list(self.peer.connections))
        return all(self.peer.left.acquire(timeout=HANG_S) for _ in range(self.peer.connections))

    def _respond_h2(self, stream: Stream) -> None:
        self._count(stream.header("authorization"))
        self.script(WireH2(self, stream))

    def _respond_h1(self, request: Request1) -> None:
        self._count(request.header("authorization"))
        with contextlib.suppress(ConnectionError):
            self.script(WireH1(self, request))

    def _count(self, key: str | None) -> None:
        with self.counts.lock:
            self.counts.requests += 1
            if self.main is not None:
                self.counts.keys_elsewhere += key is not None
