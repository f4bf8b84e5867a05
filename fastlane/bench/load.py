"""How requests are spread over time, and when a run has enough of them: pure planning."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from typing import Final

from ..records.formatting import counted
from .recorded import Cell
from .workloads import Turn, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """A fixed number of users, each with one request in flight; every entry of `users` is a cell."""

    users: tuple[int, ...] = (8,)
    think_s: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Blocks that arrive at random (Poisson), whatever became of those before; every entry of `rates` is a cell."""

    rates: tuple[float, ...] = (1.0,)


Load = Closed | Open


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBudget:
    """What a run may cost: no block starts once one of these is spent. None is no limit; blocks under way finish."""

    seconds: float | None = 45.0
    calls: int | None = None
    """Requests of all arms and cells together, the first and the warm-up ones included."""
    money: float | None = None


@dataclass(slots=True, kw_only=True)
class RunCost:
    """What a run has cost so far."""

    seconds: float = 0.0
    calls: int = 0
    money: float = 0.0


def limits_of(budget: RunBudget, spent: RunCost, *, cells_left: int) -> RunBudget:
    """Return up to what the run may spend by the end of the next cell: each cell has an equal part of what is left."""
    found = {name: used + max(0.0, limit - used) / cells_left for name, limit, used in _limits(budget, spent)}
    calls = int(found["calls"]) if "calls" in found else None
    return RunBudget(seconds=found.get("seconds"), calls=calls, money=found.get("money"))


def exhausted(limits: RunBudget, spent: RunCost, *, calls_of_next: int = 0) -> str | None:
    """Return why no further block may start, such as "calls spent". Calls, known before, are never exceeded."""
    for name, limit, used in _limits(limits, spent):
        if used + calls_of_next > limit if name == "calls" else used >= limit:
            return f"{name} spent"
    return None


def share_spent(limits: RunBudget, spent: RunCost, before: RunCost) -> float:
    """Return the largest share of any limit that was spent since `before`, at most 1.0; 0.0 without limits."""
    shares = [0.0]
    for name, limit, used in _limits(limits, spent):
        began = getattr(before, name)
        shares.append((used - began) / (limit - began) if limit > began else 1.0)
    return min(1.0, max(shares))


def _limits(budget: RunBudget, spent: RunCost) -> Iterator[tuple[str, float, float]]:
    """Yield the name of each limit, the limit, and how much of it is spent."""
    for name in ("calls", "seconds", "money"):
        limit = getattr(budget, name)
        if limit is not None:
            yield name, limit, getattr(spent, name)


def cells_of(workloads: Sequence[Workload], load: Load, *, seed: int) -> tuple[Cell, ...]:
    """Return the cells in random order: a provider that slows down must not make the later loads look worse."""
    found = []
    for workload in workloads:
        cell = Cell(
            name=workload.name,
            workload=workload.name,
            caching_forbidden=workload.caching_forbidden,
        )
        if isinstance(load, Open):
            found += [replace(cell, name=f"{cell.name}, {rate:g}/s", load="open", rate=rate) for rate in load.rates]
        else:
            found += [replace(cell, name=f"{cell.name}, {counted(users, 'user')}", users=users) for users in load.users]
    return tuple(replace(cell, order=at) for at, cell in enumerate(Random(f"{seed}/cells").sample(found, len(found))))


# Blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One request, to be sent once by every arm."""

    lane: int
    number: int
    replay: str
    """Names the conversation and the pass over the workload that the request belongs to: what shares a salt."""
    turn: Turn
    order: tuple[str, ...]
    intended_s: tuple[float, ...] | None = None
    """When each of `order` is sent under an open load, in seconds from the cell's start; None under a closed one."""


def lane_of(
    workload: Workload, arms: Sequence[str], *, lane: int, lanes: int, passes: int | None, seed: str
) -> Iterator[Block]:
    """Yield the blocks of one user of a closed load: conversations one after the other, turn by turn.

    They are dealt out to the lanes, `passes` times or without end: no two lanes have the same one of the same pass.
    """
    random, numbers, conversations = Random(f"{seed}/{lane}"), count(), workload.conversations
    deals = count(lane, lanes) if passes is None else range(lane, passes * len(conversations), lanes)
    for deal in deals:
        number, at = divmod(deal, len(conversations))
        for turn in conversations[at].turns:
            order = tuple(random.sample(list(arms), len(arms)))
            yield Block(lane=lane, number=next(numbers), replay=f"{number}/{at}", turn=turn, order=order)


