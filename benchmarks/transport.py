"""What our connections are worth: the stock client against ours, mostly both over HTTP/2, on an embedded provider.

The provider has no time of its own and is 40 ms away, over TLS, unless a benchmark says otherwise; nothing is retried.
Both sides take turns, in reversed order every other round; with a provider that thinks, both take that much longer.
Connections are the provider's own count.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from threading import Barrier
from typing import Any

import openai

import fastlane
from benchmarks._client import (
    MESSAGES,
    MODES,
    SIDES,
    call_ms,
    chunks,
    client_of,
    connections,
    first_content_ms,
    has_content,
    in_lanes,
    in_mode,
    opened,
    ours,
    over_http2,
    run,
    run_sync,
    settled,
    time_call,
    wishes,
)
from benchmarks._paired import added, cpu_pairs, in_turns, middle, paired, percentile, ttft, turns
from benchmarks._provider import MODEL, ROUND_TRIP_TIME_S, providers
from benchmarks._report import Figure, Report
from benchmarks._servers import child, connect_proxy
from fastlane._clock import cpu_ns, now_ns
from fastlane.emulator import RequestLog


def _in_both_modes(
    measure: Callable[..., Coroutine[Any, Any, dict[str, Figure]]], *arguments: Any
) -> tuple[dict[str, Figure], Sequence[RequestLog]]:
    """Measure synchronous, then asynchronous calls at one provider; return the figures, and the provider's log."""
    figures: dict[str, Figure] = {}
    with providers(round_trip_time_s=ROUND_TRIP_TIME_S) as (emulator,):
        for mode in MODES:
            figures |= run(measure(mode, emulator.base_url, *arguments))
        return figures, emulator.log()


# A pause

_IDLE_PAUSE_S = 6.0
_LANES = 3


def idle_reuse(quick: bool) -> Report:
    """Measure what an open connection is worth after a pause: time to first token, stock and `Connection()`.

    Both clients make a small streamed call, then pause for longer than the five seconds for which the stock client
    keeps an idle connection. Inside: from the call to the first content. Each lane has a provider of its own.
    """
    with providers(_LANES, round_trip_time_s=ROUND_TRIP_TIME_S) as started:
        each = [
            (
                [client_of("stock", "async", emulator.base_url), ours("async", emulator.base_url)],
                [(("call",), MESSAGES)],
            )
            for emulator in started
        ]
        lanes = run(in_lanes(each, 6 if quick else 25, apart_s=_IDLE_PAUSE_S / _LANES, pause_s=_IDLE_PAUSE_S))
    pairs = [pair for lane in lanes for pair in lane["call"]]
    theirs, own = [pair.first_ms for pair in pairs], [pair.second_ms for pair in pairs]
    return Report(
        figures={**ttft("", theirs, own), **added("saved", theirs, own, "ms"), "pairs": len(own)},
        reach={"ttft_ratio": ">= 2.5", "pairs": ">= 6"},
    )


_STREAMED_CALLS = 20
_CLIENTS = 10


def _streamed_calls(name: str, *, http2: bool) -> dict[str, Figure]:
    with providers(round_trip_time_s=ROUND_TRIP_TIME_S, http2=http2) as (emulator,):
        clients = {side: client_of(side, "sync", emulator.base_url) for side in SIDES}
        taken = in_turns(lambda side: run_sync(first_content_ms(clients[side], tag=side)), SIDES, _STREAMED_CALLS)
        for client in clients.values():
            client.close()
        used = {(request.tag, request.connection_id) for request in emulator.log()}
    return {
        **{f"{name}_{side}_connections": sum(tag == side for tag, _ in used) for side in SIDES},
        **ttft(f"{name}_", taken["stock"], taken["fastlane"]),
    }


