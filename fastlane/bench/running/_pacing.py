"""Which request of a cell is due: the state of a closed or an open load, without clocks, processes or threads."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from ..load import Block

AHEAD_NS = 300_000_000
"""How long before its intended time a request is handed to its arm's process."""


@dataclass(frozen=True, slots=True)
class Due:
    """One arm's request of a block that is to be handed out now."""

    block: Block
    position: int
    intended_ns: int | None = None

    @property
    def arm(self) -> str:
        """The arm that sends it."""
        return self.block.order[self.position]


class ClosedPacing:
    """Users with one request in flight each: an arm's request of a block is sent when the one before has ended.

    `lanes` has the blocks of each user. All times are in monotonic nanoseconds.
    """

    def __init__(self, lanes: Sequence[Iterator[Block]], *, think_s: float, block_s: float, seed: str) -> None:
        self._lanes = lanes
        self._seed = seed
        self._block_s = block_s
        self._think_ns = round(think_s * 1e9)
        self._waiting: list[tuple[int, int, Block]] = []

    def begin(self, now: int) -> None:
        """Have the cell begin now."""
        for lane in range(len(self._lanes)):
            # Users in step would queue behind each other, and the queue would be taken for the provider's latency:
            # they start one after the other over the time that one block takes, none at an even distance.
            jitter = Random(f"{self._seed}/start/{lane}").random() / 2
            delay_s = self._block_s * (lane + jitter) / len(self._lanes) if lane else 0.0
            self._queue(lane, now + round(delay_s * 1e9))

    def _queue(self, lane: int, at_ns: int) -> None:
        block = next(self._lanes[lane], None)
        if block is not None:
            heapq.heappush(self._waiting, (at_ns, lane, block))

    def next_ns(self) -> int | None:
        """Return when the next block may start, or None: nothing more, or only after an answer."""
        return self._waiting[0][0] if self._waiting else None

    def start(self) -> list[Due]:
        """Start the next block, and return what is due of it at once."""
        return [Due(heapq.heappop(self._waiting)[2], 0)]

    def answered(self, due: Due, now: int) -> list[Due]:
        """Take note of an answer, and return what is due because of it."""
        if due.position + 1 < len(due.block.order):
            return [Due(due.block, due.position + 1)]
        self._queue(due.block.lane, now + self._think_ns)
        return []

    def arrives_s(self) -> float | None:
        """Return by how many seconds after the cell's start the next block arrives; None under a closed load."""
        return None


class OpenPacing:
    """Requests at their intended times, whatever became of those before. The methods are those of ClosedPacing."""

    def __init__(self, blocks: Iterator[Block]) -> None:
        self._blocks = blocks
        self._next = next(blocks, None)
        self._began_ns = 0

    def begin(self, now: int) -> None:
        self._began_ns = now + AHEAD_NS

    def next_ns(self) -> int | None:
        return None if self._next is None else self._intended_ns(self._next, 0) - AHEAD_NS

    def start(self) -> list[Due]:
        block, self._next = self._next, next(self._blocks, None)
        if block is None:
            return []
        return [Due(block, at, self._intended_ns(block, at)) for at in range(len(block.order))]

    def answered(self, due: Due, now: int) -> list[Due]:
        return []

    def arrives_s(self) -> float | None:
        if self._next is None or self._next.intended_s is None:
            return None
        return self._next.intended_s[0]

    def _intended_ns(self, block: Block, position: int) -> int:
        at = block.intended_s[position] if block.intended_s is not None else 0.0
        return self._began_ns + round(at * 1e9)


Pacing = ClosedPacing | OpenPacing
