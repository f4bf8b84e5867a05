"""What is sent: each arm's request of a block, its body, its salt and what orders the embedded provider's answer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from ..load import first_turn
from ..recorded import Part
from ..workloads import Turn, salted, salted_tools
from ._messages import CellPlan, SampleKey, ScheduledRequest, ShardPlan
from ._pacing import Due

BEFORE_BLOCKS: Final = -1
"""The block of requests that belong to none."""


class Jobs:
    """Makes the requests of one shard."""

    def __init__(self, plan: ShardPlan) -> None:
        self._plan = plan

    def of_block(self, plan: CellPlan, due: Due) -> ScheduledRequest:
        """Return one arm's request of a block."""
        block, turn = due.block, due.block.turn
        replay = f"{plan.cell.name}/{block.replay}"
        if plan.cell.caching_forbidden:
            replay += f"/{turn.number}"
        tokens = _tokens(turn, plan.max_output_tokens)
        place = SampleKey(
            arm=due.arm,
            tag=f"{plan.cell.order}/{due.arm}/{block.lane}/{block.number}",
            cell=plan.cell.name,
            shard=self._plan.shard,
            lane=block.lane,
            block=block.number,
            position=due.position,
            conversation=turn.conversation,
            turn=turn.number,
            intended_ns=due.intended_ns,
            asked_output_tokens=tokens,
            least_output_tokens=_least(turn, tokens),
            meant_input_tokens=turn.input_tokens,
        )
        return self._job(place, turn, tokens, replay=replay, draw=f"{plan.cell.name}/{block.lane}/{block.number}")

    def cold(self, arm: str) -> ScheduledRequest:
        """Return the first request of an arm's process."""
        shard = f"/{self._plan.shard}" if self._plan.shard else ""
        return self._before_blocks(arm, f"{arm}/cold{shard}", self._plan.first, "cold", "cold")

    def warm_up(self, plan: CellPlan, arm: str, number: int) -> ScheduledRequest:
        """Return one of the requests that an arm's process sends before a cell's first block."""
        which = f"warm-up/{self._plan.shard}/{number}"
        tag = f"{plan.cell.order}/{arm}/{which}"
        return self._before_blocks(arm, tag, first_turn(plan.workload), "warm-up", which, plan)

    def _before_blocks(
        self, arm: str, tag: str, turn: Turn, part: Part, what: str, plan: CellPlan | None = None
    ) -> ScheduledRequest:
        tokens = _tokens(turn, self._plan.max_output_tokens)
        place = SampleKey(
            arm=arm,
            tag=tag,
            cell="" if plan is None else plan.cell.name,
            shard=self._plan.shard,
            block=BEFORE_BLOCKS,
            conversation=turn.conversation,
            turn=0,
            part=part,
            asked_output_tokens=tokens,
            least_output_tokens=_least(turn, tokens),
            meant_input_tokens=turn.input_tokens,
        )
        return self._job(place, turn, tokens, replay=f"{place.cell}/{what}", draw=f"{place.cell}/{what}")

    def _job(self, place: SampleKey, turn: Turn, tokens: int, *, replay: str, draw: str) -> ScheduledRequest:
        line = salt(self._plan.seed, place.arm, replay)
        body: dict[str, Any] = {
            "model": self._plan.model,
            "messages": salted(turn.messages, line),
            self._plan.limit_field: tokens,
            "stream_options": {"include_usage": True},
            **turn.fields,
        }
        if turn.tools:
            body["tools"] = salted_tools(turn.tools, line)
        return ScheduledRequest(place, body, self._headers(place.tag, tokens, draw))

    def _headers(self, tag: str, tokens: int, draw: str) -> Mapping[str, str]:
        if not self._plan.embedded:
            return {}
        # Same draw, same luck: the arms of one block meet a provider in the same mood.
        digest = hashlib.blake2b(f"{self._plan.seed}/{draw}".encode(), digest_size=6).digest()
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


def _tokens(turn: Turn, most: int | None) -> int:
    return turn.answer_tokens if most is None else min(turn.answer_tokens, most)


def _least(turn: Turn, tokens: int) -> int | None:
    # What is not asked for cannot be missed.
    return None if turn.least_answer_tokens is None else min(turn.least_answer_tokens, tokens)