def connection(quick: bool) -> Report:
    """Measure what the default client saves without a pause: CPU of another client, connections of streams.

    Inside, of another client: the constructor's CPU. Inside, of twenty synchronous streamed calls one after the other:
    from the call to the first content.
    """
    pairs = 20 if quick else 100
    settings: dict[str, Any] = {"base_url": "https://provider.invalid/v1", "api_key": "none"}
    made: list[openai.OpenAI] = []
    # Several in a row: one alone would mostly measure what the other side left in the processor's caches.
    taken = cpu_pairs(
        (
            lambda: made.extend(openai.OpenAI(**settings) for _ in range(_CLIENTS)),
            lambda: made.extend(fastlane.OpenAI(**settings) for _ in range(_CLIENTS)),
        ),
        pairs,
    )
    for client in made:
        client.close()
    theirs, own = map(middle, taken)
    return Report(
        figures={
            "another_client_stock_ms": theirs / 1e6 / _CLIENTS,
            "another_client_fastlane_ms": own / 1e6 / _CLIENTS,
            "another_client_ratio": theirs / own,
            **_streamed_calls("http1", http2=False),
            **_streamed_calls("http2", http2=True),
        },
        reach={
            "another_client_fastlane_ms": "<= 0.2",
            "http1_fastlane_connections": "== 1",
            "http2_fastlane_connections": "== 1",
        },
        conditions={"pairs_of_another_client": pairs},
    )


# A connection that the server has closed

_CLOSED_AFTER_S = 0.3
_STALE_PAUSE_S = 1.0


async def _stale(mode: str, base_url: str, rounds: int) -> dict[str, Figure]:
    closing: dict[str, Any] = {"default_headers": wishes(fault=f"idle_fin={_CLOSED_AFTER_S}")}
    async with (
        opened(mode, base_url, *SIDES, **closing, max_retries=openai.DEFAULT_MAX_RETRIES) as retrying,
        opened(mode, base_url, "stock_bare", "fastlane_bare", **closing) as bare,
    ):
        clients = {**retrying, **bare}
        taken: dict[str, list[float | None]] = {name: [] for name in clients}
        for client in clients.values():
            await time_call(client)
        for number, name in turns(clients, rounds):
            if all(len(values) == number for values in taken.values()):
                await asyncio.sleep(_STALE_PAUSE_S)
            try:
                taken[name].append(await time_call(clients[name]))
            except openai.APIConnectionError:
                taken[name].append(None)
    figures: dict[str, Figure] = {f"{mode}_{name}_errors": values.count(None) for name, values in taken.items()}
    both = zip(taken["stock"], taken["fastlane"], strict=True)
    pairs = [(one, other) for one, other in both if one is not None and other is not None]
    if not pairs:
        return {f"{mode}_ratio": None, **figures}
    theirs, own = (list(side) for side in zip(*pairs, strict=True))
    return {
        **paired(mode, theirs, own),
        f"{mode}_stock_ms": middle(theirs),
        f"{mode}_fastlane_ms": middle(own),
        f"{mode}_saved_ms": added("", theirs, own)["_us"],
        **figures,
    }


def stale(quick: bool) -> Report:
    """Measure a call after the server closed the idle connection: the stock client over HTTP/2 and ours.

    The provider closes every connection that was idle for 0.3 s by a FIN without a GOAWAY, as middleboxes do. Inside:
    from the call to its parsed answer, with openai's two retries. Two more clients (`bare`) count errors without
    retries.
    """
    rounds = 8 if quick else 45
    figures, _ = _in_both_modes(_stale, rounds)
    return Report(
        figures={**figures, "calls_of_each_arm": rounds},
        reach={
            **{f"{mode}_ratio": ">= 3" for mode in MODES},
            **{f"{mode}_fastlane_bare_errors": "== 0" for mode in MODES},
        },
    )


# Many threads, slow neighbours

_THREADS = 16
_THREAD_CALLS = 25


def _failures(client: openai.OpenAI, number: int) -> list[str]:
    together = Barrier(_THREADS)

    def thread(thread: int) -> list[str]:
        failed = []
        together.wait()
        for call in range(_THREAD_CALLS):
            try:
                run_sync(call_ms(client, f"round {number}, thread {thread}, call {call}"))
            except Exception as error:  # noqa: BLE001 - whatever it is, the call has failed
                failed.append(type(error).__name__)
        return failed

    with ThreadPoolExecutor(_THREADS) as pool:
        return list(chain(*pool.map(thread, range(_THREADS))))


