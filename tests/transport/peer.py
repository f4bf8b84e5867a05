"""A scripted HTTP/2 server on raw frames, which follows a test's script, good or bad, and records what it gets."""

from __future__ import annotations

import contextlib
import functools
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Self

import hpack
import trustme
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from tests.waiting import HANG_S as HANG_S

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
BACKLOG = 1 << 20
FRAME_SIZE = 16_384
DEFAULT_WINDOW = 65_535
LARGEST_WINDOW = 2**31 - 1

NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = 0, 1, 2, 3
STREAM_CLOSED, REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 5, 7, 8, 11
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_HEADER_LIST_SIZE = 1, 2, 3, 4, 6

FIN_WAIT_1 = 4
"""The state of a TCP connection whose end is not acknowledged yet, as Linux counts them."""

CONNECTION_SPECIFIC = {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"host"}
Header = tuple[str, str]


class GoneError(Exception):
    """The client has left, or the test is over: what a script is in ends here."""


class Reset(NamedTuple):
    """A RST_STREAM that the client sent."""

    stream_id: int
    code: int


@functools.cache
def authority() -> trustme.CA:
    """Who vouches for the scripted servers."""
    return trustme.CA()


@functools.cache
def trusting() -> ssl.SSLContext:
    """A client's context that trusts the scripted servers; a copy of it must not be needed."""
    return make_trusting()


def make_trusting() -> ssl.SSLContext:
    """A client's context of its own."""
    context = ssl.create_default_context()
    authority().configure_trust(context)
    return context


@functools.cache
def certificate(names: tuple[str, ...]) -> trustme.LeafCert:
    return authority().issue_cert(*names)


