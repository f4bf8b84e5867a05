"""What waiting costs: CPU microseconds of a call with `Urgency` and `RateLimits` while 256 calls wait before it.

So many more threads, or tasks, than there are slots wait for one, are answered and give it back, again and again; every
call waits, and one in eight is interactive. `both`: each waits for the provider's rate limits too, and responses tell
of two limits, with OpenAI's six headers. Beside it, in turn and in reversed order every other time: `slot`, without
rate limits; `semaphore`, the standard library's, which knows neither urgency nor timeouts, and which may let in a
thread that runs past those that wait; and `nothing`, without waiting. Inside: this process's CPU time, all threads,
from the first call of a round to its last, what waking a thread or a task costs included. Outside: starting them.
`own_cpu_us` is what both plays add to calls that wait for nothing, by pairs, `slot_own_cpu_us` and
`semaphore_own_cpu_us` what the others add; `free_cpu_us` is a call that finds a slot. The ratio is that of `both` to
the semaphore.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from benchmarks._paired import median
from benchmarks._report import Figure, Reach, Report
from fastlane._clock import cpu_ns, sleep
from fastlane.engine.drivers import async_run, run
from fastlane.engine.effects import Acquire, Flow
from fastlane.plays.rate_limits.bucket import RequestCost
from fastlane.plays.rate_limits.queue import RateLimitQueue, RateLimitTicket
from fastlane.plays.urgency.slots import Slot, SlotQueue
from fastlane.providers import facts_named

_WAITING = 256
_PLACES = 8
_HEADERS = {
    "x-ratelimit-limit-requests": "10000000",
    "x-ratelimit-remaining-requests": "9999999",
    "x-ratelimit-reset-requests": "6ms",
    "x-ratelimit-limit-tokens": "10000000000",
    "x-ratelimit-remaining-tokens": "9999999500",
    "x-ratelimit-reset-tokens": "3ms",
}
_FACTS = facts_named("openai").rate_limits
_HTTP: Any = SimpleNamespace(is_closed=False)
_ARMS = ("both", "slot", "semaphore", "nothing")
_COST = RequestCost(1.0, 500.0, 400.0, 100.0)
_USED = RequestCost(1.0, 400.0, 350.0, 50.0)


class _Call:
    """A call that waits for a slot, and with `both` for the rate limits."""

    def __init__(self, arm: str, number: int, slots: SlotQueue, limits: RateLimitQueue) -> None:
        self.slot = Slot(slots, 1 if number % 8 else 0, max_concurrency=_PLACES)
        self.ticket = RateLimitTicket(limits, self.slot.level, _COST) if arm == "both" else None

    def wait(self) -> Flow:
        yield Acquire(_HTTP, self.slot, 600.0)
        if self.ticket is not None:
            yield Acquire(_HTTP, self.ticket, 600.0)

    def answered(self) -> None:
        queue: Any
        for ticket in (self.slot, self.ticket):
            if ticket is not None:
                queue = ticket.queue
                queue.answered(ticket, 200, _HEADERS)

    def end(self) -> None:
        self.slot.release(failed=False)
        if self.ticket is not None:
            queue: Any = self.ticket.queue
            queue.settle(self.ticket, _USED)


def _call_of_threads(arm: str) -> Callable[[int], None]:
    """One call of a thread, of the given number."""
    if arm in ("both", "slot"):
        slots, limits = SlotQueue(), RateLimitQueue(_FACTS)

        def through(number: int) -> None:
            call = _Call(arm, number, slots, limits)
            run(call.wait())
            call.answered()
            sleep(0)
            call.end()

        return through
    semaphore = threading.Semaphore(_PLACES)

    def past(_: int) -> None:
        if arm == "semaphore":
            with semaphore:
                sleep(0)
        else:
            sleep(0)

    return past


def _threads_us(arm: str, calls: int) -> float:
    call, ready, done = _call_of_threads(arm), threading.Barrier(_WAITING + _PLACES + 1), []

    def work(number: int) -> None:
        ready.wait()
        for _ in range(calls):
            call(number)
        done.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(_WAITING + _PLACES)]
    for thread in threads:
        thread.start()
    ready.wait()
    started = cpu_ns()
    for thread in threads:
        thread.join()
    taken = cpu_ns() - started
    if len(done) != len(threads):
        raise RuntimeError("a thread did not end")
    return taken / 1e3 / calls / len(threads)


def _call_of_tasks(arm: str) -> Callable[[int], Awaitable[None]]:
    if arm in ("both", "slot"):
        slots, limits = SlotQueue(), RateLimitQueue(_FACTS)

        async def through(number: int) -> None:
            call = _Call(arm, number, slots, limits)
            await async_run(call.wait())
            call.answered()
            await asyncio.sleep(0)
            call.end()

        return through
    semaphore = asyncio.Semaphore(_PLACES)

    async def past(_: int) -> None:
        if arm == "semaphore":
            async with semaphore:
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(0)

    return past


def _tasks_us(arm: str, calls: int) -> float:
    async def work(call: Callable[[int], Awaitable[None]], number: int) -> None:
        for _ in range(calls):
            await call(number)

    async def round_() -> float:
        call = _call_of_tasks(arm)
        started = cpu_ns()
        await asyncio.gather(*(work(call, number) for number in range(_WAITING + _PLACES)))
        return (cpu_ns() - started) / 1e3 / calls / (_WAITING + _PLACES)

    return asyncio.run(round_())


def _free_us(calls: int) -> float:
    slots, limits = SlotQueue(), RateLimitQueue(_FACTS)
    started = cpu_ns()
    for _ in range(calls):
        call = _Call("both", 0, slots, limits)
        run(call.wait())
        call.answered()
        call.end()
    return (cpu_ns() - started) / 1e3 / calls


def measure(quick: bool) -> Report:
    """Measure threads and tasks in turn."""
    rounds, calls = (5, 10) if quick else (25, 40)
    taken: dict[str, list[float]] = {}
    sides: dict[str, Any] = {"threads": _threads_us, "asyncio": _tasks_us}
    for side, of in sides.items():
        for number in range(-1, rounds):
            for arm in reversed(_ARMS) if number % 2 else _ARMS:
                us = of(arm, calls)
                if number >= 0:
                    taken.setdefault(f"{side}_{arm}", []).append(us)
    figures: dict[str, Figure] = {"free_cpu_us": median([_free_us(2_000) for _ in range(rounds)]).value}
    for side in sides:
        for arm in _ARMS:
            middle = median(taken[f"{side}_{arm}"])
            figures |= {f"{side}_{arm}_cpu_us": middle.value, f"{side}_{arm}_high_cpu_us": middle.high}
        alone = zip(taken[f"{side}_both"], taken[f"{side}_nothing"], strict=True)
        own = median([ours - theirs for ours, theirs in alone])
        figures |= {
            f"{side}_own_cpu_us": own.value,
            f"{side}_own_low_cpu_us": own.low,
            f"{side}_own_high_cpu_us": own.high,
        }
        for arm in ("slot", "semaphore"):
            pairs = zip(taken[f"{side}_{arm}"], taken[f"{side}_nothing"], strict=True)
            figures[f"{side}_{arm}_own_cpu_us"] = median([theirs - alone_us for theirs, alone_us in pairs]).value
        pairs = zip(taken[f"{side}_both"], taken[f"{side}_semaphore"], strict=True)
        figures[f"{side}_ratio"] = median([ours / theirs for ours, theirs in pairs]).value
    return Report(
        figures=figures,
        reach=tuple(Reach(figure=f"{side}_own_cpu_us", op="<=", target=25) for side in sides),
        conditions={"waiting": _WAITING, "places": _PLACES, "rounds": rounds, "calls": calls * (_WAITING + _PLACES)},
    )