def threads(quick: bool) -> Report:
    """Count the calls that fail when sixteen threads share a client: the stock client over HTTP/2 and ours.

    They make 25 calls each at the same time, on a new client without a connection. Inside: every call of every thread.
    A call has failed if it brought an error, or another text than its own.
    """
    rounds = {"stock": 3 if quick else 6, "fastlane": 6 if quick else 20}
    failed: dict[str, list[str]] = {side: [] for side in SIDES}
    with providers(round_trip_time_s=ROUND_TRIP_TIME_S) as (emulator,):
        for number, side in turns(SIDES, max(rounds.values())):
            if number < rounds[side]:
                with over_http2(side, "sync", emulator.base_url, side, timeout=20.0) as client:
                    failed[side] += _failures(client, number)
        log = emulator.log()
    figures: dict[str, Figure] = {}
    for side in reversed(SIDES):
        figures |= {
            f"{side}_failed_calls": len(failed[side]),
            f"{side}_calls": rounds[side] * _THREADS * _THREAD_CALLS,
            f"{side}_connections_per_round": connections(log, side) / rounds[side],
        }
    return Report(
        figures=figures,
        reach={"fastlane_failed_calls": "== 0"},
        conditions={"errors": {side: sorted(set(names)) for side, names in failed.items()}, "rounds": rounds},
    )


_SLOW_MS = 1_000
_SHORT_MS = 5
_MARGIN_S = 0.1
_SLOW = {"sync": 1, "async": 4}


async def _beside(client: Any, slow: int) -> tuple[list[float], int]:
    """Return the milliseconds of short calls beside slow ones, and how many failed."""
    taken: list[float] = []
    failed = 0
    calls = [time_call(client, f"slow {number}", prefill_ms=_SLOW_MS) for number in range(slow)]
    waiting = [asyncio.ensure_future(call) for call in calls]
    began = now_ns()
    await asyncio.sleep(_MARGIN_S)
    while now_ns() - began < _SLOW_MS * 1e6 - _MARGIN_S * 1e9:
        try:
            taken.append(await time_call(client, "short", prefill_ms=_SHORT_MS))
        except openai.APIConnectionError:
            failed += 1
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    return taken, failed + sum(isinstance(one, openai.APIConnectionError) for one in ended)


async def _multiplexing(mode: str, base_url: str, rounds: int) -> dict[str, Figure]:
    arms = {"stock": _SLOW[mode], "fastlane": _SLOW[mode], "stock_idle": 0, "fastlane_idle": 0}
    taken: dict[str, list[float]] = {name: [] for name in arms}
    failed = dict.fromkeys(SIDES, 0)
    async with opened(mode, base_url, *SIDES) as clients:
        for client in clients.values():
            await time_call(client)
        for _, name in turns(arms, rounds):
            side = name.partition("_")[0]
            values, failures = await _beside(clients[side], arms[name])
            taken[name] += values
            failed[side] += failures
    p50 = {name: middle(values) for name, values in taken.items()}
    p99 = {name: percentile(values, 0.99) for name, values in taken.items()}
    return {
        f"{mode}_p50_ratio": p50["stock"] / p50["fastlane"],
        f"{mode}_fastlane_p99_to_idle_ratio": p99["fastlane"] / p99["fastlane_idle"],
        **{f"{mode}_{name}_p50_ms": value for name, value in p50.items()},
        **{f"{mode}_{name}_p99_ms": value for name, value in p99.items() if name.startswith("fastlane")},
        **{f"{mode}_{name}_calls": len(values) for name, values in taken.items()},
        **{f"{mode}_{side}_failed_calls": number for side, number in failed.items()},
    }


