"""Forty interactive calls a minute beside a flood of background ones, at providers that serve so many at once.

Emulated providers serve 4, 16 or 64 calls at once; a further one waits until a place is free, or is refused with 503.
One process of ours floods each with background calls, always three times as many as it has places and 32 more, from
tasks, while interactive calls come at random moments, in turn from a task and from a thread; through clients without
the play, and then with it: `Urgency()` finds the places of a provider that refuses, and `Urgency(max_concurrency=...)`
is told those of a provider that queues, which nobody can find out. Real TLS, HTTP/2.

Time runs five times as fast as at a usual provider, so that a run takes minutes: 200 interactive calls a minute are
sent, first tokens take 60/80/120 ms (quartiles), and an answer 24 tokens in 400 ms. All of a real provider's figures
would be five times these, the shares and ratios the same. What the transport and this machine take is not scaled, and
counts against the play.

Inside: an interactive call from the moment at which the application issues it to its first content, whatever it waited
for, retries included. `ttft_ratio` is its 95th percentile against that of a provider with as many places and no other
calls. `background_share` is how much of the time of its places that interactive calls leave the provider spends on
background ones, by its own log. Outside: the first seconds of each arm, in which connections are opened and places are
found out. Of one that refuses, `refused_share` of all requests were.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import openai

import fastlane
from benchmarks._provider import MODEL, providers
from benchmarks._report import Figure, Report
from benchmarks._transport import MESSAGES, chunks, has_content, in_mode, ours, percentile, run, settled, wishes
from fastlane._clock import now_ns
from fastlane.emulator import Emulator, ProviderModel, Quantiles, RequestLog

_SCALE = 5
_PER_S = 40 / 60 * _SCALE
_TOKENS = 24
_QUARTILES_S = 0.06, 0.08, 0.12
_DECODE_S = 0.4
_MOST_RATIO = 1.3
_S = 1e9
_HEADLINES = "queueing_16", "refusing_16"


class _Seconds(NamedTuple):
    warm_up: float
    measured: float


_FULL = {"idle": _Seconds(1, 15), "without": _Seconds(4, 15), "with": _Seconds(15, 30)}
_QUICK = {"idle": _Seconds(1, 8), "without": _Seconds(3, 6), "with": _Seconds(8, 14)}


class _Run(NamedTuple):
    """What came of one arm."""

    ttft_ms: list[float]
    failed: int
    begun_ns: int
    ended_ns: int


def _model(places: int, refuses: bool) -> ProviderModel:
    return ProviderModel(
        prefill_base_s=Quantiles.from_quartiles(*_QUARTILES_S),
        inter_token_s=_DECODE_S / _TOKENS,
        inter_token_jitter=0.3,
        default_output_tokens=_TOKENS,
        concurrency=places,
        queue_places=0 if refuses else None,
    )


class _Calls:
    """Interactive calls at random moments, and a flood of background ones."""

    def __init__(self, emulator: Emulator, arm: str, most: int | None) -> None:
        plays = [fastlane.Urgency(max_concurrency=most)] if arm == "with" else []
        own: dict[str, Any] = {"max_retries": openai.DEFAULT_MAX_RETRIES, "raise_play_errors": True}
        self.arm = arm
        self.client = ours("sync", emulator.base_url, *plays, **own)
        self.async_client = ours("async", emulator.base_url, *plays, **own)
        self.ttft_ms: list[tuple[int, float]] = []
        self.failed: list[int] = []

    async def run(self, seconds: _Seconds, flood: int) -> _Run:
        async with self.async_client:
            with self.client:
                background = [asyncio.create_task(self._flood()) for _ in range(flood)]
                coming = asyncio.create_task(self._come())
                await asyncio.sleep(seconds.warm_up)
                begun_ns = now_ns()
                await asyncio.sleep(seconds.measured)
                ended_ns = now_ns()
                coming.cancel()
                # Whoever came in that time is heard to the end.
                (issued,) = await asyncio.gather(coming)
                await asyncio.gather(*issued)
                for task in background:
                    task.cancel()
                await asyncio.gather(*background, return_exceptions=True)
        return _Run(
            [ms for at_ns, ms in self.ttft_ms if begun_ns <= at_ns < ended_ns],
            sum(begun_ns <= at_ns < ended_ns for at_ns in self.failed),
            begun_ns,
            ended_ns,
        )

    async def _come(self) -> list[asyncio.Task[None]]:
        random = Random(0)
        issued: list[asyncio.Task[None]] = []
        try:
            while True:
                await asyncio.sleep(random.expovariate(_PER_S))
                client = self.client if len(issued) % 2 else self.async_client
                issued.append(asyncio.create_task(in_mode(client, self._interactive)))
        except asyncio.CancelledError:
            return issued

    def _asked(self, tag: str) -> dict[str, Any]:
        return {
            "model": MODEL,
            "messages": MESSAGES,
            "stream": True,
            "extra_headers": wishes(tag=f"{self.arm}:{tag}"),
        }

    async def _interactive(self, client: Any) -> None:
        issued_ns = now_ns()
        first_ns = None
        try:
            async for chunk in chunks(await settled(client.chat.completions.create(**self._asked("interactive")))):
                if first_ns is None and has_content(chunk):
                    first_ns = now_ns()
        except openai.OpenAIError:
            pass
        if first_ns is None:
            self.failed.append(issued_ns)
        else:
            self.ttft_ms.append((issued_ns, (first_ns - issued_ns) / 1e6))

    async def _flood(self) -> None:
        random = Random(id(self))
        with fastlane.urgency("background"):
            while True:
                try:
                    async for _ in await self.async_client.chat.completions.create(**self._asked("background")):
                        pass
                except openai.OpenAIError:
                    await asyncio.sleep(random.uniform(0.05, 0.15))


def _place_s(log: Sequence[RequestLog], tag: str, begun_ns: int, ended_ns: int) -> float:
    """Seconds for which requests of one tag had a place, within that time."""
    total = 0
    for request in log:
        if request.tag == tag and request.admitted_ns is not None and request.status == 200:
            until_ns = request.finished_ns or request.reset_ns or ended_ns
            total += max(0, min(until_ns, ended_ns) - max(request.admitted_ns, begun_ns))
    return total / _S


def _background_share(log: Sequence[RequestLog], arm: str, places: int, begun_ns: int, ended_ns: int) -> float:
    """How much of the places' time that interactive calls leave background ones have."""
    left_s = places * (ended_ns - begun_ns) / _S - _place_s(log, f"{arm}:interactive", begun_ns, ended_ns)
    return _place_s(log, f"{arm}:background", begun_ns, ended_ns) / left_s


