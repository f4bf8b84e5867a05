"""A provider and its callers in simulated time, around a queue for slots."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from fastlane.plays.urgency.slots import Slot, SlotQueue

S = 1_000_000_000


@dataclass(kw_only=True)
class Load:
    """What a provider is asked, and how it answers."""

    places: Callable[[float], int]
    """By the time in seconds."""
    refuses: bool = False
    """Whether it refuses what it has no place for, or has it wait."""
    refused_share: float = 0.0
    """Of calls that it refuses whatever is under way."""
    first_token_s: float = 0.3
    jitter: float = 0.6
    """Sigma of the log-normal distribution of first tokens."""
    decode_s: float = 1.7
    interactive_per_s: float = 2 / 3
    background: int = 300
    """So many background calls are wanted at any time: each that is over is followed by another."""
    max_concurrency: int | None = None
    seed: int = 0


@dataclass
class Outcome:
    limits: list[tuple[float, float]] = field(default_factory=list)
    waited: list[tuple[float, float]] = field(default_factory=list)
    """When each interactive call came, and seconds in our queue."""
    background_done: list[float] = field(default_factory=list)
    refused: int = 0
    most_under_way: int = 0

    def limit(self, since_s: float, until_s: float = math.inf) -> float:
        """The mean limit, by time."""
        total = weight = 0.0
        ends = [at for at, _ in self.limits[1:]] + [min(until_s, self.limits[-1][0])]
        for (at, limit), end in zip(self.limits, ends, strict=True):
            length = min(end, until_s) - max(at, since_s)
            if length > 0:
                total, weight = total + limit * length, weight + length
        return total / weight

    def background_per_s(self, since_s: float, until_s: float) -> float:
        return sum(since_s <= at < until_s for at in self.background_done) / (until_s - since_s)


class _Provider:
    def __init__(self, load: Load, simulation: Simulation) -> None:
        self.load = load
        self.simulation = simulation
        self.serving = 0
        self.waiting: deque[Callable[[], None]] = deque()

    def take(self, begin: Callable[[], None], refuse: Callable[[], None]) -> None:
        share = self.load.refused_share
        if share and self.simulation.random.random() < share:
            refuse()
        elif self.serving < self.load.places(self.simulation.now_ns / S):
            self.serving += 1
            begin()
        elif self.load.refuses:
            refuse()
        else:
            self.waiting.append(begin)

    def end(self) -> None:
        self.serving -= 1
        while self.waiting and self.serving < self.load.places(self.simulation.now_ns / S):
            self.serving += 1
            self.waiting.popleft()()


class Simulation:
    """Runs a load against a queue for slots."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.now_ns = 0
        self.queue = SlotQueue(
            clock=lambda: self.now_ns, call_at=lambda at_ns, do: self._at((at_ns - self.now_ns) / S, do)
        )
        self.random = Random(load.seed)
        self.outcome = Outcome()
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._provider = _Provider(load, self)

    def run(self, seconds: float) -> Outcome:
        for _ in range(self.load.background):
            self._at(self.random.random(), lambda: self._call(1))
        self._next_interactive()
        return self.run_on(seconds)

    def run_on(self, seconds: float) -> Outcome:
        """Go on until so many seconds after the beginning."""
        end_ns = int(seconds * S)
        while self._events and self._events[0][0] <= end_ns:
            self.now_ns, _, do = heapq.heappop(self._events)
            do()
            places = self.queue.limit.value
            if not self.outcome.limits or self.outcome.limits[-1][1] != places:
                self.outcome.limits.append((self.now_ns / S, places))
        self.outcome.limits.append((seconds, self.queue.limit.value))
        return self.outcome

    def _at(self, in_s: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now_ns + int(in_s * S), next(self._numbers), do))

    def _next_interactive(self) -> None:
        if self.load.interactive_per_s:

            def come() -> None:
                self._call(0)
                self._next_interactive()

            self._at(self.random.expovariate(self.load.interactive_per_s), come)

    def _call(self, level: int) -> None:
        load, random = self.load, self.random
        came_ns = self.now_ns
        prefill_s = load.first_token_s * math.exp(random.gauss(0, load.jitter))
        decode_s = load.decode_s * math.exp(random.gauss(0, 0.5))
        slot = Slot(self.queue, level, max_concurrency=load.max_concurrency)

        def send() -> None:
            self.outcome.most_under_way = max(self.outcome.most_under_way, sum(self.queue.in_flight))
            self._provider.take(begin, refuse)

        def begin() -> None:
            def finish() -> None:
                self._provider.end()
                if level == 0:
                    self.outcome.waited.append((came_ns / S, slot.waited_s))
                else:
                    self.outcome.background_done.append(self.now_ns / S)
                    self._at(0.001, lambda: self._call(1))
                slot.release(failed=False)

            self._at(prefill_s + decode_s, finish)

        def refuse() -> None:
            self.outcome.refused += 1
            self.queue.answered(slot, 503, {})
            slot.release()
            self._at(random.uniform(0.3, 0.8), lambda: self._call(level))

        def granted() -> bool:
            self._at(0.0005, send)
            return True

        slot.start(granted)
        if slot.is_granted:
            send()
