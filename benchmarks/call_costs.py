"""What plays and the shell cost a call: CPU that they add over an in-memory transport, so without a network.

The arms take turns, in reversed order every other round. A second arm without what is measured (`again`, `nothing`,
`stock_to_stock`) shows how large a difference the run would report where there is none.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any, NamedTuple

import httpx2
import openai

import fastlane
from benchmarks._conversation import conversation, tools
from benchmarks._paired import added, cpu_pairs, differences, in_turns, median
from benchmarks._prepared import ANSWER, MODEL, Prepared, stream_of
from benchmarks._provider import fact
from benchmarks._report import Figure, Report
from fastlane import PromptCache
from fastlane._clock import cpu_ns
from fastlane.engine.drivers import async_run, run
from fastlane.engine.effects import Acquire, Flow, Sleep
from fastlane.plays.rate_limits.bucket import RequestCost
from fastlane.plays.rate_limits.queue import RateLimitQueue, RateLimitTicket
from fastlane.plays.urgency.slots import Slot, SlotQueue
from fastlane.providers import ProviderFacts, facts_named, registered
from fastlane.providers.facts import Cache

_QUESTION: list[Any] = [
    {"role": "system", "content": "Answer in one word."},
    {"role": "user", "content": "Is water wet?"},
]
_SETTINGS: dict[str, Any] = {"base_url": "http://prepared.invalid/v1", "api_key": "none", "max_retries": 0}
_MODES = ("sync", "async")
_CALLS = 20
"""Of one arm, before the next arm's turn."""
_Arm = Callable[[], object]


class _Batch(NamedTuple):
    """What one arm does in one round."""

    chunks: int | None
    """Of a streamed answer; None for one that is not streamed."""
    calls: int = _CALLS

    @property
    def transport(self) -> Prepared:
        """A provider in memory that answers so."""
        if self.chunks is None:
            return Prepared("application/json", (ANSWER,))
        return Prepared("text/event-stream", stream_of(self.chunks))


_CALL, _EMPTY_STREAM = _Batch(None), _Batch(0)


def _sync_arm(client: openai.OpenAI, batch: _Batch) -> _Arm:
    streamed = batch.chunks is not None

    def run_batch() -> None:
        for _ in range(batch.calls):
            answer = client.chat.completions.create(model=MODEL, messages=_QUESTION, stream=streamed)
            if isinstance(answer, openai.Stream):
                for _chunk in answer:
                    pass

    return run_batch


def _async_arm(client: openai.AsyncOpenAI, batch: _Batch, loop: asyncio.AbstractEventLoop) -> _Arm:
    async def run_batch() -> None:
        for _ in range(batch.calls):
            answer = await client.chat.completions.create(
                model=MODEL, messages=_QUESTION, stream=batch.chunks is not None
            )
            if isinstance(answer, openai.AsyncStream):
                async for _chunk in answer:
                    pass

    return lambda: loop.run_until_complete(run_batch())


def _taken_us(
    mode: str, batch: _Batch, arms: Mapping[str, dict[str, Any] | None], pairs: int
) -> dict[str, list[float]]:
    """CPU microseconds per call of each arm, round by round: our client with these options, None for the stock one."""
    clients: list[Any] = []
    with asyncio.Runner() as runner:
        for options in arms.values():
            own = _SETTINGS | (options or {})
            if mode == "sync":
                sync_http = httpx2.Client(transport=batch.transport)
                made = openai.OpenAI if options is None else fastlane.OpenAI
                clients.append(made(**own, http_client=sync_http))
            else:
                async_http = httpx2.AsyncClient(transport=batch.transport)
                async_made = openai.AsyncOpenAI if options is None else fastlane.AsyncOpenAI
                clients.append(async_made(**own, http_client=async_http))
        loop = runner.get_loop()
        run_batches = [
            _sync_arm(client, batch) if mode == "sync" else _async_arm(client, batch, loop) for client in clients
        ]
        taken = cpu_pairs(run_batches, pairs)
        for client in clients:
            client.close() if mode == "sync" else runner.run(client.close())
    return {name: [one / 1e3 / batch.calls for one in arm] for name, arm in zip(arms, taken, strict=True)}


def _middle(values: Sequence[float]) -> float:
    return median(values).value


