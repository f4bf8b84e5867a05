"""Frames of a server over HTTP/2, drawn: proper ones, ones in odd forms, and ones that no server may send."""

from __future__ import annotations

from hpack.hpack import Encoder

from fastlane.transport.protocols import frames as wire
from tests.fuzz.drawn import Drawn
from tests.fuzz.targets._target import holds
from tests.transport.h2_peer import raw_frame

_SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 100, 1_000, 4_999, 5_000, 5_001, 16_383, 16_384, 16_385)
_NUMBERS = (
    0,
    1,
    2,
    7,
    100,
    4_096,
    16_383,
    16_384,
    16_385,
    65_535,
    65_536,
    2**24 - 1,
    2**24,
    2**31 - 1,
    2**31,
    2**32 - 1,
)
_FIELDS = (
    (b":status", b"200"), (b":status", b"100"), (b":status", b"103"), (b":status", b"204"), (b":status", b"304"),
    (b":status", b"2"), (b":status", b"\xd9\xa3\xd9\xa3\xd9\xa3"), (b":status", b"101"), (b":status", b"999"),
    (b"content-length", b"0"), (b"content-length", b"5"), (b"content-length", b"-1"), (b"content-length", b"9" * 30),
    (b"content-type", b"text/event-stream"), (b"x-request-id", b"req-1"), (b"connection", b"close"), (b"te", b"gzip"),
    (b"transfer-encoding", b"chunked"), (b"Upper", b"x"), (b"", b"x"), (b"a b", b"x"), (b"x", b"a\r\nb"), (b"x", b"\0"),
    (b":path", b"/"), (b"host", b"a"), (b"x", b"\xff" * 40), (b"x-long", b"y" * 9_000), (b"x", b" a "),
)  # fmt: skip


Frame = tuple[int, int, int, bytes]
"""Type, flags, stream, payload."""


class Frames:
    """Takes a stream of bytes apart into frames, and keeps what is not whole."""

    def __init__(self, before: bytes = b"") -> None:
        self._rest = b""
        self._before = before

    @property
    def waits_for_more(self) -> bool:
        """The head of a frame is there, and not all of it."""
        return len(self._rest) >= 9

    def of(self, data: bytes) -> list[Frame]:
        """The frames that end in these bytes."""
        data = self._rest + data
        if self._before and data:
            holds(data.startswith(self._before), "the connection does not begin as it must", data[:40])
            data, self._before = data[len(self._before) :], b""
        found: list[Frame] = []
        while len(data) >= 9:
            length = int.from_bytes(data[:3])
            if len(data) < 9 + length:
                break
            found.append((data[3], data[4], int.from_bytes(data[5:9]) & 0x7FFFFFFF, data[9 : 9 + length]))
            data = data[9 + length :]
        self._rest = data
        return found