def multiplexing(quick: bool) -> Report:
    """Measure a short call beside slow ones on the same connection: the stock client over HTTP/2 and ours.

    While one call of 1 s (synchronous) or four (asynchronous) are in flight, calls of 5 ms follow one another on the
    same client. Inside: from the short call to its parsed answer. Outside: the first and the last 0.1 s of the slow
    calls. The idle figures are the same calls with nothing beside them.
    """
    rounds = 4 if quick else 24
    figures: dict[str, Figure] = {}
    with providers(round_trip_time_s=0.0) as (emulator,):
        for mode in MODES:
            figures |= run(_multiplexing(mode, emulator.direct_base_url, rounds))
        log = emulator.log()
    arms = [f"{mode}_{side}" for mode in MODES for side in SIDES]
    return Report(
        figures={**figures, **{f"{arm}_connections": connections(log, arm) for arm in arms}},
        reach={
            **{f"{mode}_p50_ratio": ">= 20" for mode in MODES},
            **{f"{mode}_fastlane_p99_to_idle_ratio": "<= 3" for mode in MODES},
            **{f"{mode}_fastlane_connections": "== 1" for mode in MODES},
        },
        conditions={"rounds": rounds},
    )


# Streams that are closed early

_PACE_MS = 20
_WHOLE_TOKENS = 100
_READ_TOKENS = 3
_AT_A_TIME = 30
_ALLOWED_TOKENS = math.ceil(1e3 * ROUND_TRIP_TIME_S / _PACE_MS) + 1


async def _close_early(client: Any, tag: str) -> int | None:
    """Return when the stream was closed; None if it broke before."""
    headers = wishes(tag=tag, output_tokens=_WHOLE_TOKENS, token_ms=_PACE_MS)
    read = 0
    try:
        stream = await settled(
            client.chat.completions.create(model=MODEL, messages=MESSAGES, extra_headers=headers, stream=True)
        )
        async for chunk in chunks(stream):
            read += has_content(chunk)
            if read == _READ_TOKENS:
                closed_ns = now_ns()
                await settled(stream.close())
                return closed_ns
    except openai.APIConnectionError:
        pass
    return None


async def _closed_early(mode: str, base_url: str, rounds: int, counts: dict[str, int]) -> dict[str, Figure]:
    """Return when each stream was closed, by its tag."""
    closed: dict[str, Figure] = {}
    at_once = asyncio.Semaphore(_AT_A_TIME)

    async def one(client: Any, tag: str) -> None:
        async with at_once:
            closed[tag] = await in_mode(client, _close_early, tag)

    async with opened(mode, base_url, *SIDES) as clients:
        for client in clients.values():
            await time_call(client)
        for number, side in turns(SIDES, rounds):
            tags = (f"{mode}_{side}:{number}:{stream}" for stream in range(counts[side]))
            await asyncio.gather(*(one(clients[side], tag) for tag in tags))
            if side == "stock":  # the provider is given the time to end what was not stopped
                await asyncio.sleep(_WHOLE_TOKENS * _PACE_MS / 1e3 + ROUND_TRIP_TIME_S)
        # Still usable: a window that leaked or a limit of streams that was used up would show here.
        await time_call(clients["fastlane"])
    return closed


def _after_close(arm: str, closed: Mapping[str, Figure], log: Sequence[RequestLog]) -> dict[str, Figure]:
    sent = {request.tag: request for request in log}
    mine = {tag: moment for tag, moment in closed.items() if tag.partition(":")[0] == arm}
    whole = {tag: moment for tag, moment in mine.items() if moment is not None}
    after = [sum(token > moment for token in sent[tag].token_ns) for tag, moment in whole.items()]
    return {
        f"{arm}_tokens_after_close_p50": middle(after) if after else None,
        f"{arm}_tokens_after_close_p99": percentile(after, 0.99) if after else None,
        f"{arm}_tokens_after_close_max": max(after, default=None),
        f"{arm}_streams": len(mine),
        f"{arm}_streams_reset": sum(sent[tag].reset_code is not None for tag in whole),
        f"{arm}_failures": len(mine) - len(whole),
        f"{arm}_connections": connections(log, arm),
    }


