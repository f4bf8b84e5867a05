"""The peer of a connection over HTTP/2: any frames, against the h2 library and a count of both sides' windows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, ResponseReceived, StreamEnded, StreamReset
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from fastlane.transport.protocols import frames as wire, limits as limits
from fastlane.transport.protocols.exchange import RequestHead, TransportError
from fastlane.transport.protocols.h2 import Http2Connection
from tests.fuzz.drawn import Drawn, chance
from tests.fuzz.targets._h2_frames import Frames, Server
from tests.fuzz.targets._target import holds
from tests.transport.h2_peer import WokenExchange, request_head

_STEPS = 60


class OnceExchange(WokenExchange):
    """An exchange that counts its ends."""

    def __init__(self, head: RequestHead) -> None:
        super().__init__(head)
        self.ends = 0
        self.taken = b""

    def end(self, now_ns: int) -> None:
        holds(not self.is_over, "an exchange that is over ends again")
        self.ends += 1
        super().end(now_ns)

    def fail(self, error: TransportError) -> None:
        self.ends += not self.is_over
        super().fail(error)

    @property
    def whole(self) -> bytes:
        """All of the body that has come."""
        return self.taken + self.body


class Reference:
    """h2 as a client that has sent the same requests: what it makes of the same bytes, until it gives up."""

    def __init__(self) -> None:
        self._h2 = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self._h2.local_settings = Settings(
            client=True,
            initial_values={
                SettingCodes.ENABLE_PUSH: 0,
                SettingCodes.INITIAL_WINDOW_SIZE: limits.STREAM_WINDOW,
                SettingCodes.MAX_HEADER_LIST_SIZE: limits.HEADER_LIST_BYTES,
            },
        )
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(limits.CONNECTION_WINDOW - limits.FIRST_WINDOW)
        self.gave_up: str | None = None
        self.heads: dict[int, int] = {}
        self.bodies: dict[int, bytes] = {}
        self.over: dict[int, str] = {}

    def request(self, stream: int, *, end: bool) -> None:
        """Send the head of a request."""
        if self.gave_up is None:
            fields = [(b":method", b"POST"), (b":authority", b"a"), (b":scheme", b"https"), (b":path", b"/")]
            try:
                self._h2.send_headers(stream, fields, end_stream=end)
            except ProtocolError as error:
                self.gave_up = f"{type(error).__name__} on our own request"

    def leave(self) -> None:
        """Compare no further: the two do not do the same any more."""
        self.gave_up = self.gave_up or "left"

    def receive(self, data: bytes) -> bool:
        """Whether it takes the bytes without giving up."""
        try:
            for event in self._h2.receive_data(data):
                self._see(event)
        except ProtocolError as error:
            self.gave_up = f"{type(error).__name__}: {error}"
        except (IndexError, ValueError, TypeError) as error:  # it has defects of its own
            self.gave_up = f"{type(error).__name__} in h2"
        return self.gave_up is None

    def _see(self, event: Event) -> None:
        if isinstance(event, ResponseReceived):
            self.heads[event.stream_id] = int(dict(event.headers)[b":status"])
        elif isinstance(event, DataReceived):
            self.bodies[event.stream_id] = self.bodies.get(event.stream_id, b"") + event.data
        elif isinstance(event, StreamEnded):
            self.over.setdefault(event.stream_id, "ended")
        elif isinstance(event, StreamReset):
            self.over.setdefault(event.stream_id, "reset")


@contextmanager
def _windows(draw: Drawn) -> Iterator[None]:
    """Windows so small that they close, or those of every day."""
    if draw.randrange(2):
        with patch.multiple(limits, STREAM_WINDOW=5_000, CONNECTION_WINDOW=70_000):
            yield
    else:
        yield


class Conversation:
    """One connection, its server and the two who watch it."""

    def __init__(self, draw: Drawn) -> None:
        self._draw = draw
        self._now_ns = 1_000
        self.client = Http2Connection()
        self.client.start(0)
        self._server = Server(draw)
        self._sent, self._came = Frames(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Frames()
        self._reset: set[int] = set()
        """Streams that we have reset."""
        self._drawn, self._granted = 0, limits.FIRST_WINDOW
        """Bytes of DATA that have come, and bytes that may come on the whole connection."""
        self._reference = Reference()
        self._exchanges: list[OnceExchange] = []
        self._left_alone = True
        """Only heads were sent and nothing was cancelled: h2 can be compared."""
        self.failed = False

    def hold(self) -> None:
        """Let it run, and look at it after every step."""
        for end in (True, False, True):
            self._begin(end=end)
        if self._draw.randrange(16):
            self._receive(self._server.settings())
        for _ in range(_STEPS):
            if self._draw.spent or self.failed:
                break
            if self._draw.randrange(5):
                self._receive(b"".join(self._server.frames() for _ in range(self._draw.randrange(1, 3))))
            else:
                self._act()
            self._look()
        self._end()

    def _begin(self, *, end: bool) -> None:
        exchange = OnceExchange(request_head())
        try:
            self.client.begin(exchange, end=end)
        except TransportError as error:
            holds(error.unprocessed or error.name == "LocalProtocolError", "a refusal is no refusal", error.message)
            return
        self._exchanges.append(exchange)
        self._reference.request(exchange.stream_id, end=end)

    def _act(self) -> None:
        draw, exchange = self._draw, self._draw.choice(self._exchanges)
        kind = draw.choice((0, 1, 2, 2, 2, 3, 4))
        if kind == 0:
            self._begin(end=draw.randrange(2) == 0)
        elif kind == 1:
            room = self.client.room(exchange)
            holds(0 <= room <= limits.LARGEST_WINDOW, "there is more room than a window has", room)
            self._reference.leave()
            self.client.send(exchange, b"u" * min(room, draw.choice((0, 1, 100, 40_000))), end=draw.randrange(3) == 0)
        elif kind == 2:
            while exchange.chunks:
                _, piece = exchange.chunks.popleft()
                exchange.taken += piece
                self.client.took(exchange, len(piece))
        elif kind == 3:
            self._reference.leave()
            holds(self.client.cancel(exchange), "cancelling closes the connection")
        elif kind == 4:
            self.client.ping(self._now_ns)
        self._compare_output()

    def _compare_output(self) -> None:
        data = self.client.data_to_send()
        holds(len(data) < 4 << 20, "too much is queued", len(data))
        for kind, _, stream, payload in self._sent.of(data):
            if kind in (wire.DATA, wire.RST_STREAM):
                holds(stream not in self._reset, "a stream that we have reset is not left alone", stream)
            if kind == wire.RST_STREAM:
                self._reset.add(stream)
            elif kind == wire.WINDOW_UPDATE:
                self._granted += 0 if stream else int.from_bytes(payload)
                holds(0 < int.from_bytes(payload) <= limits.LARGEST_WINDOW, "a window is opened by nothing, or too far")

    def _receive(self, data: bytes) -> None:
        over = {exchange.stream_id for exchange in self._exchanges if exchange.is_over}
        self._compare_output()
        raised: TransportError | None = None
        try:
            for piece in self._draw.cut(data):
                self._now_ns += 1_000
                self.client.receive(piece, self._now_ns)
        except TransportError as error:
            raised = error
            holds(error.name == "RemoteProtocolError", "the server's fault has another name", error.name)
            holds(not error.unprocessed, "a request that was sent counts as one that was not")
        frames = self._came.of(data)
        self._drawn += sum(len(payload) for kind, _, _, payload in frames if kind == wire.DATA)
        if self._drawn > self._granted:
            holds(raised is not None, "the connection's window is overdrawn without an error", data[:200])
        # What comes for a stream that is over is late, and no fault.
        is_other = any(kind in _OF_NO_CONCERN or stream in over for kind, _, stream, _ in frames)
        is_other = is_other or self._came.waits_for_more
        broken = sum(exchange.is_over for exchange in self._exchanges) > len(over)
        if self._reference.gave_up is None:
            takes = self._reference.receive(data)
            if takes and raised is not None:
                holds(_is_stricter(raised), "we refuse what h2 takes", raised.message, data)
            elif not takes and raised is None and not broken and not is_other:
                holds(
                    _is_looser(self._reference.gave_up or ""), "h2 refuses what we take", self._reference.gave_up, data
                )
            if any(kind == wire.GOAWAY for kind, *_ in frames):
                self._reference.leave()  # it ends every stream with it
        self._compare_output()
        if self._reset:
            self._reference.leave()  # it does not know of the change, and takes late frames for wrong
        if raised is not None:
            self._break(raised)

    def _break(self, raised: TransportError) -> None:
        self.failed = True
        holds(self.client.capacity == 0, "a connection that has failed takes requests")
        try:
            self.client.receive(b"\0", self._now_ns)
        except TransportError:
            pass
        else:
            holds(False, "a connection that has failed goes on")
        self.client.lost(raised)

    def _look(self) -> None:
        if self._reference.gave_up is not None or self.failed:
            return
        for exchange in self._exchanges:
            stream, head = exchange.stream_id, exchange.answer_head
            lengths = {value for name, value in head.headers if name == b"content-length"} if head else set()
            holds(len(lengths) <= 1 and all(map(bytes.isdigit, lengths)), "a head states no length", lengths)
            if exchange.error is not None:
                continue
            status = self._reference.heads.get(stream)
            holds((head and head.status) == status, "a head is another one than h2's", stream, head, status)
            body = self._reference.bodies.get(stream, b"")
            holds(exchange.whole == body, "a body is another one than h2's", stream, exchange.whole, body)
            ended = self._reference.over.get(stream)
            holds(exchange.answer_ended == (ended == "ended"), "an end is none for h2, or the other way", stream, ended)

    def _end(self) -> None:
        open_ones = [exchange for exchange in self._exchanges if not exchange.is_over]
        if not self.failed:
            try:
                self.client.receive_end(self._now_ns)
            except TransportError as error:
                self.client.lost(error)
        self.client.lost(TransportError("ReadError", "gone"))
        holds(self.client.open_exchanges == 0, "exchanges are left behind")
        for exchange in self._exchanges:
            holds(exchange.ends <= 1, "an exchange ends twice")
        for exchange in open_ones:
            holds(exchange.is_over or exchange.stream_id in self._reset, "an exchange never ends")


def _is_stricter(raised: TransportError) -> bool:
    """What we refuse, knowingly, and h2 does not."""
    return raised.message in _STRICTER


def _is_looser(reason: str) -> bool:
    """What h2 refuses, and concerns no answer."""
    return any(part in reason for part in _LOOSER)


_STRICTER = frozenset(
    {
        # Reported as soon as a frame's head has come; h2 waits for the whole of it.
        "The server sent a frame larger than we allow",
        "The server sent another frame within a head",
        "The server pushes, which we have switched off",
        "The server does not speak HTTP/2",  # its first frame has to be SETTINGS (RFC 9113, 3.4)
        "The server sent RST_STREAM on a stream that was never opened",  # RFC 9113, 6.4
        "The server goes on with answers that are over",  # with more than it was granted
    }
)
_OF_NO_CONCERN = frozenset((wire.GOAWAY, wire.PRIORITY, 10))  # nor is ALTSVC, which h2 knows (RFC 7838)
_LOOSER = (
    "Setting 8 has",  # of a protocol that is not used here
    "surrounded by whitespace",
    "Invalid content-length",  # of an informational head, where it means nothing
    "non-zero for HeadersFrame",  # for us when the head is whole
    "non-compliant data",  # an increment with the reserved bit, which is to be ignored (RFC 9113, 6.9)
)


def check(data: bytes) -> None:
    """Draw a conversation, and hold it."""
    draw = Drawn(data)
    with _windows(draw):
        Conversation(draw).hold()


def seeds() -> list[bytes]:
    """Bytes that draw conversations of every length."""
    return chance(48, 600)
