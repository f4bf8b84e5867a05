"""Which request is sent when: blocks in which every arm sends the same request once, in random order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random

from ..workloads import Turn, Workload
from ._arrivals import arrivals, spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One request, to be sent once by every arm."""

    lane: int
    number: int
    """Position in the lane, from 0."""
    replay: str
    """Names the conversation and the pass over the workload that the request belongs to: what shares a salt."""
    turn: Turn
    order: tuple[str, ...]
    """The arms' names in the order in which they send."""
    intended_s: tuple[float, ...] | None = None
    """When each of `order` is sent under an open load, in seconds from the cell's start; None under a closed one."""


def lane_of(
    workload: Workload,
    arms: Sequence[str],
    *,
    lane: int,
    lanes: int,
    passes: int | None,
    seed: str,
) -> Iterator[Block]:
    """Yield the blocks of one user of a closed load: conversations one after the other, as one user would talk.

    The conversations are dealt out to the lanes, and when they are used up, once more from the first: `passes` times,
    or for ever where it is None. No two lanes replay the same conversation of the same pass.
    """
    places = _replayable(workload)
    random = Random(f"{seed}/{lane}")
    end = None if passes is None else passes * len(places)
    number = count()
    for deal in count(lane, lanes) if end is None else range(lane, end, lanes):
        again, at = divmod(deal, len(places))
        for turn in workload.conversations[places[at]].turns:
            order = tuple(random.sample(list(arms), len(arms)))
            yield Block(lane=lane, number=next(number), replay=_replay(workload, again, at), turn=turn, order=order)


def open_blocks(
    workload: Workload,
    arms: Sequence[str],
    *,
    rate: float,
    passes: int | None,
    seed: str,
) -> Iterator[Block]:
    """Yield the blocks of an open load in the order of their arrival; `rate` blocks a second. See `spread`."""
    random = Random(f"{seed}/order")
    numbers = count() if passes is None else iter(range(passes))
    moments = arrivals(rate, seed=f"{seed}/arrivals")
    offsets = spread(len(arms), rate)
    for number, (at, (replay, turn)) in enumerate(zip(moments, _all_turns(workload, numbers), strict=False)):
        yield Block(
            lane=0,
            number=number,
            replay=replay,
            turn=turn,
            order=tuple(random.sample(list(arms), len(arms))),
            intended_s=tuple(at + offset for offset in offsets),
        )


def first_turn(workload: Workload) -> Turn:
    """Return the workload's first request."""
    return workload.conversations[_replayable(workload)[0]].turns[0]


def blocks_in_pass(workload: Workload) -> int:
    """Return how many blocks one pass over the workload has."""
    return sum(len(workload.conversations[at].turns) for at in _replayable(workload))


def _replayable(workload: Workload) -> Sequence[int]:
    """Return the places of the conversations that have a turn."""
    conversations = workload.conversations
    if not isinstance(conversations, tuple):
        # Those that are made when they are asked for have turns, and may be thousands.
        return range(len(conversations))
    return [at for at, conversation in enumerate(conversations) if conversation.turns]


def _replay(workload: Workload, again: int, at: int) -> str:
    # Where conversations begin alike on purpose, what an arm puts before them has to be alike too.
    return f"{again}" if workload.shares_prefixes else f"{again}/{at}"


def _all_turns(workload: Workload, passes: Iterator[int]) -> Iterator[tuple[str, Turn]]:
    # Turn by turn over all conversations: what arrives at the same time are different users' requests, while the next
    # turn of the same conversation comes only after some time, as it does in traffic.
    talks = [workload.conversations[at].turns for at in _replayable(workload)]
    for again in passes:
        for place in range(max(map(len, talks))):
            for at, talk in enumerate(talks):
                if place < len(talk):
                    yield _replay(workload, again, at), talk[place]
