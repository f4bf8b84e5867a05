"""How requests are spread over time, and when a run has enough of them: pure planning."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from random import Random

from .recorded import Cell, Sample
from .workloads import Turn, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """A fixed number of users, each with one request in flight; every entry of `users` is a cell."""

    users: tuple[int, ...] = (8,)
    think_s: float = 0.1
    """Pause of a user before each block but its first, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Requests are sent when the schedule says, whatever became of those before; every entry of `rates` is a cell.

    Blocks arrive at random (Poisson).
    """

    rates: tuple[float, ...] = (1.0,)
    """Blocks per second; every arm sends once in each."""


Load = Closed | Open


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBudget:
    """What a run may cost: no block starts once one of these is spent. None is no limit; blocks under way finish."""

    seconds: float | None = 45.0
    calls: int | None = None
    """Requests of all arms and cells together, the first and the warm-up ones included."""
    money: float | None = None
    """US dollars by the catalog's prices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """End a cell once every arm's typical ratio of `metric` is known this well, by a confidence sequence."""

    metric: str = "time_to_first_token"
    half_width: float = 0.03
    """Of the ratio's interval: 0.03 is plus or minus 3 %."""


def arrivals(rate: float, *, seed: str) -> Iterator[float]:
    """Yield for ever when blocks arrive, in seconds from 0: `rate` a second, with exponential gaps (Poisson)."""
    random, at = Random(seed), 0.0
    while True:
        at += random.expovariate(rate)
        yield at


def spread(order: int, rate: float) -> tuple[float, ...]:
    """Return by how many seconds the first, second … of `order` requests of a block are sent after its arrival.

    All are intended times, fixed in advance: no request waits for another one's answer, which would make a slow arm
    hold back the next one's requests (coordinated omission). Nor are all sent at once, because requests in lock-step
    queue behind each other, in the machine and at the provider, and the queue would be taken for latency. They are
    spread evenly over the time to the next block's arrival, so that the provider meets an even load; over a second at
    most, so that the members of a pair meet the provider in the same mood. Which arm gets which place is drawn at
    random for every block, so that each place's luck falls on every arm equally often. An arm's own arrivals are those
    of the blocks, each displaced by an independent draw: Poisson arrivals stay Poisson by that (the displacement
    theorem; Kingman, Poisson Processes, 1993, section 5.5).
    """
    step = min(1 / rate, _LONGEST_SPREAD_S) / order
    return tuple(position * step for position in range(order))


_LONGEST_SPREAD_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCost:
    """What requests have cost so far."""

    seconds: float = 0.0
    calls: int = 0
    money: float = 0.0

    def with_sample(self, sample: Sample) -> RunCost:
        """Return this with one more request; its time is not counted here."""
        return replace(
            self,
            calls=self.calls + 1,
            money=self.money + (sample.price or 0.0),
        )

    def with_seconds(self, seconds: float) -> RunCost:
        """Return this with a cell's time."""
        return replace(self, seconds=self.seconds + seconds)


def share_of(budget: RunBudget, spent: RunCost, *, cells_left: int) -> RunBudget:
    """Return what the next of the cells that are left may spend: an equal part of what is left.

    What a cell does not use is there for those after it.
    """
    left = {name: max(0.0, limit - used) / cells_left for name, limit, used in _limits(budget, spent)}
    calls = left.get("calls")
    return RunBudget(
        seconds=left.get("seconds"), calls=None if calls is None else math.floor(calls), money=left.get("money")
    )


def exhausted(budget: RunBudget, spent: RunCost, *, calls_of_next: int = 0) -> str | None:
    """Return why no further block may start, such as "calls spent"; None while one may.

    Calls are known before they are made, so that they are never exceeded; the others are spent when they are seen to
    be.
    """
    for name, limit, used in _limits(budget, spent):
        if used + calls_of_next > limit if name == "calls" else used >= limit:
            return f"{name} spent"
    return None


def share_spent(budget: RunBudget, spent: RunCost) -> float:
    """Return the largest share of any limit that is spent, 1.0 at most; 0.0 where nothing is limited."""
    shares = [used / limit if limit else 1.0 for _, limit, used in _limits(budget, spent)]
    return min(1.0, max(shares, default=0.0))


def _limits(budget: RunBudget, spent: RunCost) -> Iterator[tuple[str, float, float]]:
    """Yield the name of each limit, the limit, and how much of it is spent."""
    for name in ("calls", "seconds", "money"):
        limit = getattr(budget, name)
        if limit is not None:
            yield name, limit, getattr(spent, name)


def cells_of(workloads: Sequence[Workload], load: Load, *, seed: int) -> tuple[Cell, ...]:
    """Return the cells in the order in which they are run.

    The order is random, because a provider that becomes slower from minute to minute would otherwise make the later
    loads look like the worse ones.
    """
    found = [cell for workload in workloads for cell in _of_one(workload, load, several=len(workloads) > 1)]
    order = Random(f"{seed}/cells").sample(range(len(found)), len(found))
    return tuple(replace(found[at], order=position) for position, at in enumerate(order))


def _of_one(workload: Workload, load: Load, *, several: bool) -> list[Cell]:
    cell = Cell(
        name=workload.name,
        workload=workload.name,
        scenario=workload.name if several else None,
        caching_forbidden=workload.caching_forbidden,
    )
    if not isinstance(load, Open):
        return [
            replace(cell, name=f"{workload.name}, {users} {'user' if users == 1 else 'users'}", users=users)
            for users in load.users
        ]
    return [replace(cell, name=f"{workload.name}, {rate:g}/s", load="open", rate=rate) for rate in load.rates]


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
    random = Random(f"{seed}/{lane}")
    conversations = workload.conversations
    end = None if passes is None else passes * len(conversations)
    number = count()
    for deal in count(lane, lanes) if end is None else range(lane, end, lanes):
        again, at = divmod(deal, len(conversations))
        for turn in conversations[at].turns:
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
    return workload.conversations[0].turns[0]


def blocks_in_pass(workload: Workload) -> int:
    """Return how many blocks one pass over the workload has."""
    return sum(len(each.turns) for each in workload.conversations)


def _replay(workload: Workload, again: int, at: int) -> str:
    # Where conversations begin alike on purpose, what an arm puts before them has to be alike too.
    return f"{again}" if workload.shares_prefixes else f"{again}/{at}"


def _all_turns(workload: Workload, passes: Iterator[int]) -> Iterator[tuple[str, Turn]]:
    # Turn by turn over all conversations: what arrives at the same time are different users' requests, while the next
    # turn of the same conversation comes only after some time, as it does in traffic.
    talks = [each.turns for each in workload.conversations]
    for again in passes:
        for place in range(max(map(len, talks))):
            for at, talk in enumerate(talks):
                if place < len(talk):
                    yield _replay(workload, again, at), talk[place]
