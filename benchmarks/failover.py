"""An upstream is killed under load, or falls silent: what the calls notice of it, and when it is used again.

50 calls a second, come what may, every other one streamed, ask for "fastlane/auto" on an asynchronous client with
`Routing` over two providers in processes of their own, the first of which is the faster one. It is killed (SIGKILL: its
connections are reset, new ones refused) or stopped (SIGSTOP: connections are taken and nothing is answered), and is
there again on the same port 12 s later. Failed before the first token: calls that ended in an error before the
application saw any content; a stream that breaks off behind that cannot be tried again behind the application's back,
and counts apart. Inside: time to first token from the moment at which a call was due to the application's first
content, in an answer that is not streamed to the first token on its way (as recorded). Added p95: that of all calls
that waited for it when the upstream ended, or were due in the 10 s after that, less that of the calls before. One
first-token time-out: what `Routing` had learned for the upstream by then, of which one second is the least. Used again:
the first call that the first upstream answers after it is there again; unknown where that was not seen while the calls
lasted.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import openai

import fastlane
from benchmarks._mortal import Mortal
from benchmarks._paired import median
from benchmarks._provider import ASKED, entry
from benchmarks._report import Figure, Report
from benchmarks._server import trusted
from benchmarks._transport import percentile, wishes
from fastlane._clock import now_ns
from fastlane.catalog import Catalog
from fastlane.emulator import ProviderModel

_CALLS_PER_S = 50
_DOWN_S = 12.0
_LOOKED_AT_S = 10.0
_TOKENS_OUT = 20
_WORDS = 200
_VARIANTS = ("killed", "silent")
_FIRST_S = {"first": 0.15, "second": 0.25}
_TOKENS_PER_S = 100.0

_own: contextvars.ContextVar[_Called] = contextvars.ContextVar("own")


@dataclass
class _Called:
    """One call, as its application saw it."""

    due_ns: int
    stream: bool
    issued_ns: int = 0
    first_ns: int | None = None
    error: str | None = None
    record: fastlane.CallRecord | None = None

    @property
    def answered_by(self) -> str | None:
        routing = self.record.routing if self.record is not None else None
        return routing.model if routing is not None else None


def _keep(record: fastlane.CallRecord) -> None:
    called = _own.get(None)
    if called is not None:
        called.record = record


async def _call(client: openai.AsyncOpenAI, called: _Called, number: int) -> None:
    _own.set(called)
    called.issued_ns = now_ns()
    asked: dict[str, Any] = {
        "model": "fastlane/auto",
        "messages": [{"role": "user", "content": f"Ticket {number}. " + "It is late. " * _WORDS}],
        "max_tokens": _TOKENS_OUT,
        "extra_headers": wishes(output_tokens=_TOKENS_OUT),
    }
    try:
        if called.stream:
            async for chunk in await client.chat.completions.create(stream=True, **asked):
                if called.first_ns is None and chunk.choices and chunk.choices[0].delta.content:
                    called.first_ns = now_ns()
        else:
            await client.chat.completions.create(**asked)
    except Exception as error:  # noqa: BLE001 - whatever it is, the call has failed
        called.error = type(error).__name__
    if not called.stream and called.record is not None:
        called.first_ns = called.record.timeline.first_token_ns


async def _load(client: openai.AsyncOpenAI, started_ns: int, seconds: float) -> list[_Called]:
    """Make calls at a steady pace, whatever becomes of those before."""
    called, tasks = [], []
    for number in range(round(seconds * _CALLS_PER_S)):
        due_ns = started_ns + number * 1_000_000_000 // _CALLS_PER_S
        await asyncio.sleep(max(0.0, (due_ns - now_ns()) / 1e9))
        called.append(_Called(due_ns, stream=number % 2 == 0))
        tasks.append(asyncio.create_task(_call(client, called[-1], number)))
    await asyncio.gather(*tasks)
    return called


def _model(name: str) -> ProviderModel:
    base = _FIRST_S[name]
    return ProviderModel(
        prefill_base_s=base, prefill_s_per_token=10e-6, inter_token_s=1 / _TOKENS_PER_S, inter_token_jitter=0.2
    )


async def _variant(variant: str, first: Mortal, second: Mortal, times: tuple[float, float, float]) -> dict[str, Figure]:
    settle_s, before_s, watch_s = times
    catalog = Catalog(
        models=tuple(
            entry(name, one.base_url, first_token_s=[(1_000, _FIRST_S[name])], tokens_per_s=_TOKENS_PER_S)
            for name, one in (("first", first), ("second", second))
        )
    )
    play = fastlane.Routing(catalog, forward_headers=ASKED)
    model = catalog.named("first")
    async with fastlane.AsyncOpenAI(
        base_url=first.base_url,
        api_key="none",
        only_plays=[fastlane.Connection(), play],
        on_call_end=[_keep],
        raise_play_errors=True,
    ) as client:
        for number in range(3):  # one after the other, so that Python has loaded what it needs
            await _call(client, _Called(now_ns(), stream=number % 2 == 0), -number)
        started_ns = now_ns() + 100_000_000
        load = asyncio.create_task(_load(client, started_ns, settle_s + before_s + _DOWN_S + watch_s))
        await asyncio.sleep(settle_s + before_s + (started_ns - now_ns()) / 1e9)
        timeout_s = play.knowledge.router.first_token_timeout(model, 620, now_ns())
        gone_ns = now_ns()
        first.kill() if variant == "killed" else first.silence()
        await asyncio.sleep(_DOWN_S)
        # It takes a moment to be there again; the calls go on meanwhile.
        await asyncio.to_thread(first.start_again if variant == "killed" else first.wake)
        back_ns = now_ns()
        called = await load
    if any(one.record is None for one in called):
        raise RuntimeError("a call left no record")
    _check(called, second)
    return _figures(called, gone_ns=gone_ns, back_ns=back_ns, before_s=before_s, timeout_s=timeout_s)


def _check(called: Sequence[_Called], second: Mortal) -> None:
    """Whether the upstream that stayed has sent as many whole answers as were had from it, and sends none any more."""
    had = sum(one.answered_by == "second" and one.error is None for one in called)
    log = [one for one in second.log() if one.method == "POST"]
    sent = sum(one.finished_ns is not None and one.reset_ns is None for one in log)
    if sent < had or any(one.finished_ns is None and one.reset_ns is None for one in log):
        raise RuntimeError(f"the second upstream sent {sent} whole answers, and {had} were had from it")


def _figures(
    called: Sequence[_Called], *, gone_ns: int, back_ns: int, before_s: float, timeout_s: float
) -> dict[str, Figure]:
    before: list[float] = []
    after: list[float] = []
    for one in called:
        due_s = (one.due_ns - gone_ns) / 1e9
        if one.first_ns is not None and -before_s <= due_s < _LOOKED_AT_S:
            # Who waited for a first token when it happened is hit by it.
            (before if one.first_ns < gone_ns else after).append((one.first_ns - one.due_ns) / 1e9)
    added_s = percentile(after, 0.95) - percentile(before, 0.95)
    failed = [one for one in called if one.error is not None]
    later = [one for one in called if one.due_ns >= back_ns]
    again = next((one for one in later if one.answered_by == "first"), None)
    return {
        "failed_before_first_token": sum(one.first_ns is None for one in failed),
        "failed_after_first_token": sum(one.first_ns is not None for one in failed),
        "p95_before_ms": 1e3 * percentile(before, 0.95),
        "p95_after_ms": 1e3 * percentile(after, 0.95),
        "added_p95_ms": 1e3 * added_s,
        "first_token_timeout_ms": 1e3 * timeout_s,
        "added_p95_to_timeout_ratio": added_s / timeout_s,
        "slowest_after_ms": 1e3 * max(after),
        "used_again_after_s": None if again is None else (again.due_ns - back_ns) / 1e9,
        "calls": len(called),
        "p99_issued_late_ms": percentile([(one.issued_ns - one.due_ns) / 1e6 for one in called], 0.99),
    }


def _over(runs: Sequence[dict[str, Figure]]) -> dict[str, Figure]:
    """The median of the runs; of failures all, and of what may not be longer than something the worst."""
    figures: dict[str, Figure] = {}
    for name in runs[0]:
        values = [run[name] for run in runs]
        known = [value for value in values if value is not None]
        if name.startswith("failed") or name == "calls":
            figures[name] = sum(known)
        elif name == "added_p95_to_timeout_ratio":
            figures[name] = max(known)
        else:
            figures[name] = median(known).value if len(known) == len(values) else None
    return figures


def measure(quick: bool) -> Report:
    """Run each variant on providers of its own."""
    times, rounds = ((1.5, 3.0, 3.0), 1) if quick else ((5.0, 10.0, 20.0), 2)
    figures: dict[str, Figure] = {}
    for variant in _VARIANTS:
        runs = []
        for _ in range(rounds):
            with (
                Mortal(_model("first")) as first,
                Mortal(_model("second")) as second,
                trusted((first.authority_pem, second.authority_pem)),
            ):
                runs.append(asyncio.run(_variant(variant, first, second, times)))
        figures |= {f"{variant}_{name}": value for name, value in _over(runs).items()}
    figures["rounds"] = rounds
    return Report(
        figures=figures,
        reach={
            **{f"{variant}_failed_before_first_token": "== 0" for variant in _VARIANTS},
            **{f"{variant}_added_p95_to_timeout_ratio": "<= 1" for variant in _VARIANTS},
        },
        conditions={"before_s": times[1], "watched_after_s": times[2]},
    )
