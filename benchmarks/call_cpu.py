"""What a small call that is not streamed costs the client: openai's client as it comes against ours as it comes.

Chat completions of a few tokens are asked for by 64 tasks at once, each with its next call as soon as its last is over;
by one task; and by a thread of the synchronous client. The stock client is `openai.AsyncOpenAI()`, which speaks
HTTP/1.1; ours is `fastlane.AsyncOpenAI()`, which speaks HTTP/2, and once more as it is told not to. Every text is
compared with the one that was asked for. Inside: the CPU time of the whole process, all threads, from the first call of
a round to the end of its last, divided by the calls. Outside: making the clients, opening connections, and the
provider, which has a process of its own and, where the system allows it, another core; what it took for each call is a
figure. Nothing is subtracted. The arms take turns, in reversed order every other round.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from typing import Any, NamedTuple

import openai

from benchmarks._paired import median
from benchmarks._provider import MODEL, provider_cpu_ns, provider_on_another_core
from benchmarks._report import Reach, Report
from benchmarks._streams import async_client, sync_client
from benchmarks._transport import MESSAGES, WrongAnswerError, wishes
from fastlane._clock import cpu_ns, now_ns
from fastlane.emulator import Emulator

_TASKS = 64
_VERSIONS = {"stock": "HTTP/1.1", "fastlane": "HTTP/2", "fastlane_http1": "HTTP/1.1"}
_TEXTS = ("Yes.", "Water is wet.", "No, but it makes other things wet.")
_HEADERS = [wishes(output_text=text) for text in _TEXTS]

# Concurrency and side: each against the stock client of the same concurrency.
_ARMS = [
    *((f"async_{_TASKS}", side) for side in ("stock", "fastlane", "fastlane_http1")),
    *(("async_1", side) for side in ("stock", "fastlane")),
    *(("sync_1", side) for side in ("stock", "fastlane")),
]


class _Taken(NamedTuple):
    """What one round took, for each call."""

    cpu_us: float
    wall_us: float
    provider_us: float | None


def _check(answer: Any, number: int) -> None:
    if answer.choices[0].message.content != _TEXTS[number % len(_TEXTS)]:
        raise WrongAnswerError(f"call {number} brought {answer.choices[0].message.content!r}")


async def _async_calls(client: openai.AsyncOpenAI, tasks: int, calls: int) -> None:
    numbers = iter(range(calls))

    async def work() -> None:
        for number in numbers:
            headers = _HEADERS[number % len(_HEADERS)]
            _check(await client.chat.completions.create(model=MODEL, messages=MESSAGES, extra_headers=headers), number)

    await asyncio.gather(*[work() for _ in range(tasks)])


def _sync_calls(client: openai.OpenAI, calls: int) -> None:
    for number in range(calls):
        headers = _HEADERS[number % len(_HEADERS)]
        _check(client.chat.completions.create(model=MODEL, messages=MESSAGES, extra_headers=headers), number)


class _Round:
    """Counts what a round takes."""

    def __init__(self, emulator: Emulator, calls: int) -> None:
        self._emulator = emulator
        self._calls = calls
        self.taken = _Taken(0.0, 0.0, None)

    @contextmanager
    def measured(self) -> Iterator[None]:
        gc.collect()
        provider = provider_cpu_ns(self._emulator)
        started, cpu_started = now_ns(), cpu_ns()
        yield
        cpu, wall = cpu_ns() - cpu_started, now_ns() - started
        ended = provider_cpu_ns(self._emulator)
        per_call = 1e3 * self._calls
        theirs = None if provider is None or ended is None else (ended - provider) / per_call
        self.taken = _Taken(cpu / per_call, wall / per_call, theirs)


async def _measure(emulator: Emulator, rounds: int, calls: int) -> dict[tuple[str, str], list[_Taken]]:
    taken: dict[tuple[str, str], list[_Taken]] = {arm: [] for arm in _ARMS}
    async with AsyncExitStack() as stack:
        asynchronous = {
            arm: await stack.enter_async_context(async_client(arm[1], emulator.base_url))
            for arm in _ARMS
            if arm[0] != "sync_1"
        }
        synchronous = ExitStack()
        stack.enter_context(synchronous)
        threads = {
            arm: synchronous.enter_context(sync_client(arm[1], emulator.base_url))
            for arm in _ARMS
            if arm[0] == "sync_1"
        }
        for round_number in range(-1, rounds):  # the first one opens connections and is not counted
            for arm in reversed(_ARMS) if round_number % 2 else _ARMS:
                concurrency, side = arm
                tasks = _TASKS if concurrency == f"async_{_TASKS}" else 1
                count = calls if tasks > 1 else calls // 4
                emulator.clear()
                one = _Round(emulator, count)
                with one.measured():
                    if arm in threads:
                        _sync_calls(threads[arm], count)
                    else:
                        await _async_calls(asynchronous[arm], tasks, count)
                log = emulator.log()
                if len(log) != count or {request.http_version for request in log} != {_VERSIONS[side]}:
                    raise RuntimeError(f"{side} did not send its calls over the protocol that it was to speak")
                if round_number >= 0:
                    taken[arm].append(one.taken)
    return taken


def measure(quick: bool) -> Report:
    """Run rounds of all arms."""
    rounds, calls = (3, 640) if quick else (15, 1_920)
    with provider_on_another_core() as (emulator, cores):
        taken = asyncio.run(_measure(emulator, rounds, calls))
    figures: dict[str, float | int | None] = {}
    for concurrency, side in _ARMS:
        if side == "stock":
            continue
        pairs = zip(taken[concurrency, "stock"], taken[concurrency, side], strict=True)
        ratio = median([theirs.cpu_us / own.cpu_us for theirs, own in pairs])
        name = concurrency if side == "fastlane" else f"{concurrency}_http1"
        figures |= {f"{name}_ratio": ratio.value, f"{name}_low_ratio": ratio.low, f"{name}_high_ratio": ratio.high}
    for (concurrency, side), turns in taken.items():
        name = f"{concurrency}_{side}"
        figures[f"{name}_cpu_us"] = median([turn.cpu_us for turn in turns]).value
        figures[f"{name}_calls_per_s"] = 1e6 / median([turn.wall_us for turn in turns]).value
        theirs = [turn.provider_us for turn in turns if turn.provider_us is not None]
        figures[f"{name}_provider_cpu_us"] = median(theirs).value if theirs else None
    figures["rounds"] = rounds
    return Report(
        figures=figures,
        reach=(Reach(figure=f"async_{_TASKS}_ratio", op=">=", target=7),),
        conditions={"calls_a_round": calls, "tasks": _TASKS, "cores": cores, "tls": True},
    )
