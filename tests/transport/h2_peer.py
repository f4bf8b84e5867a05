"""A connection of ours and, at its other end, a server that h2 speaks for; the test carries the bytes."""

from __future__ import annotations

from h2.config import H2Configuration
from h2.connection import H2Connection
from hpack.hpack import Encoder
from hyperframe.frame import Frame, HeadersFrame

from fastlane.transport import Phases
from fastlane.transport.protocols.exchange import Exchange, RequestHead
from fastlane.transport.protocols.h2 import Http2Connection

Fields = list[tuple[bytes, bytes]]

OK: Fields = [(b":status", b"200")]


class WokenExchange(Exchange):
    """An exchange that counts how often it was woken."""

    def __init__(self, head: RequestHead) -> None:
        super().__init__(head, Phases())
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1

    @property
    def body(self) -> bytes:
        return b"".join(data for _, data in self.chunks)


def request_head(method: bytes = b"POST", headers: Fields | None = None, target: bytes = b"/v1/chat") -> RequestHead:
    return RequestHead(
        method=method,
        scheme=b"https",
        authority=b"llm.test",
        target=target,
        headers=[(b"Host", b"llm.test"), (b"Accept", b"*/*")] if headers is None else headers,
    )


def frames_of(data: bytes) -> list[Frame]:
    """The frames that these bytes are."""
    found = []
    data = data.removeprefix(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    while data:
        frame, length = Frame.parse_frame_header(memoryview(data[:9]))
        frame.parse_body(memoryview(data[9 : 9 + length]))
        found.append(frame)
        data = data[9 + length :]
    return found


def raw_frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """A frame that hyperframe would refuse to make."""
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream_id.to_bytes(4) + payload


def head_bytes(stream_id: int, fields: Fields = OK, *, end: bool = False) -> bytes:
    """A head that h2 would refuse to send. The static table alone is used, so that the server's encoder stays out."""
    frame = HeadersFrame(stream_id, Encoder().encode([(*field, True) for field in fields]))
    frame.flags.add("END_HEADERS")
    if end:
        frame.flags.add("END_STREAM")
    return frame.serialize()


class Pair:
    """Our connection and its server."""

    def __init__(self) -> None:
        self.client = Http2Connection()
        # What the drivers rely on.
        self.server = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self.now_ns = 1_000
        self.client.start(0)
        self.server.initiate_connection()
        self.carry()

    def receive(self, data: bytes) -> None:
        self.now_ns += 1
        self.client.receive(data, self.now_ns)

    def carry(self) -> None:
        """Carry bytes in both directions until none are left."""
        while True:
            output = self.client.data_to_send()
            self.server.receive_data(output)
            answered = self.server.data_to_send()
            self.receive(answered)
            if not output and not answered:
                return

    def begun(self) -> Exchange:
        """An exchange whose request is sent and has reached the server."""
        exchange = Exchange(request_head(), Phases())
        self.client.begin(exchange, end=True)
        self.server.receive_data(self.client.data_to_send())
        return exchange

    def answer(self, exchange: Exchange) -> None:
        self.server.send_headers(exchange.stream_id, OK, end_stream=True)
        self.receive(self.server.data_to_send())