def early_close(quick: bool) -> Report:
    """Count the tokens that the provider sends after a stream was closed early.

    A thousand streams, in threads and in tasks, thirty at a time, are closed after their third token; stock HTTP/2 does
    the same with fewer. Inside: tokens that the provider gave to its socket after `close()`, by one clock. At one token
    every 20 ms, two are sent in a round trip, and one more by chance.
    """
    counts = {"stock": 3, "fastlane": 100}  # in each mode and round
    closed, log = _in_both_modes(_closed_early, 5 if quick else 10, counts)
    figures: dict[str, Figure] = {}
    for mode in MODES:
        for side in SIDES:
            figures |= _after_close(f"{mode}_{side}", closed, log)
    targets = {"tokens_after_close_max": f"<= {_ALLOWED_TOKENS}", "failures": "== 0", "connections": "== 1"}
    return Report(
        figures=figures,
        reach={f"{mode}_fastlane_{name}": target for mode in MODES for name, target in targets.items()},
    )


# Through a proxy

_ROUTES = ("direct", "proxy")
_PROXIED_TOKENS = 300


def proxy(quick: bool) -> Report:
    """Measure what a proxy (CONNECT, in a process of its own, on loopback) adds to a warm call: direct against proxied.

    Inside, of time to first token: from a streamed call to its first content. Inside, of CPU: this process's, all
    threads, while a stream of 300 tokens, one every millisecond, is read. Inside, of streams that are closed after
    their third token: tokens that the provider gave to its socket after `close()`.
    """
    rounds, streams = (10, 8) if quick else (40, 30)
    figures: dict[str, Figure] = {}
    closed: dict[str, Figure] = {}
    with providers(round_trip_time_s=ROUND_TRIP_TIME_S) as (emulator,), child(connect_proxy) as connection:
        url = f"http://127.0.0.1:{connection.recv()}"
        for mode in MODES:
            through: dict[str, Any] = {"direct": False, "proxy": url}

            async def measure(mode: str = mode, through: dict[str, Any] = through) -> None:
                clients = {route: ours(mode, emulator.base_url, proxy=through[route]) for route in _ROUTES}
                taken: dict[str, list[float]] = {route: [] for route in _ROUTES}
                spent: dict[str, list[float]] = {route: [] for route in _ROUTES}
                for number, route in turns(_ROUTES, rounds, warm_ups=2):
                    first_ms = await in_mode(clients[route], first_content_ms)
                    began_ns = cpu_ns()
                    long = partial(first_content_ms, text=None, output_tokens=_PROXIED_TOKENS, token_ms=1)
                    await in_mode(clients[route], long)
                    if number >= 0:
                        taken[route].append(first_ms)
                        spent[route].append((cpu_ns() - began_ns) / 1e3 / _PROXIED_TOKENS)
                for number in range(streams):
                    tag = f"{mode}_proxy:{number}"
                    closed[tag] = await in_mode(clients["proxy"], _close_early, tag)
                for client in clients.values():
                    await settled(client.close())
                figures.update(paired(f"{mode}_ttft", taken["proxy"], taken["direct"]))
                figures.update(paired(f"{mode}_cpu_per_chunk", spent["proxy"], spent["direct"]))
                figures.update({f"{mode}_{route}_ttft_ms": middle(taken[route]) for route in _ROUTES})
                figures.update({f"{mode}_{route}_cpu_per_chunk_us": middle(spent[route]) for route in _ROUTES})

            run(measure())
        log = emulator.log()
    for mode in MODES:
        figures |= _after_close(f"{mode}_proxy", closed, log)
    targets = {"ttft_ratio": "<= 1.1", "cpu_per_chunk_ratio": "<= 1.1"}
    ends = {"proxy_tokens_after_close_max": f"<= {_ALLOWED_TOKENS}", "proxy_connections": "== 1"}
    return Report(
        figures=figures,
        reach={f"{mode}_{name}": target for mode in MODES for name, target in {**targets, **ends}.items()},
    )
