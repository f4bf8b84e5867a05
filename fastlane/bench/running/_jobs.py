"""What is sent: each arm's request of a block, its body, its salt and what orders the embedded provider's answer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..load import first_turn
from ..recorded import Cell, Part, SampleKey
from ..workloads import Turn, Workload, salted, salted_tools
from ._messages import ScheduledRequest
from ._pacing import Due

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