def _added(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return _middle(differences(ours, theirs))


# The shell

_CHUNKS = 200


def shell_cost(quick: bool) -> Report:
    """What the shell around the stock client costs: CPU per call and chunk that fastlane adds with default plays.

    Inside: everything from the application's call to the typed answer, or to the last typed chunk read; both clients
    over the same in-memory transport. Outside: the network, TLS, HTTP framing and garbage collection. Below zero, the
    fast path saves more than the shell takes. A third arm, a second stock client, shows how large a difference this run
    would report where there is none.
    """
    pairs = 100 if quick else 400
    arms: dict[str, dict[str, Any] | None] = {"stock": None, "fastlane": {}, "again": None}
    figures: dict[str, Figure] = {}
    for mode in _MODES:
        call = _taken_us(mode, _CALL, arms, pairs)
        empty = _taken_us(mode, _EMPTY_STREAM, arms, pairs)
        long = _taken_us(mode, _Batch(_CHUNKS, calls=2), arms, pairs)

        def per_chunk(arm: str, long: Any = long, empty: Any = empty) -> float:
            return (_added(long[arm], long["stock"]) - _added(empty[arm], empty["stock"])) / _CHUNKS

        stock_chunk_us = (_middle(long["stock"]) - _middle(empty["stock"])) / _CHUNKS
        figures |= {
            **added(f"{mode}_call_added", call["fastlane"], call["stock"]),
            f"{mode}_call_stock_us": _middle(call["stock"]),
            f"{mode}_call_added_ratio": _added(call["fastlane"], call["stock"]) / _middle(call["stock"]),
            f"{mode}_call_stock_to_stock_us": _added(call["again"], call["stock"]),
            f"{mode}_stream_added_us": _added(empty["fastlane"], empty["stock"]),
            f"{mode}_stream_stock_us": _middle(empty["stock"]),
            f"{mode}_chunk_added_us": per_chunk("fastlane"),
            f"{mode}_chunk_stock_us": stock_chunk_us,
            f"{mode}_chunk_added_ratio": per_chunk("fastlane") / stock_chunk_us,
            f"{mode}_chunk_stock_to_stock_us": per_chunk("again"),
        }
    return Report(
        figures=figures,
        reach={
            **{f"{mode}_call_added_us": "<= 30" for mode in _MODES},
            **{f"{mode}_chunk_added_us": "<= 3" for mode in _MODES},
        },
        conditions={"pairs": pairs},
    )


# Calls that wait

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
_COST = RequestCost(1.0, 500.0, 400.0, 100.0)
_USED = RequestCost(1.0, 400.0, 350.0, 50.0)


def _waiting(number: int, slots: SlotQueue, limits: RateLimitQueue) -> Flow:
    """A call that waits for a slot and for the rate limits, is answered, and gives the slot back."""
    slot = Slot(slots, 1 if number % 8 else 0, max_concurrency=_PLACES)
    ticket = RateLimitTicket(limits, slot.level, _COST)
    yield Acquire(_HTTP, slot, 600.0)
    yield Acquire(_HTTP, ticket, 600.0)
    slots.answered(slot, 200, _HEADERS)
    limits.answered(ticket, 200, _HEADERS)
    yield Sleep(None, 0.0)
    slot.release(failed=False)
    limits.settle(ticket, _USED)


def _nothing() -> Flow:
    """A call that waits for nothing."""
    yield Sleep(None, 0.0)


def _calls_of(arm: str) -> Callable[[int], Flow]:
    """Make the calls of one arm in one round, by number."""
    slots, limits = SlotQueue(), RateLimitQueue(_FACTS)
    return lambda number: _waiting(number, slots, limits) if arm == "both" else _nothing()


def _threads_us(arm: str, calls: int) -> float:
    call, ready, done = _calls_of(arm), threading.Barrier(_WAITING + _PLACES + 1), []

    def work(number: int) -> None:
        ready.wait()
        for _ in range(calls):
            run(call(number))
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


def _tasks_us(arm: str, calls: int) -> float:
    call = _calls_of(arm)

    async def work(number: int) -> None:
        for _ in range(calls):
            await async_run(call(number))

    async def round_() -> float:
        started = cpu_ns()
        await asyncio.gather(*(work(number) for number in range(_WAITING + _PLACES)))
        return (cpu_ns() - started) / 1e3 / calls / (_WAITING + _PLACES)

    return asyncio.run(round_())


def admission_cost(quick: bool) -> Report:
    """What waiting costs: CPU microseconds of a call with `Urgency` and `RateLimits` while 256 calls wait before it.

    So many more threads, or tasks, than there are slots wait for one and for the provider's rate limits, are answered
    with OpenAI's six headers and give the slot back, again and again; every call waits, and one in eight is
    interactive. Beside it, in turn and in reversed order every other time: calls that wait for `nothing`. Inside: this
    process's CPU time, all threads, from the first call of a round to its last, what waking a thread or a task costs
    included. Outside: starting them. `own_cpu_us` is what both plays add, by pairs.
    """
    rounds, calls = (5, 10) if quick else (25, 40)
    figures: dict[str, Figure] = {}
    measured: dict[str, Callable[[str, int], float]] = {"threads": _threads_us, "asyncio": _tasks_us}
    for side, measure in measured.items():

        def one(arm: str, measure: Callable[[str, int], float] = measure) -> float:
            return measure(arm, calls)

        for arm in ("both", "nothing"):
            one(arm)
        taken = in_turns(one, ("both", "nothing"), rounds)
        figures |= {f"{side}_{arm}_cpu_us": _middle(values) for arm, values in taken.items()}
        figures |= added(f"{side}_own", taken["both"], taken["nothing"], "cpu_us")
    return Report(
        figures=figures,
        reach={f"{side}_own_cpu_us": "<= 25" for side in measured},
        conditions={"rounds": rounds, "calls": calls * (_WAITING + _PLACES)},
    )


# PromptCache

_LENGTH = 100
_MOST_MESSAGES = 140
_HISTORY_CALLS = 10
_TOOLS = tools()
_HISTORY = conversation(_MOST_MESSAGES)
_Histories = Callable[[], list[Any]]
_Case = Callable[[], _Histories]


def _facts() -> ProviderFacts:
    return ProviderFacts(
        slug="prepared",
        origins=("http://prepared.invalid",),
        cache=Cache(
            automatic=fact(True),
            minimum_tokens=fact(1_024),
            block_tokens=fact(128),
            lifetime_s=fact(300.0),
            key_field=fact("prompt_cache_key"),
            # So that a conversation stays with one key, as it does where calls are not made in a loop.
            requests_per_key_per_minute=fact(1e9),
        ),
        parameters={"prompt_cache_key": fact(True)},
    )


def _same() -> _Histories:
    history = _HISTORY[:_LENGTH]
    return lambda: history


def _turns() -> Iterator[list[Any]]:
    for conversation_number in count():
        opening = {"role": "user", "content": f"I am customer {conversation_number}."}
        whole = [_HISTORY[0], opening, *_HISTORY[1:]]
        yield from (whole[:length] for length in range(_LENGTH, _MOST_MESSAGES, 2))


def _growing() -> _Histories:
    turns = _turns()
    return lambda: next(turns)


def _parsed() -> _Histories:
    turns = _turns()
    return lambda: list(json.loads(json.dumps(next(turns))))


def _changing() -> _Histories:
    numbers = count()

    def histories() -> list[Any]:
        system = {**_HISTORY[0], "content": f"It is {next(numbers):06} seconds past noon. {_HISTORY[0]['content']}"}
        return [system, *_HISTORY[1:_LENGTH]]

    return histories


_CASES: dict[str, _Case] = {
    "same": _same, "growing": _growing, "parsed": _parsed, "changing": _changing,
}  # fmt: skip


def _history_taken(case: _Case, pairs: int) -> list[list[float]]:
    """Microseconds of CPU per call of each client, round by round, in reversed order every other round."""
    transport = _CALL.transport
    clients = [
        fastlane.OpenAI(**_SETTINGS, only_plays=plays, http_client=httpx2.Client(transport=transport))
        for plays in ([], [PromptCache()], [])
    ]

    def ask(client: fastlane.OpenAI, histories: Sequence[list[Any]]) -> None:
        for history in histories:
            client.chat.completions.create(model=MODEL, messages=history, tools=_TOOLS)

    def block(histories: _Histories) -> list[list[Any]]:
        return [histories() for _ in range(_HISTORY_CALLS)]

    taken = cpu_pairs(
        [partial(ask, client) for client in clients], pairs, prepare=[partial(block, case()) for _ in clients]
    )
    for client in clients:
        client.close()
    return [[one / 1e3 / _HISTORY_CALLS for one in arm] for arm in taken]


def prompt_cache_cost(quick: bool) -> Report:
    """What keeping track of the prompt cache costs: CPU that `PromptCache()` adds to a call with 100 messages.

    A client with the play against one without it, both over the same in-memory transport, to a provider that is known
    to take a cache key, so that the key is derived too. An agent's conversation of 100 messages with its 14 tools, some
    50 kB: the same objects in every call (`same`), two messages more in every call (`growing`: from 100 to 140
    messages, then another customer's conversation), and growing with every message parsed anew from JSON, as where a
    server keeps no state (`parsed`): no string has its hash yet, and each is read once. `changing` costs the most: a
    clock at the top of the system prompt, so that each call is compared with the one before.

    Inside: all CPU time of the process from the application's call to the typed answer. Outside: parsing the history,
    the network, and garbage collection. What two clients without the play differ by (`nothing_added_us`) is noise.
    """
    pairs = 60 if quick else 400
    figures: dict[str, Figure] = {}
    with registered(_facts()):
        for name, case in _CASES.items():
            without, having, again = _history_taken(case, pairs)
            figures |= {
                **added(f"{name}_added", having, without),
                f"{name}_nothing_added_us": _added(again, without),
                f"{name}_without_us": _middle(without),
            }
    return Report(
        figures=figures,
        reach={f"{name}_added_us": "<= 60" for name in ("same", "growing", "parsed")},
        conditions={"pairs": pairs},
    )


BENCHMARKS = {
    "shell_cost": shell_cost,
    "admission_cost": admission_cost,
    "prompt_cache_cost": prompt_cache_cost,
}
