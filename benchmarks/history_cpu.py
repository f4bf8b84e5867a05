"""What a call with a long history costs the client, and for how long it holds up the event loop: stock against ours.

Conversations of 20, 100 and 400 messages with 14 tools, in the shape and sizes of a recorded airline agent's, are sent
over TLS to a server in another process that answers each at once with a short prepared completion. The stock client is
as openai makes it (HTTP/1.1), ours as fastlane makes it (HTTP/2). Inside: the CPU time of the whole process, all
threads, from `create()` to the typed answer. Outside: opening connections, garbage collection, and the server, which
has a core of its own where the system allows it. The two arms take turns, five calls one after
the other each, in reversed order every other round.

The event loop counts as held up for the longest time between two turns of a task that asks for every turn, while one
call of 100 messages is made: wall-clock time, the median over all calls.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Sequence
from typing import Any

import openai

import fastlane
from benchmarks._conversation import conversation, tools
from benchmarks._paired import cpu_pairs, median, sides
from benchmarks._provider import MODEL
from benchmarks._report import Figure, Report
from benchmarks._server import server_on_another_core
from benchmarks._transport import run_sync, settled
from fastlane._clock import now_ns

_RATIOS = {20: 12, 100: 30, 400: 80}
_TOOLS = tools()
_CONVERSATIONS = {messages: conversation(messages) for messages in _RATIOS}
_HELD_UP_MESSAGES = 100
_BLOCK = 5
"""Calls of one side before the other's turn."""
_Arm = Callable[[], object]


def _arm(client: Any, messages: int, run: Callable[[Any], object]) -> _Arm:
    history = _CONVERSATIONS[messages]

    async def block() -> None:
        for _ in range(_BLOCK):
            await settled(client.chat.completions.create(model=MODEL, messages=history, tools=_TOOLS, temperature=0.5))

    return lambda: run(block())


async def _held_up_us(client: openai.AsyncOpenAI, calls: int) -> list[float]:
    """For each call, the longest time that another task waited for its turn."""
    longest = 0
    over = False

    async def ask_for_every_turn() -> None:
        nonlocal longest
        last = now_ns()
        while not over:
            await asyncio.sleep(0)
            now = now_ns()
            longest = max(longest, now - last)
            last = now

    taken = []
    asking = asyncio.create_task(ask_for_every_turn())
    history = _CONVERSATIONS[_HELD_UP_MESSAGES]
    gc.collect()  # not before each call: it reads every object there is, and leaves the processor's caches to them
    for _ in range(calls):
        await asyncio.sleep(0)
        longest = 0
        await client.chat.completions.create(model=MODEL, messages=history, tools=_TOOLS)
        await asyncio.sleep(0)
        taken.append(longest / 1e3)
    over = True
    await asking
    return taken


def measure(quick: bool) -> Report:
    """Measure synchronous and asynchronous calls of each length, then how long the loop is held up."""
    pairs, held_up_rounds, held_up_calls = (10, 4, 5) if quick else (60, 10, 10)
    figures: dict[str, Figure] = {}
    with server_on_another_core("benchmarks._at_once") as server, asyncio.Runner() as runner:
        settings: dict[str, Any] = {"base_url": server.base_url, "api_key": "none", "max_retries": 0}
        clients = (openai.OpenAI(**settings), fastlane.OpenAI(**settings))
        async_clients = (openai.AsyncOpenAI(**settings), fastlane.AsyncOpenAI(**settings))
        modes: tuple[tuple[str, Sequence[Any], Callable[[Any], object]], ...] = (
            ("sync", clients, run_sync),
            ("async", async_clients, runner.run),
        )
        for side, pair, drive in modes:
            for messages in _RATIOS:
                taken = cpu_pairs([_arm(client, messages, drive) for client in pair], pairs)
                stock_us, ours_us = ([one / _BLOCK / 1e3 for one in arm] for arm in taken)
                figures |= sides(f"{side}_{messages}", stock_us, ours_us, "us")
        for sync_client in clients:
            sync_client.close()
        held_up: tuple[list[float], list[float]] = ([], [])
        gc.disable()
        for _ in range(held_up_rounds):
            for client, values in zip(async_clients, held_up, strict=True):
                values += runner.run(_held_up_us(client, held_up_calls))
        gc.enable()
        for client in async_clients:
            runner.run(client.close())
    figures |= {
        f"loop_held_up_{_HELD_UP_MESSAGES}_stock_ms": median(held_up[0]).value / 1e3,
        f"loop_held_up_{_HELD_UP_MESSAGES}_ms": median(held_up[1]).value / 1e3,
    }
    return Report(
        figures=figures,
        reach={
            **{
                f"{side}_{messages}_ratio": f">= {target}"
                for side in ("sync", "async")
                for messages, target in _RATIOS.items()
            },
            f"loop_held_up_{_HELD_UP_MESSAGES}_ms": "<= 0.6",
        },
        conditions={"pairs": pairs, "cores": server.cores},
    )
