"""Providers with two kinds of limits, and replicas that send to them, in simulated time."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from fastlane.plays.rate_limits.bucket import RequestCost
from fastlane.plays.rate_limits.limiter import RateLimiter, Reservation
from fastlane.providers.facts import Counts

NS = 1_000_000_000
WAY_S = 0.02


class Bucket:
    """Fills all the time; `holds` is what it can hold, the limit where that is not given."""

    def __init__(self, limit: float, window_s: float = 60.0, holds: float | None = None) -> None:
        self.limit, self.window_s = limit, window_s
        self._holds = limit if holds is None else holds
        self._level, self._at = self._holds, 0.0

    def left(self, now_s: float) -> float:
        self._level = min(self._holds, self._level + (now_s - self._at) * self.limit / self.window_s)
        self._at = now_s
        return self._level

    def take(self, now_s: float, cost: float) -> None:
        self._level = self.left(now_s) - cost

    def reset_s(self, now_s: float) -> float:
        return (self._holds - self.left(now_s)) * self.window_s / self.limit

    def wait_s(self, now_s: float, cost: float) -> float:
        return max(0.0, (cost - self.left(now_s)) * self.window_s / self.limit)


class Window(Bucket):
    """Counts anew from the end of each window on."""

    _number = 0
    _used = 0.0

    def left(self, now_s: float) -> float:
        number = int(now_s // self.window_s)
        if number != self._number:
            self._number, self._used = number, 0.0
        return self.limit - self._used

    def take(self, now_s: float, cost: float) -> None:
        self.left(now_s)
        self._used += cost

    def reset_s(self, now_s: float) -> float:
        return self.window_s - now_s % self.window_s

    def wait_s(self, now_s: float, cost: float) -> float:
        return 0.0 if self.left(now_s) >= cost else self.reset_s(now_s)


@dataclass
class Provider:
    """Admits or refuses, and says in headers what is left."""

    requests: Bucket | None
    tokens: Bucket | None
    has_headers: bool = True
    has_retry_after: bool = True
    admitted: list[tuple[float, int]] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)

    def ask(self, now_s: float, tokens: int) -> tuple[int, dict[str, str]]:
        counters = [
            (name, one, cost)
            for name, one, cost in (("requests", self.requests, 1.0), ("tokens", self.tokens, float(tokens)))
            if one is not None
        ]
        fits = all(one.left(now_s) >= cost - 1e-6 for _, one, cost in counters)
        wait_s = max(one.wait_s(now_s, cost) for _, one, cost in counters)
        if fits:
            for _, one, cost in counters:
                one.take(now_s, cost)
            self.admitted.append((now_s, tokens))
        else:
            self.refused.append(now_s)
        headers: dict[str, str] = {}
        if self.has_headers:
            for name, one, _ in counters:
                headers[f"x-ratelimit-limit-{name}"] = f"{one.limit:.0f}"
                headers[f"x-ratelimit-remaining-{name}"] = f"{max(0, int(one.left(now_s) + 1e-6))}"
                headers[f"x-ratelimit-reset-{name}"] = duration(one.reset_s(now_s))
        if not fits and self.has_retry_after:
            headers["retry-after-ms"] = f"{wait_s * 1000 + 1:.0f}"
        return (200 if fits else 429), headers


def duration(seconds: float) -> str:
    """As OpenAI writes it: 6m0s, 7.66s, 12ms."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes)}m{rest:.3f}s" if minutes else f"{rest:.3f}s"


@dataclass
class Job:
    """A request that an application wants to make."""

    at_s: float
    tokens: int
    level: str = "interactive"
    sent_s: float | None = None


def run(
    provider: Provider,
    pacers: list[RateLimiter],
    jobs: list[Job],
    *,
    until_s: float,
    seed: int = 0,
    first_token_s: tuple[float, float] = (0.2, 1.5),
    stated: Sequence[tuple[Counts, float]] = (),
) -> list[float]:
    """Send jobs, in turns by the pacers; one refused waits again, first. Returns when answers of status 429 came."""
    random = Random(seed)
    order = itertools.count()
    events: list[tuple[float, int, Callable[[float], None]]] = []
    queues: list[deque[Job]] = [deque() for _ in pacers]
    wakes = [math.inf] * len(pacers)
    refusals: list[float] = []

    def push(at_s: float, do: Callable[[float], None]) -> None:
        heapq.heappush(events, (at_s, next(order), do))

    def came(who: int, job: Job, now_s: float) -> None:
        queues[who].append(job)
        look(who, now_s)

    def look(who: int, now_s: float) -> None:
        queue, pacer = queues[who], pacers[who]
        while queue:
            best = min(queue, key=lambda job: job.level != "interactive")
            ready_ns = pacer.ready_ns(
                int(now_s * NS), RequestCost(tokens=best.tokens), patient=best.level != "interactive", stated=stated
            )
            if ready_ns > int(now_s * NS):
                at_s = ready_ns / NS + 1e-6
                if wakes[who] <= now_s or at_s < wakes[who]:
                    wakes[who] = at_s
                    push(at_s, partial(look, who))
                return
            queue.remove(best)
            best.sent_s = now_s
            spent = pacer.spend(int(now_s * NS), RequestCost(tokens=best.tokens))
            push(now_s + WAY_S * random.uniform(0.5, 1.5), partial(arrives, who, best, spent))

    def arrives(who: int, job: Job, spent: Reservation, now_s: float) -> None:
        status, headers = provider.ask(now_s, job.tokens)
        takes_s = random.uniform(*first_token_s) if status == 200 else WAY_S
        push(now_s + takes_s, partial(answered, who, job, spent, status, headers))

    def answered(who: int, job: Job, spent: Reservation, status: int, headers: Mapping[str, str], now_s: float) -> None:
        pacers[who].answered(int(now_s * NS), spent, status, headers)
        if status == 429:
            refusals.append(now_s)
            queues[who].appendleft(job)
        else:
            pacers[who].settled(int(now_s * NS), spent, RequestCost(tokens=job.tokens))
        look(who, now_s)

    for index, job in enumerate(jobs):
        push(job.at_s, partial(came, index % len(pacers), job))
    while events:
        now_s, _, do = heapq.heappop(events)
        if now_s > until_s:
            break
        do(now_s)
    return refusals


def steady(per_s: float, until_s: float, tokens: int, *, level: str = "interactive", seed: int = 1) -> list[Job]:
    """Requests that come by chance, so many a second."""
    random = Random(seed)
    jobs, at_s = [], 0.0
    while (at_s := at_s + random.expovariate(per_s)) < until_s:
        jobs.append(Job(at_s, max(1, int(tokens * random.uniform(0.5, 1.5))), level))
    return jobs
