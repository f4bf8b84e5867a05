"""What either side of a connection over HTTP/2 may still send, counted from the frames alone (RFC 9113, 6.9)."""

from __future__ import annotations

from collections import defaultdict

from fastlane.transport.protocols import frames as wire, limits as limits
from tests.fuzz.targets._target import holds

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_INITIAL_WINDOW_SIZE = 4

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


class Ledger:
    """The windows in both directions."""

    def __init__(self) -> None:
        self._ours, self._theirs = Frames(_PREFACE), Frames()
        self._first = limits.FIRST_WINDOW
        self._room_changes: defaultdict[int, int] = defaultdict(int)
        """What a stream may send beyond what each may at first."""
        self._room = limits.FIRST_WINDOW
        self._granted: defaultdict[int, int] = defaultdict(lambda: limits.STREAM_WINDOW)
        self._granted_to_all = limits.FIRST_WINDOW
        self.reset: set[int] = set()
        self.overdrawn = False
        """The server has sent more than it was granted, on a stream that we have not reset."""
        self.overdrawn_by_all = False

    @property
    def waits_for_more(self) -> bool:
        """The server's last frame is not whole: h2 looks at its head already."""
        return self._theirs.waits_for_more

    def said_by_us(self, data: bytes) -> list[Frame]:
        """Count what our side has sent, none of which may be more than the server takes."""
        frames = self._ours.of(data)
        for kind, _, stream, payload in frames:
            holds(len(payload) <= limits.FRAME_BYTES or kind != wire.SETTINGS, "a frame of ours is too large", kind)
            if kind == wire.DATA and payload:
                room = self._first + self._room_changes[stream]
                holds(len(payload) <= room, "we sent more than a stream's window", stream, len(payload), room)
                holds(len(payload) <= self._room, "we sent more than the connection's window", len(payload), self._room)
                self._room_changes[stream] -= len(payload)
                self._room -= len(payload)
                holds(stream not in self.reset, "we sent a body on a stream that we have reset", stream)
            elif kind == wire.WINDOW_UPDATE:
                increment = int.from_bytes(payload)
                holds(0 < increment <= limits.LARGEST_WINDOW, "a window is opened by nothing, or too far", increment)
                if stream:
                    self._granted[stream] += increment
                    holds(self._granted[stream] <= limits.STREAM_WINDOW, "a stream's window grows", stream)
                else:
                    self._granted_to_all += increment
                    most = max(limits.CONNECTION_WINDOW, limits.FIRST_WINDOW)
                    holds(self._granted_to_all <= most, "the connection's window grows", self._granted_to_all)
            elif kind == wire.RST_STREAM:
                holds(stream not in self.reset, "a stream is reset twice", stream)
                self.reset.add(stream)
        return frames

    def said_by_server(self, data: bytes) -> list[Frame]:
        """Count what the server has sent."""
        frames = self._theirs.of(data)
        for kind, flags, stream, payload in frames:
            if kind == wire.DATA:
                self._granted_to_all -= len(payload)
                self._granted[stream] -= len(payload)
                self.overdrawn_by_all |= self._granted_to_all < 0
                self.overdrawn |= self._granted[stream] < 0 and stream not in self.reset
            elif kind == wire.WINDOW_UPDATE and len(payload) == 4:
                increment = int.from_bytes(payload) & limits.LARGEST_WINDOW
                if stream:
                    self._room_changes[stream] += increment
                else:
                    self._room += increment
            elif kind == wire.SETTINGS and not flags & wire.ACK:
                for at in range(0, len(payload) - 5, 6):
                    if int.from_bytes(payload[at : at + 2]) == _INITIAL_WINDOW_SIZE:
                        self._first = int.from_bytes(payload[at + 2 : at + 6])
        return frames
