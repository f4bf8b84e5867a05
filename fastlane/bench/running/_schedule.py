"""Which request of a cell is due, and what is sent: without clocks, processes or threads."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from ..load import Block, first_turn
from ..recorded import Cell, Part, SampleKey
from ..workloads import Turn, Workload, salted, salted_tools
from ._messages import ScheduledRequest

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


BEFORE_BLOCKS: Final = -1
"""The block of requests that belong to none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """Makes the requests of a run."""

    model: str
    limit_field: str = "max_completion_tokens"
    """Name of the body's field that limits the answer's tokens."""
    embedded: bool = False
    seed: int = 0
    max_output_tokens: int | None = None

    def of_block(self, cell: Cell, due: Due, *, shard: int) -> ScheduledRequest:
        """Return one arm's request of a block."""
        block, turn = due.block, due.block.turn
        replay = f"{cell.name}/{block.replay}"
        if cell.caching_forbidden:
            replay += f"/{turn.number}"
        return self._job(
            turn,
            replay=replay,
            draw=f"{cell.name}/{block.lane}/{block.number}",
            arm=due.arm,
            tag=f"{cell.order}/{due.arm}/{block.lane}/{block.number}",
            cell=cell.name,
            shard=shard,
            lane=block.lane,
            block=block.number,
            position=due.position,
            turn=turn.number,
            intended_ns=due.intended_ns,
        )

    def cold(self, workload: Workload, arm: str, *, shard: int) -> ScheduledRequest:
        """Return the first request of an arm's process."""
        return self._before_blocks(workload, arm, shard, f"{arm}/cold" + (f"/{shard}" if shard else ""), "cold", "cold")

    def warm_up(self, cell: Cell, workload: Workload, arm: str, number: int, *, shard: int) -> ScheduledRequest:
        """Return one of the requests that an arm's process sends before a cell's first block."""
        which = f"warm-up/{shard}/{number}"
        return self._before_blocks(workload, arm, shard, f"{cell.order}/{arm}/{which}", "warm-up", which, cell.name)

    def _before_blocks(
        self, workload: Workload, arm: str, shard: int, tag: str, part: Part, what: str, cell: str = ""
    ) -> ScheduledRequest:
        which = f"{cell}/{what}"
        return self._job(
            first_turn(workload),
            replay=which,
            draw=which,
            arm=arm,
            tag=tag,
            cell=cell,
            shard=shard,
            block=BEFORE_BLOCKS,
            turn=0,
            part=part,
        )

    def _job(self, asked: Turn, *, replay: str, draw: str, arm: str, tag: str, **place: Any) -> ScheduledRequest:
        tokens = asked.answer_tokens
        if self.max_output_tokens is not None:
            tokens = min(tokens, self.max_output_tokens)
        # What is not asked for cannot be missed.
        least = None if asked.least_answer_tokens is None else min(asked.least_answer_tokens, tokens)
        line = salt(self.seed, arm, replay)
        body: dict[str, Any] = {
            "model": self.model,
            "messages": salted(asked.messages, line),
            self.limit_field: tokens,
            "stream_options": {"include_usage": True},
            **asked.fields,
        }
        if asked.tools:
            body["tools"] = salted_tools(asked.tools, line)
        key = SampleKey(
            arm=arm,
            tag=tag,
            conversation=asked.conversation,
            asked_output_tokens=tokens,
            least_output_tokens=least,
            meant_input_tokens=asked.input_tokens,
            **place,
        )
        return ScheduledRequest(key, body, self._headers(tag, tokens, draw))

    def _headers(self, tag: str, tokens: int, draw: str) -> Mapping[str, str]:
        if not self.embedded:
            return {}
        # Same draw, same luck: the arms of one block meet a provider in the same mood.
        digest = hashlib.blake2b(f"{self.seed}/{draw}".encode(), digest_size=6).digest()
        luck = int.from_bytes(digest, "big")
        return {"x-emulator-tag": tag, "x-emulator-output-tokens": str(tokens), "x-emulator-draw": str(luck)}


def salt(seed: int, arm: str, replay: str) -> str:
    """Return the first line of an arm's prompts in one conversation: as long for every arm, equal for every turn.

    A provider keeps prompts' prefixes. Without the salt the arm that sends a request first would pay for filling the
    cache, and the others would read from it. With it every arm has prefixes of its own, from turn to turn, and a
    conversation that is replayed once more finds none of its last pass.
    """
    digest = hashlib.blake2b(f"{seed}/{arm}/{replay}".encode(), digest_size=8).hexdigest()
    return f"Session {digest}."