def server_context(names: tuple[str, ...], alpn: Sequence[str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate(names).configure_cert(context)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


LOCAL_NAMES = ("127.0.0.1", "::1", "localhost")

default_late_ms = 0.0
"""Milliseconds by which a scripted server delays each TLS handshake: pytest's option --late-ms."""


class Stream:
    """One request as it came, and what a script does with it."""

    def __init__(self, connection: PeerConnection, stream_id: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.connection = connection
        self.id = stream_id
        self.headers = headers
        self.received = bytearray()
        """What has come of the body."""
        self.ended = False
        """The request has come to its end."""
        self.answered = False
        """We have sent the end of the answer."""
        self.reset: int | None = None
        """The code of the client's RST_STREAM."""
        self.reset_by_us = False
        self.window = connection.client_settings.get(INITIAL_WINDOW_SIZE, DEFAULT_WINDOW)
        """Bytes that the client lets us send."""
        self.granted = connection.initial_window
        """Bytes that we let the client send."""
        self.sent = 0
        """Bytes of the answer's body that were sent."""
        self.records: list[int] = []
        """The numbers of the TLS records in which its frames ended."""
        self.stalled = threading.Event()
        """The client's windows have been exhausted while we had more to send."""

    def header(self, name: str) -> str | None:
        return next((value.decode() for key, value in self.headers if key == name.encode()), None)

    @property
    def method(self) -> str:
        return self.header(":method") or ""

    @property
    def path(self) -> str:
        return self.header(":path") or ""

    @property
    def is_open(self) -> bool:
        over = self.reset is not None or self.reset_by_us or (self.ended and self.answered)
        return not (over or self.connection.over)

    def body(self) -> bytes:
        """Wait for the end of the request."""
        self.connection.wait(lambda: self.ended, self)
        return bytes(self.received)

    def hold(self, event: threading.Event) -> None:
        """Do nothing until the test sets the event."""
        while not event.wait(0.02):
            self.connection.check(self)

    def hold_for(self, seconds: float) -> None:
        """Do nothing for a while."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.connection.check(self)
            time.sleep(min(left, 0.02))

    def hold_until_left(self) -> None:
        """Do nothing until the client gives up."""
        self.connection.wait(lambda: False, self)

    def head(
        self, status: int = 200, headers: Iterable[Header] = (), *, end: bool = False, length: int | None = None
    ) -> None:
        fields = [(":status", str(status)), *headers]
        if length is not None:
            fields.append(("content-length", str(length)))
        self.header_block(fields, end=end)

    def header_block(self, fields: Iterable[Header], *, end: bool = False) -> None:
        """Any head at all: also one with no status, or trailers."""
        with self.connection.lock:
            self.connection.check(self)
            block = self.connection.encoder.encode(list(fields))
            pieces = [block[at : at + FRAME_SIZE] for at in range(0, len(block), FRAME_SIZE)] or [b""]
            frames: list[HeadersFrame | ContinuationFrame] = [HeadersFrame(self.id, data=pieces[0])]
            frames += [ContinuationFrame(self.id, data=piece) for piece in pieces[1:]]
            if end:
                frames[0].flags.add("END_STREAM")
            frames[-1].flags.add("END_HEADERS")
            self.answered |= end
            self.connection.send(*frames)

    def data(self, data: bytes, *, end: bool = False) -> None:
        """A piece of the body in as many DATA frames as the client's windows ask for."""
        connection = self.connection
        at = 0
        while True:
            with connection.lock:
                if data and min(self.window, connection.window) <= 0:
                    self.stalled.set()
                connection.wait(lambda: not data or min(self.window, connection.window) > 0, self)
                size = max(0, min(len(data) - at, self.window, connection.window, FRAME_SIZE))
                piece = data[at : at + size]
                at += size
                self.window -= size
                connection.window -= size
                self.sent += size
                self.data_frame(piece, end=end and at == len(data))
            connection.drain()
            if at == len(data):
                return

    def data_frame(self, data: bytes, *, end: bool = False) -> None:
        """One DATA frame, whatever the client's windows say."""
        with self.connection.lock:
            self.connection.check(self)
            frame = DataFrame(self.id, data=data)
            if end:
                frame.flags.add("END_STREAM")
            self.answered |= end
            self.connection.send(frame)

    def answer(self, body: bytes = b"", status: int = 200, headers: Iterable[Header] = ()) -> None:
        self.head(status, headers, end=not body)
        if body:
            self.data(body, end=True)

    def rst(self, code: int) -> None:
        with self.connection.lock:
            self.connection.check(self)
            self.reset_by_us = True
            self.connection.send(RstStreamFrame(self.id, error_code=code))

    def grant(self, increment: int) -> None:
        """Let the client send more of the body."""
        with self.connection.lock:
            self.granted += increment
            self.connection.send_when_greeted(WindowUpdateFrame(self.id, window_increment=increment))


Respond = Callable[[Stream], None]
Opening = Callable[["PeerConnection"], None]


def say_ok(stream: Stream) -> None:
    """Answer each request with two letters once it is there."""
    stream.body()
    stream.answer(b"ok")


def silent(stream: Stream) -> None:
    """Answer nothing until the client leaves."""
    stream.hold_until_left()


def one_piece(stream: Stream) -> None:
    """Begin an answer, and say no more until the client leaves."""
    stream.head()
    stream.data(b"piece")
    stream.hold_until_left()


def by_path(**scripts: Respond) -> Respond:
    """A script for each path, by the path's first part; what has none is answered with two letters."""

    def respond(stream: Stream) -> None:
        scripts.get(stream.path.strip("/").partition("/")[0], say_ok)(stream)

    return respond


class PeerConnection:
    """One connection of a client."""

    def __init__(self, peer: Peer, sock: socket.socket, number: int) -> None:
        self.peer = peer
        self.number = number
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.streams: dict[int, Stream] = {}
        self.client_settings: dict[int, int] = {}
        self.settings_acked = 0
        self.initial_window = DEFAULT_WINDOW
        self.window = DEFAULT_WINDOW
        """Bytes that the client lets us send on the whole connection."""
        self.granted = DEFAULT_WINDOW
        """Bytes that we let the client send on the whole connection."""
        self.resets: list[Reset] = []
        self.pings: list[int] = []
        """When the client's own PINGs came."""
        self.pongs: list[bytes] = []
        """The client's answers to our PINGs."""
        self.goaways: list[tuple[int, int]] = []
        """Last stream and code of each GOAWAY of the client."""
        self.records: list[int] = []
        """The sizes of the TLS records that came."""
        self.closed = threading.Event()
        """The client has closed the connection, or broken it off."""
        self.said_goodbye = False
        """The client has ended its direction in TLS."""
        self.over = False
        self.encoder = hpack.Encoder()
        self._decoder = hpack.Decoder()
        self._allowed_streams = 2**31
        self._unacked: list[dict[int, int]] = []
        self._buffer = bytearray()
        self._block: tuple[HeadersFrame, bytearray] | None = None
        self._outgoing = bytearray()
        self._greeted = False
        self._early: list[Frame] = []
        """What must wait for our first SETTINGS."""
        self._behind: bytearray | None = None
        """What waits for the end of a frame that is dripped; None while none is."""
        self._plain_end = False
        self._aborting = False
        self._incoming, self._encrypted = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = peer.context.wrap_bio(self._incoming, self._encrypted, server_side=True)
        self._socket = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    # What scripts do.

    def send(self, *frames: Frame) -> None:
        self.send_bytes(b"".join(frame.serialize() for frame in frames))

    def send_bytes(self, data: bytes) -> None:
        """Any bytes at all, in one TLS write."""
        with self.lock:
            if self._behind is None:
                self._send_now(data)
            else:
                self._behind += data

    def drip(self, data: bytes, pause_s: float) -> None:
        """A frame byte by byte, each in a TLS write. What is to be sent meanwhile comes behind it; one at a time."""
        with self.lock:
            self._behind = bytearray()
        try:
            for at in range(len(data)):
                with self.lock:
                    self._send_now(data[at : at + 1])
                time.sleep(pause_s)
        finally:
            with self.lock:
                behind, self._behind = bytes(self._behind), None
        if behind:
            self.send_bytes(behind)

    def _send_now(self, data: bytes) -> None:
        if self.over:
            raise GoneError
        with contextlib.suppress(ssl.SSLError):
            self._tls.write(data)
        self._flush()

    def send_when_greeted(self, frame: Frame) -> None:
        """A frame that must not come before our first SETTINGS."""
        with self.lock:
            if self._greeted:
                self.send(frame)
            else:
                self._early.append(frame)

    def drain(self) -> None:
        """Wait until the bytes are with the kernel, so that a flood does not fill our own memory."""
        self.wait(lambda: len(self._outgoing) < BACKLOG)

    def settings(self, values: dict[int, int] | None = None) -> None:
        values = values or {}
        with self.lock:
            # More room counts from when it is sent, less from when the client has received it.
            if values.get(INITIAL_WINDOW_SIZE, -1) > self.initial_window:
                self._resize(values[INITIAL_WINDOW_SIZE])
            self._unacked.append(values)
            self.send(SettingsFrame(0, settings=values), *self._early)
            self._greeted = True
            self._early.clear()

    def goaway(self, last: int, code: int = NO_ERROR) -> None:
        self.send(GoAwayFrame(0, last_stream_id=last, error_code=code))

    def ping(self, data: bytes = b"12345678") -> None:
        self.send(PingFrame(0, opaque_data=data))

    def grant(self, increment: int) -> None:
        with self.lock:
            self.granted += increment
            self.send_when_greeted(WindowUpdateFrame(0, window_increment=increment))

    def fin(self) -> None:
        """End our direction of TCP without a word in TLS; the kernel of the client has received it then."""
        self.wait(lambda: not self._outgoing)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            for _ in range(1_000 if sys.platform == "linux" else 0):
                if self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != FIN_WAIT_1:
                    break
                time.sleep(0.001)

    def close_notify(self) -> None:
        """End our direction in TLS and leave TCP open. The client must have sent everything by then."""
        with self.lock:
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
            self._flush()

    def tcp_reset(self) -> None:
        """Break TCP off: everything that the client had not read yet is lost with it."""
        self.wait(lambda: not self._outgoing)
        self._aborting = True
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._socket.shutdown(socket.SHUT_RD)
        self.wait(lambda: self.over, raises=False)

    def hold(self, event: threading.Event) -> None:
        while not event.wait(0.02):
            self.check()

    def check(self, stream: Stream | None = None) -> None:
        if self.over or self.peer.closing or (stream is not None and (stream.reset is not None or stream.reset_by_us)):
            raise GoneError

    def wait(self, predicate: Callable[[], bool], stream: Stream | None = None, *, raises: bool = True) -> None:
        """Wait until it is so; GoneError where it will not be any more."""
        deadline = time.monotonic() + HANG_S
        with self.changed:
            while not predicate():
                if raises:
                    self.check(stream)
                if time.monotonic() > deadline:
                    raise AssertionError(f"connection {self.number} waited in vain")
                self.changed.wait(1)

    # What the connection does by itself.

    def serve(self) -> None:
        """Read until the client is gone."""
        writer = threading.Thread(target=self._write, name="peer", daemon=True)
        try:
            writer.start()
            time.sleep(default_late_ms / 1_000)
            if self._handshake():
                if self.peer.opening is None:
                    self.settings(self.peer.settings)
                else:
                    self.peer.start(self.peer.opening, self)
                self._read()  # what came along with the end of the handshake
                while not self._plain_end and (data := self._socket.recv(65_536)):
                    self._incoming.write(data)
                    self._read()
        except OSError:
            pass
        finally:
            with self.changed:
                self.over = True
                self.closed.set()
                self.changed.notify_all()
            if not self._aborting:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
            writer.join(HANG_S)
            self._socket.close()

    def _handshake(self) -> bool:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                data = self._socket.recv(65_536)
                if not data:
                    return False
                self._incoming.write(data)
            except ssl.SSLError:
                self._flush()
                return False
            else:
                self._flush()
                return True

    def _read(self) -> None:
        with self.changed:
            while True:
                try:
                    record = self._tls.read(65_536)
                except ssl.SSLWantReadError:
                    break
                except ssl.SSLError:
                    self._plain_end = True
                    break
                if not record:
                    self._plain_end = self.said_goodbye = True
                    break
                self.records.append(len(record))
                self._buffer += record
                self._parse()
            self._flush()
            self.changed.notify_all()

    def _parse(self) -> None:
        if self._buffer.startswith(PREFACE):
            del self._buffer[: len(PREFACE)]
        while len(self._buffer) >= 9:
            if PREFACE.startswith(bytes(self._buffer[: len(PREFACE)])):
                break
            frame, length = Frame.parse_frame_header(memoryview(bytes(self._buffer[:9])))
            if len(self._buffer) < 9 + length:
                break
            frame.parse_body(memoryview(bytes(self._buffer[9 : 9 + length])))
            del self._buffer[: 9 + length]
            self._got(frame, length)

    def _got(self, frame: Frame, length: int) -> None:
        stream = self.streams.get(frame.stream_id)
        if length > FRAME_SIZE:
            self._violation(f"a frame of {length} bytes")
        if stream is not None:
            stream.records.append(len(self.records))
        if isinstance(frame, HeadersFrame):
            self._block = frame, bytearray(frame.data)
        elif isinstance(frame, ContinuationFrame) and self._block is not None:
            self._block[1].extend(frame.data)
        elif isinstance(frame, DataFrame):
            self._got_data(frame, stream)
        elif isinstance(frame, RstStreamFrame):
            self.resets.append(Reset(frame.stream_id, frame.error_code))
            if stream is None:
                self._violation(f"RST_STREAM on idle stream {frame.stream_id}")
            else:
                stream.reset = frame.error_code
        elif isinstance(frame, WindowUpdateFrame):
            self._got_credit(frame, stream)
        elif isinstance(frame, SettingsFrame):
            self._got_settings(frame)
        elif isinstance(frame, PingFrame):
            if "ACK" in frame.flags:
                self.pongs.append(frame.opaque_data)
            else:
                self.pings.append(time.monotonic_ns())
                if self.peer.answers_pings:
                    self.send_when_greeted(PingFrame(0, opaque_data=frame.opaque_data, flags=["ACK"]))
        elif isinstance(frame, GoAwayFrame):
            self.goaways.append((frame.last_stream_id, frame.error_code))
        if isinstance(frame, HeadersFrame | ContinuationFrame) and "END_HEADERS" in frame.flags:
            self._got_head()

    def _got_head(self) -> None:
        assert self._block is not None
        frame, block = self._block
        self._block = None
        fields = self._decoder.decode(bytes(block), raw=True)
        headers = [(bytes(field[0]), bytes(field[1])) for field in fields]
        names = [name for name, _ in headers]
        if frame.stream_id % 2 == 0 or frame.stream_id <= max(self.streams, default=0):
            self._violation(f"stream {frame.stream_id} after {max(self.streams, default=0)}")
        if any(name in CONNECTION_SPECIFIC or name != name.lower() for name in names):
            self._violation(f"header names {names}")
        if any(name.startswith(b":") for name in names[4:]) or not {b":method", b":scheme", b":path"} <= set(names):
            self._violation(f"pseudo headers {names}")
        if sum(stream.is_open for stream in self.streams.values()) >= self._allowed_streams:
            self._violation(f"more than {self._allowed_streams} streams at once")
        stream = self.streams[frame.stream_id] = Stream(self, frame.stream_id, headers)
        stream.records.append(len(self.records))
        stream.ended = "END_STREAM" in frame.flags
        self.peer.requests.append(stream)
        self.peer.start(self.peer.respond, stream)

    def _got_data(self, frame: DataFrame, stream: Stream | None) -> None:
        size = frame.flow_controlled_length
        if stream is None:
            self._violation(f"DATA on idle stream {frame.stream_id}")
            return
        if stream.ended or stream.reset is not None:
            self._violation(f"DATA on stream {frame.stream_id} after its end")
        self.granted -= size
        stream.granted -= size
        if self.granted < 0 or (stream.granted < 0 and not self._unacked):
            self._violation(f"{size} bytes of DATA beyond the window of stream {frame.stream_id}")
        stream.received += frame.data
        stream.ended |= "END_STREAM" in frame.flags
        if self.peer.grants and size:
            self.grant(size)
            if not stream.ended and not stream.reset_by_us:
                stream.grant(size)

    def _got_credit(self, frame: WindowUpdateFrame, stream: Stream | None) -> None:
        if frame.stream_id == 0:
            self.window += frame.window_increment
            if self.window > LARGEST_WINDOW:
                self._violation("a connection window beyond 2^31-1")
        elif stream is None:
            self._violation(f"WINDOW_UPDATE on idle stream {frame.stream_id}")
        else:
            stream.window += frame.window_increment
            if stream.window > LARGEST_WINDOW:
                self._violation(f"a window of stream {frame.stream_id} beyond 2^31-1")

    def _got_settings(self, frame: SettingsFrame) -> None:
        if "ACK" in frame.flags:
            self.settings_acked += 1
            if not self._unacked:
                self._violation("an acknowledgement of SETTINGS that were not sent")
                return
            values = self._unacked.pop(0)
            self._allowed_streams = values.get(MAX_CONCURRENT_STREAMS, self._allowed_streams)
            if HEADER_TABLE_SIZE in values:
                self._decoder.max_allowed_table_size = values[HEADER_TABLE_SIZE]
            if INITIAL_WINDOW_SIZE in values and values[INITIAL_WINDOW_SIZE] != self.initial_window:
                self._resize(values[INITIAL_WINDOW_SIZE])
            return
        before = self.client_settings.get(INITIAL_WINDOW_SIZE, DEFAULT_WINDOW)
        self.client_settings.update(frame.settings)
        for stream in self.streams.values():
            stream.window += self.client_settings.get(INITIAL_WINDOW_SIZE, DEFAULT_WINDOW) - before
        self.send_when_greeted(SettingsFrame(0, flags=["ACK"]))

    def _resize(self, size: int) -> None:
        for stream in self.streams.values():
            stream.granted += size - self.initial_window
        self.initial_window = size

    def _violation(self, what: str) -> None:
        self.peer.violations.append(f"connection {self.number}: {what}")

    def _flush(self) -> None:
        with self.changed:
            self._outgoing += self._encrypted.read()
            self.changed.notify_all()

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                with self.changed:
                    while not self._outgoing:
                        if self.over or self.peer.closing:
                            return
                        self.changed.wait(1)
                    data = bytes(self._outgoing)
                self._socket.sendall(data)
                with self.changed:
                    del self._outgoing[: len(data)]
                    self.changed.notify_all()

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


class Listener:
    """Listens on a port of its own, in threads of its own; leaving it fails where one of them has failed."""

    def __init__(self, host: str) -> None:
        self.errors: list[BaseException] = []
        self.closing = False
        self._threads: list[threading.Thread] = []
        self._threads_lock = threading.Lock()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=200)
        self._host = f"[{host}]" if ":" in host else host

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.closing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        # First the one that starts the others: none begins behind its back.
        self._threads.pop(0).join(HANG_S)
        self.end_connections()
        while self._threads:
            self._threads.pop().join(HANG_S)
        if kind is None:
            assert self.errors == []

    def end_connections(self) -> None:
        """End every connection, in whatever it is."""
        raise NotImplementedError

    def start(self, target: Callable[..., None], *args: object) -> None:
        """Run something in a thread; the first one is to accept connections."""
        thread = threading.Thread(target=self._run, args=(target, *args), name="peer", daemon=True)
        with self._threads_lock:
            thread.start()
            self._threads.append(thread)
            if len(self._threads) > 200:
                self._threads = [each for each in self._threads if each.is_alive()]

    def _run(self, target: Callable[..., None], *args: object) -> None:
        try:
            target(*args)
        except (GoneError, OSError):
            pass
        except BaseException as error:  # noqa: BLE001 - the test's thread raises it
            if not self.closing:
                self.errors.append(error)


class Peer(Listener):
    """Answers each request by `respond` in a thread of its own.

    Where the client breaks the protocol, leaving the peer's context fails the test.
    """

    def __init__(
        self,
        respond: Respond = say_ok,
        *,
        settings: dict[int, int] | None = None,
        opening: Opening | None = None,
        grants: bool = True,
        answers_pings: bool = True,
        alpn: Sequence[str] = ("h2",),
        names: tuple[str, ...] = LOCAL_NAMES,
        host: str = "127.0.0.1",
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.respond = respond
        self.opening = opening
        """What is sent in place of the first SETTINGS."""
        self.settings = settings
        self.grants = grants
        self.answers_pings = answers_pings
        self.context = server_context(names, alpn) if context is None else context
        self.context.sni_callback = self._asked_for
        self.names_asked: dict[int, str | None] = {}
        self.requests: list[Stream] = []
        self.connections: list[PeerConnection] = []
        self.violations: list[str] = []
        super().__init__(host)
        self.start(self._accept)

    @property
    def url(self) -> str:
        return f"https://{self._host}:{self.port}"

    @property
    def resets(self) -> list[int]:
        """The codes of all RST_STREAMs, in the order of their coming on each connection."""
        return [reset.code for connection in self.connections for reset in connection.resets]

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        super().__exit__(kind)
        if kind is None:
            assert self.violations == []

    def end_connections(self) -> None:
        for connection in self.connections:
            connection.end()

    def _asked_for(self, tls: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        self.names_asked[id(tls)] = name

    def _accept(self) -> None:
        while not self.closing:
            sock, _ = self._listener.accept()
            connection = PeerConnection(self, sock, len(self.connections) + 1)
            self.connections.append(connection)
            self.start(connection.serve)


class HeldHandshakes:
    """A peer's TLS context that begins no further handshake before the test says."""

    def __init__(self, peer: Peer) -> None:
        self._context = peer.context
        self.begun, self.go_on = threading.Event(), threading.Event()
        peer.context = self  # type: ignore[assignment]

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        self.begun.set()
        assert self.go_on.wait(HANG_S)
        return self._context.wrap_bio(*args, **options)
