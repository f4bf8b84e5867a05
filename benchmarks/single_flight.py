"""Two hundred identical calls at once, sent once: `Urgency(single_flight=True)`, and what a call costs that shares.

Two hundred callers of the embedded provider, over real TLS and HTTP/2, ask for the same with a temperature of 0, from
as many threads and from as many tasks of one event loop; the provider takes its time before it begins, so that the last
one comes while the request is under way. `requests` is the most that
the provider's own log tells of for one round, and `unequal_answers` how many of all answers differ from the first of
their round. Each round is followed, or by turns preceded, by one in which each call is sent itself
(`Urgency()` without the setting). Inside the CPU figures: all of this process, from the first call of a round to its
last answer, over the number of calls: medians of the rounds, and of the ratios of their pairs. Outside: the provider,
which is a process of its own, and starting the threads.

`alone_*`: calls that nobody shares, one after the other: what the setting adds to one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import fastlane
from benchmarks._paired import median
from benchmarks._provider import MODEL, provider_on_another_core
from benchmarks._report import Figure, Reach, Report, main
from fastlane._clock import cpu_ns
from fastlane.emulator import Emulator

_CALLERS = 200
_TOKENS = 100
_MESSAGES: list[Any] = [{"role": "user", "content": "Which rivers of Europe are longer than a thousand kilometres?"}]
_ARMS = ("shared", "own")
_Round = Callable[[str, int], list[Any]]


def _asked(prefill_ms: float) -> dict[str, Any]:
    wishes = {
        "x-emulator-prefill-ms": str(prefill_ms),
        "x-emulator-token-ms": "0",
        "x-emulator-output-tokens": str(_TOKENS),
    }
    return {"model": MODEL, "messages": _MESSAGES, "temperature": 0, "extra_headers": wishes}


def _plays(arm: str) -> list[Any]:
    urgency = fastlane.Urgency(limits=False, single_flight=arm == "shared")
    return [fastlane.Connection(), urgency]


class _Callers:
    """As many callers as there are, in threads and in tasks."""

    def __init__(self, provider: Emulator, prefill_ms: float) -> None:
        own: dict[str, Any] = {"base_url": provider.base_url, "api_key": "none", "max_retries": 0}
        self._clients = {arm: fastlane.OpenAI(**own, only_plays=_plays(arm)) for arm in _ARMS}
        self._async = {arm: fastlane.AsyncOpenAI(**own, only_plays=_plays(arm)) for arm in _ARMS}
        self._prefill_ms = prefill_ms
        self._loop = asyncio.new_event_loop()
        self.cpu_us = 0.0

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        for async_client in self._async.values():
            self._loop.run_until_complete(async_client.close())
        self._loop.close()

    def threads(self, arm: str, callers: int) -> list[Any]:
        client, asked, answers = self._clients[arm], _asked(self._prefill_ms), list[Any]()
        ready = threading.Barrier(callers + 1)

        def call() -> None:
            ready.wait()
            answers.append(client.chat.completions.create(**asked))

        threads = [threading.Thread(target=call) for _ in range(callers)]
        for thread in threads:
            thread.start()
        ready.wait()
        started = cpu_ns()
        for thread in threads:
            thread.join()
        self.cpu_us = (cpu_ns() - started) / callers / 1e3
        return answers

    def tasks(self, arm: str, callers: int) -> list[Any]:
        client, asked = self._async[arm], _asked(self._prefill_ms)

        async def call() -> Any:
            return await client.chat.completions.create(**asked)

        async def every() -> list[Any]:
            started = cpu_ns()
            answers = await asyncio.gather(*[call() for _ in range(callers)])
            self.cpu_us = (cpu_ns() - started) / callers / 1e3
            return list(answers)

        return self._loop.run_until_complete(every())


def _pairs(
    provider: Emulator, callers: _Callers, make: _Round, rounds: int, told: dict[str, int]
) -> dict[str, list[float]]:
    """CPU microseconds a call, of each round of both arms."""
    taken: dict[str, list[float]] = {arm: [] for arm in _ARMS}
    for arm in _ARMS:
        make(arm, 8)  # connections, and what is loaded with the first call
    for number in range(rounds):
        for arm in _ARMS if number % 2 else reversed(_ARMS):
            provider.clear()
            answers = make(arm, _CALLERS)
            taken[arm].append(callers.cpu_us)
            if arm == "shared":
                told["requests"] = max(told["requests"], len(provider.log()))
                first = answers[0].model_dump()
                told["unequal"] += sum(answer.model_dump() != first for answer in answers)
            if len(answers) != _CALLERS:
                raise RuntimeError(f"{_CALLERS - len(answers)} calls failed")
    return taken


def _alone(provider: Emulator, calls: int) -> dict[str, float]:
    """CPU microseconds that the setting adds to a call that nobody shares."""
    callers, added = _Callers(provider, 0), {}
    try:
        for name, make in (("threads", callers.threads), ("tasks", callers.tasks)):
            found: dict[str, list[float]] = {arm: [] for arm in _ARMS}
            for number in range(calls):
                for arm in _ARMS if number % 2 else reversed(_ARMS):
                    make(arm, 1)
                    found[arm].append(callers.cpu_us)
            added[name] = median(
                [shared - own for shared, own in zip(found["shared"], found["own"], strict=True)]
            ).value
    finally:
        callers.close()
    return added


def _measure(quick: bool) -> Report:
    rounds, figures, told = 3 if quick else 9, dict[str, Figure](), {"requests": 0, "unequal": 0}
    with provider_on_another_core() as (provider, pinned):
        callers = _Callers(provider, 1_500)
        try:
            for name, make in (("threads", callers.threads), ("tasks", callers.tasks)):
                taken = _pairs(provider, callers, make, rounds, told)
                for arm in _ARMS:
                    figures[f"{name}_whole_{arm}_cpu_us"] = median(taken[arm]).value
                figures[f"{name}_whole_cpu_ratio"] = median(
                    [shared / own for shared, own in zip(taken["shared"], taken["own"], strict=True)]
                ).value
        finally:
            callers.close()
        for name, added_us in _alone(provider, 40 if quick else 200).items():
            figures[f"alone_{name}_added_cpu_us"] = added_us
    told_first: dict[str, Figure] = {"requests": told["requests"], "unequal_answers": told["unequal"]}
    return Report(
        figures={**told_first, **figures},
        reach=(
            Reach(figure="requests", op="==", target=1),
            Reach(figure="unequal_answers", op="==", target=0),
        ),
        conditions={"callers": _CALLERS, "tokens": _TOKENS, "rounds": rounds, "cores": pinned},
    )


if __name__ == "__main__":
    main("single_flight", __doc__, _measure)