def _arm(emulator: Emulator, arm: str, seconds: _Seconds, places: int, most: int | None) -> dict[str, Figure]:
    emulator.clear()
    flood = 0 if arm == "idle" else 3 * places + 32
    done = run(_Calls(emulator, arm, most).run(seconds, flood))
    log = list(emulator.log())
    figures: dict[str, Figure] = {
        f"{arm}_calls": len(done.ttft_ms),
        f"{arm}_ttft_p50_ms": percentile(done.ttft_ms, 0.5) if done.ttft_ms else None,
        f"{arm}_ttft_p95_ms": percentile(done.ttft_ms, 0.95) if done.ttft_ms else None,
    }
    if arm == "idle":
        return figures
    sent = [request for request in log if done.begun_ns <= request.received_ns < done.ended_ns]
    refused = sum(request.status is not None and request.status >= 400 for request in sent)
    figures |= {
        f"{arm}_failed": done.failed,
        f"{arm}_background_share": _background_share(log, arm, places, done.begun_ns, done.ended_ns),
        f"{arm}_refused_share": refused / len(sent) if sent else None,
    }
    return figures


def measure(quick: bool) -> Report:
    """Measure one provider after the other; quickly, those with 16 places."""
    seconds = _QUICK if quick else _FULL
    figures: dict[str, Figure] = {}
    idle_ms: dict[int, Figure] = {}
    for places in (16,) if quick else (4, 16, 64):
        for name in ("queueing", "refusing"):
            most = places if name == "queueing" else None
            with providers(1, model=_model(places, name == "refusing")) as (emulator,):
                found: dict[str, Figure] = {}
                for arm in seconds if places not in idle_ms else ("without", "with"):
                    found |= _arm(emulator, arm, seconds[arm], places, most)
            idle = idle_ms.setdefault(places, found.get("idle_ttft_p95_ms"))
            for arm in ("without", "with"):
                p95 = found[f"{arm}_ttft_p95_ms"]
                found[f"{arm}_ttft_ratio"] = None if p95 is None or not idle else p95 / idle
            figures |= {f"{name}_{places}_{figure}": value for figure, value in found.items()}
    return Report(
        figures=figures,
        reach={
            **{f"{name}_with_ttft_ratio": f"<= {_MOST_RATIO}" for name in _HEADLINES},
            **{f"{name}_with_background_share": ">= 0.9" for name in _HEADLINES},
        },
        conditions={"seconds": {arm: f"{given.warm_up:g} + {given.measured:g}" for arm, given in seconds.items()}},
    )