def open_blocks(
    workload: Workload, arms: Sequence[str], *, rate: float, passes: int | None, seed: str
) -> Iterator[Block]:
    """Yield the blocks of an open load, `rate` a second with exponential gaps, with turns taken across conversations.

    The arms' requests of a block are spread evenly over the time to the next, a second at most, in random order. All
    times are fixed in advance: no request waits for another's response (coordinated omission). An arm's arrivals are
    the blocks', each displaced by an independent draw: they stay Poisson (Kingman, Poisson Processes, 1993, 5.5).
    """
    random, gaps, moment = Random(f"{seed}/order"), Random(f"{seed}/arrivals"), 0.0
    step = min(1 / rate, _LONGEST_SPREAD_S) / len(arms)
    for number, (replay, turn) in enumerate(_all_turns(workload, count() if passes is None else range(passes))):
        moment += gaps.expovariate(rate)
        yield Block(
            lane=0,
            number=number,
            replay=replay,
            turn=turn,
            order=tuple(random.sample(list(arms), len(arms))),
            intended_s=tuple(moment + position * step for position in range(len(arms))),
        )


_LONGEST_SPREAD_S: Final = 1.0


def blocks_in_pass(workload: Workload) -> int:
    """Return how many blocks one pass over the workload has."""
    return sum(len(each.turns) for each in workload.conversations)


def _all_turns(workload: Workload, passes: count[int] | range) -> Iterator[tuple[str, Turn]]:
    talks = [each.turns for each in workload.conversations]
    for number in passes:
        for turn in range(max(map(len, talks))):
            for at, talk in enumerate(talks):
                if turn < len(talk):
                    yield f"{number}/{at}", talk[turn]


# Which request is due

AHEAD_NS: Final = 300_000_000
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


class Pacing:
    """Says which request of a cell is due when. All times are in monotonic nanoseconds.

    `lanes` has the blocks of each user; an open load has one lane. `block_s` is about how long a block takes: users
    start over that time at uneven distances, since users in step would queue behind each other.
    """

    def __init__(
        self, lanes: Sequence[Iterator[Block]], *, now: int, think_s: float = 0.0, block_s: float = 0.0, seed: str = ""
    ) -> None:
        self._lanes = lanes
        self._began_ns = now
        self._think_ns = round(think_s * 1e9)
        self._waiting: list[tuple[int, int, Block]] = []
        for lane in range(len(lanes)):
            jitter = Random(f"{seed}/start/{lane}").random() / 2
            delay_s = block_s * (lane + jitter) / len(lanes) if lane else 0.0
            self._queue(lane, now + round(delay_s * 1e9))

    def _queue(self, lane: int, at_ns: int) -> None:
        if (block := next(self._lanes[lane], None)) is not None:
            if block.intended_s is not None:
                at_ns = self._began_ns + round(block.intended_s[0] * 1e9)
            heapq.heappush(self._waiting, (at_ns, lane, block))

    def next_ns(self) -> int | None:
        """Return when the next block may start, or None: nothing more, or only after a response."""
        return self._waiting[0][0] if self._waiting else None

    def start(self) -> list[Due]:
        """Start the next block, and return what is due of it at once."""
        block = heapq.heappop(self._waiting)[2]
        if block.intended_s is None:
            return [Due(block, 0)]
        self._queue(block.lane, 0)
        first_ns = self._began_ns + AHEAD_NS
        return [Due(block, at, first_ns + round(intended * 1e9)) for at, intended in enumerate(block.intended_s)]

    def ended(self, due: Due, now: int) -> Due | None:
        """Note that a request has ended, and return the one that is due because of it."""
        if due.intended_ns is not None:
            return None
        if due.position + 1 < len(due.block.order):
            return Due(due.block, due.position + 1)
        self._queue(due.block.lane, now + self._think_ns)
        return None
