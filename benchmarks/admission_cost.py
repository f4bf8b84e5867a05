"""What a place costs: CPU microseconds of a call through a gate while 256 wait before it.

So many more threads, or tasks, than there are places enter one gate, are answered and leave, again and again; every
call waits, one in eight of them is interactive, and the provider's rate limits are kept to: answers tell of two, with
OpenAI's six headers. Beside it, in turn and in reversed order every other time, the same where answers tell of none
(`untold`), the same through the standard library's semaphore, which knows neither urgency nor time-outs nor places that
are found out, and which may let in a thread that runs past those that wait, and the same without waiting for anything.
Inside: this process's CPU time, all threads, from the first call of a round to its last, what waking a thread or a task
costs included. Outside: starting them. `own_cpu_us` is what the gate adds to calls that wait for nothing, by pairs, and
`semaphore_own_cpu_us` what the semaphore adds to them; `free_cpu_us` is a call that finds a place. The ratio is the
gate's CPU to the semaphore's.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

from benchmarks._paired import median
from benchmarks._report import Figure, Reach, Report, main
from fastlane._clock import cpu_ns, sleep
from fastlane.engine.drivers import async_run, run
from fastlane.plays.urgency.admission import AdmissionSettings, Gate, gate_of
from fastlane.providers import facts_named
from fastlane.records.urgency import Level

_WAITING = 256
_PLACES = 8
_SETTINGS = AdmissionSettings(max_concurrency=_PLACES)
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
_ARMS = ("gate", "untold", "semaphore", "nothing")
_numbers = count()


def _gate() -> Gate:
    return gate_of(f"https://host-{next(_numbers)}.example.com", b"account", "model", _SETTINGS, _FACTS)


def _level(number: int) -> Level:
    return "background" if number % 8 else "interactive"


def _call_of_threads(arm: str) -> Callable[[int], None]:
    """One call of a thread, of the given number."""
    if arm in ("gate", "untold"):
        gate, headers = _gate(), _HEADERS if arm == "gate" else {}

        def through(number: int) -> None:
            slot = gate.slot(_level(number), _SETTINGS, tokens=500, max_wait_s=600.0)
            run(slot.acquire(_HTTP))
            slot.answered(200, headers)
            sleep(0)
            slot.release(tokens=400, failed=False)

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
    if arm in ("gate", "untold"):
        gate, headers = _gate(), _HEADERS if arm == "gate" else {}

        async def through(number: int) -> None:
            slot = gate.slot(_level(number), _SETTINGS, tokens=500, max_wait_s=600.0)
            await async_run(slot.acquire(_HTTP))
            slot.answered(200, headers)
            await asyncio.sleep(0)
            slot.release(tokens=400, failed=False)

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
    gate = _gate()
    started = cpu_ns()
    for _ in range(calls):
        slot = gate.slot("interactive", _SETTINGS, tokens=500, max_wait_s=600.0)
        run(slot.acquire(_HTTP))
        slot.answered(200, _HEADERS)
        slot.release(tokens=400, failed=False)
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
        alone = zip(taken[f"{side}_gate"], taken[f"{side}_nothing"], strict=True)
        own = median([ours - theirs for ours, theirs in alone])
        figures |= {
            f"{side}_own_cpu_us": own.value,
            f"{side}_own_low_cpu_us": own.low,
            f"{side}_own_high_cpu_us": own.high,
        }
        for arm in ("untold", "semaphore"):
            pairs = zip(taken[f"{side}_{arm}"], taken[f"{side}_nothing"], strict=True)
            figures[f"{side}_{arm}_own_cpu_us"] = median([theirs - alone_us for theirs, alone_us in pairs]).value
        pairs = zip(taken[f"{side}_gate"], taken[f"{side}_semaphore"], strict=True)
        figures[f"{side}_ratio"] = median([ours / theirs for ours, theirs in pairs]).value
    return Report(
        figures=figures,
        reach=tuple(Reach(figure=f"{side}_own_cpu_us", op="<=", target=25) for side in sides),
        conditions={"waiting": _WAITING, "places": _PLACES, "rounds": rounds, "calls": calls * (_WAITING + _PLACES)},
    )


if __name__ == "__main__":
    main("admission_cost", __doc__, measure)
