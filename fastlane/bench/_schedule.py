"""Which request is sent when: blocks in which every arm sends the same request once, in random order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from .workloads import Conversation, Turn, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One request, to be sent once by every arm."""

    lane: int
    number: int
    """Position in the lane, from 0."""
    conversation_index: int
    turn: Turn
    order: tuple[str, ...]
    """The arms' names in the order in which they send."""

    def tag(self, arm: str) -> str:
        """Name one arm's request of this block, for the provider's log."""
        return f"{arm}/{self.lane}/{self.number}"


def lanes(
    workload: Workload, arms: Sequence[str], *, lane_count: int, turns: int | None, seed: int
) -> tuple[tuple[Block, ...], ...]:
    """Deal the conversations out to the lanes, and draw the arms' order for every block.

    A lane replays its conversations one after the other, each with at most `turns` turns, as one user would.
    """
    dealt = [list(enumerate(workload.conversations))[lane::lane_count] for lane in range(lane_count)]
    return tuple(
        tuple(_blocks(lane, conversations, tuple(arms), turns, Random(f"{seed}/{lane}")))
        for lane, conversations in enumerate(dealt)
    )


def _blocks(
    lane: int,
    conversations: Sequence[tuple[int, Conversation]],
    arms: tuple[str, ...],
    turns: int | None,
    random: Random,
) -> Iterator[Block]:
    number = 0
    for index, conversation in conversations:
        for turn in conversation.turns[:turns]:
            order = tuple(random.sample(arms, len(arms)))
            yield Block(lane=lane, number=number, conversation_index=index, turn=turn, order=order)
            number += 1


def salt(seed: int, arm: str, conversation_index: int | str) -> str:
    """Return the first line of an arm's prompts in one conversation: as long for every arm, equal for every turn.

    A provider keeps prompts' prefixes. Without the salt the arm that sends a request first would pay for filling the
    cache, and the others would read from it. With it every arm has prefixes of its own, from turn to turn.
    """
    digest = hashlib.blake2b(f"{seed}/{arm}/{conversation_index}".encode(), digest_size=8).hexdigest()
    return f"Session {digest}."
