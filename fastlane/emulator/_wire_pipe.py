"""One direction of a proxied connection, which delivers what it is fed when the model says that it arrives."""

from __future__ import annotations

import asyncio
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING

from fastlane.emulator._wire_flow import Flow

if TYPE_CHECKING:
    from fastlane.emulator._wire_relay import End

# Bytes on their way per direction before the sender is no longer read: room for a fast download, not for a leak.
_PIPE_BYTES = 4 << 20


class _Signal(Enum):
    """What travels through a pipe beside bytes."""

    FINISH = "finish"
    RESET = "reset"


class Pipe:
    """One direction of a connection: what one end reads is written at the other end when the flow says it arrives."""

    __slots__ = (
        "_flow",
        "_loop",
        "_queue",
        "_queued_bytes",
        "_resetting",
        "_timer",
        "closed",
        "delivered_bytes",
        "finished",
        "sink",
        "source",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, flow: Flow, source: End, sink: End) -> None:
        self._loop = loop
        self._flow = flow
        self._queue: deque[tuple[int, bytes | _Signal]] = deque()
        self._queued_bytes = 0
        self._resetting = False
        self._timer: asyncio.TimerHandle | None = None
        self.source = source
        self.sink = sink
        self.delivered_bytes = 0
        self.finished = False  # the end of the stream has arrived
        self.closed = False  # nothing goes in or comes out any more

    def feed(self, data: bytes) -> None:
        if self.closed or self._resetting:
            return
        start = 0
        for arrives_ns, size in self._flow.send(loop_ns(self._loop), len(data)):
            self._queue.append((arrives_ns, data[start : start + size]))
            start += size
        self._queued_bytes += len(data)
        if self._queued_bytes > _PIPE_BYTES:
            self.source.hold()
        self.arm()

    def finish(self) -> None:
        if not self.closed and not self._resetting:
            self._queue.append((self._flow.finish(loop_ns(self._loop)), _Signal.FINISH))
            self.arm()

    def reset(self) -> None:
        """Send a reset: it overtakes what has not left yet, not what is already on its way."""
        if self.closed or self._resetting:
            return
        self._resetting = True
        arrives_ns = self._flow.reset(loop_ns(self._loop))
        while self._queue and self._queue[-1][0] > arrives_ns:
            self._queue.pop()
        self._queue.append((arrives_ns, _Signal.RESET))
        self._disarm()
        self.arm()

    def discard(self) -> None:
        """Throw away what is on its way: nobody is there to take it."""
        self.closed = True
        self._queue.clear()
        self._disarm()

    def arm(self) -> None:
        """Set the timer to the next arrival, by an absolute deadline, so that late timers do not add up."""
        # A reset does not wait for a receiver that does not read.
        takes = self.sink.connected if self._resetting else self.sink.writable
        if takes and self._queue and self._timer is None:
            self._timer = self._loop.call_at(self._queue[0][0] / 1e9, self._deliver)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _deliver(self) -> None:
        self._timer = None
        now_ns = loop_ns(self._loop) + 1_000  # forgive the rounding of nanoseconds to the loop's float seconds
        arrived: list[bytes] = []
        signal: _Signal | None = None
        while self._queue and self._queue[0][0] <= now_ns and signal is None:
            item = self._queue.popleft()[1]
            if isinstance(item, _Signal):
                signal = item
            else:
                arrived.append(item)
        if arrived and self.sink.writable:
            data = arrived[0] if len(arrived) == 1 else b"".join(arrived)
            self._queued_bytes -= len(data)
            self.delivered_bytes += len(data)
            self.sink.write(data)
        if self._queued_bytes <= _PIPE_BYTES // 2:
            self.source.release()
        if signal is _Signal.RESET:
            self.discard()
            self.sink.abort()
            return
        if signal is _Signal.FINISH:
            self.finished = True
            self.sink.finish()
        self.arm()  # a reset may follow the end of the stream


def loop_ns(loop: asyncio.AbstractEventLoop) -> int:
    """The loop's own clock, which its timers go by, in nanoseconds."""
    return int(loop.time() * 1e9)