class Server:
    """Draws what a server sends; one table of fields for all of its heads, as the protocol has it."""

    def __init__(self, draw: Drawn) -> None:
        self._draw = draw
        self._encoder = Encoder()

    def frames(self) -> bytes:
        """A frame or a few that belong together; now and then damaged."""
        draw = self._draw
        kind = draw.randrange(16)
        if kind <= 3:
            made = self._head()
        elif kind <= 7:
            made = self._data()
        elif kind <= 12:
            made = self._control(kind)
        elif kind == 13:
            made = raw_frame(draw.randrange(12), draw.randrange(256), self._stream(), draw.bytes_of(60))
        elif kind == 14:
            made = raw_frame(draw.randrange(12), draw.randrange(256), self._stream(), b"\0" * draw.choice(_SIZES))
        else:
            made = draw.bytes_of(20)
        return self._damaged(made) if draw.randrange(12) == 11 else made

    def settings(self) -> bytes:
        """SETTINGS with a few of them."""
        draw = self._draw
        pairs = [
            (draw.choice((3, 4, 4, 1, 2, 5, 6, 8, 9, 99)), draw.choice(_NUMBERS)) for _ in range(draw.randrange(4))
        ]
        payload = b"".join(number.to_bytes(2) + value.to_bytes(4) for number, value in pairs)
        return raw_frame(wire.SETTINGS, 0, 0, payload)

    def _stream(self) -> int:
        return self._draw.choice((1, 1, 1, 3, 3, 5, 7, 9, 0, 2, 2**31 - 1, 2**31 + 1))

    def _head(self) -> bytes:
        draw = self._draw
        proper = draw.randrange(4) > 0
        fields = [(b":status", draw.choice((b"200", b"200", b"200", b"103", b"429")))] if proper else []
        fields += [draw.choice(_FIELDS[13:15] if proper else _FIELDS) for _ in range(draw.randrange(4))]
        if proper and draw.randrange(4) == 3:
            fields.append((b"content-length", draw.choice((b"0", b"5", b"1000"))))
        block = self._encoder.encode(fields)
        if draw.randrange(8) == 7:
            block = draw.bytes_of(40)
        flags = draw.choice((0, 0, 0, 1))
        payload = block
        if draw.randrange(6) == 5:
            pad = draw.choice((0, 1, 9, 255))
            payload, flags = bytes([pad]) + block + bytes(pad), flags | wire.PADDED
        elif draw.randrange(6) == 5:
            payload, flags = bytes(5) + block, flags | wire.HAS_PRIORITY
        stream = self._stream()
        if draw.randrange(5) < 4:
            return raw_frame(wire.HEADERS, flags | wire.END_HEADERS, stream, payload)
        at = draw.randrange(len(payload) + 1)
        parts = [raw_frame(wire.HEADERS, flags, stream, payload[:at])]
        parts += [raw_frame(wire.CONTINUATION, 0, stream) for _ in range(draw.randrange(3))]
        if draw.randrange(8) == 7:
            parts.append(self._data())
        return b"".join([*parts, raw_frame(wire.CONTINUATION, wire.END_HEADERS, stream, payload[at:])])

    def _data(self) -> bytes:
        draw = self._draw
        payload, flags = b"d" * draw.choice((*_SIZES[:10], *_SIZES[:10], *_SIZES)), draw.choice((0, 0, 0, 1))
        if draw.randrange(6) == 5:
            pad = draw.choice((0, 1, 9, 255))
            payload, flags = bytes([pad]) + payload + bytes(pad), flags | wire.PADDED
        return raw_frame(wire.DATA, flags, self._stream(), payload)

    def _control(self, kind: int) -> bytes:
        draw = self._draw
        if kind == 8:
            return self.settings() if draw.randrange(4) else raw_frame(wire.SETTINGS, wire.ACK, 0)
        if kind == 9:
            return raw_frame(wire.RST_STREAM, 0, self._stream(), draw.choice((0, 1, 3, 7, 8, 11, 99)).to_bytes(4))
        if kind == 10:
            return raw_frame(wire.PING, draw.choice((0, 1)), 0, draw.choice((bytes(8), bytes(7) + b"\1")))
        if kind == 11:
            return raw_frame(wire.WINDOW_UPDATE, 0, self._stream(), draw.choice(_NUMBERS).to_bytes(4))
        if draw.randrange(3):
            return raw_frame(wire.PRIORITY, 0, self._stream(), bytes(5))
        last = draw.choice((0, 1, 3, 5, 2**31 - 1))
        return raw_frame(wire.GOAWAY, 0, 0, last.to_bytes(4) + draw.choice((0, 2, 11)).to_bytes(4) + draw.bytes_of(8))

    def _damaged(self, made: bytes) -> bytes:
        draw = self._draw
        at, kind = draw.randrange(len(made) + 1), draw.randrange(4)
        if kind == 0:
            return made[:at]
        if kind == 1:
            return made[:at] + made[at + 1 :]
        if kind == 2:
            return made[:at] + draw.bytes_of(4) + made[at:]
        return made[:at] + bytes([draw.randrange(256)]) + made[at + 1 :]
