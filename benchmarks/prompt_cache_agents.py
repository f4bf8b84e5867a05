"""What laying out a prompt is worth to agents: share of cached tokens and time to first token, stock and fastlane.

Runs of an agent with 14 tools, eight at a time, each asking for its turns one after the other, as they were recorded
(or, where the recordings are not there, built with their sizes). The app writes the time at the top of its system
prompt and gathers its tools in another order for every call, as apps do. Stock: `openai.AsyncOpenAI` with that prompt.
Fastlane: the same policy, history and time as `Prompt(stable=..., session=..., volatile=...)`, with the same tools and
`Connection()` and `PromptCache()`; the app sorts the tools by their names. Beside them, fastlane with the prompt as the
app wrote it, which shows what the connection alone does; and the stock client of an app that looks at the clock and
gathers its tools only once for a run ("once"), as far as care alone can go with a time at the top. Each has a provider
of its own with a prefix cache as OpenAI documents it (1,024 tokens, blocks of 128) and the times of the `bench` preset:
120 ms, and 20 us for every token that it has to read. Runs go in batches that all take turns with, in reversed order
every other batch.

Inside: from the application's call to the first content that it reads; the tokens as the provider counts them.
Outside: opening connections, thinking between turns, and what users of a real provider share its cache with.
Achievable: computed from the trace alone, for calls one after the other: characters of the longest beginning (tools,
policy, turns of this run) that an earlier call had, of all characters; without blocks, a minimum, or calls at once.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import openai

from benchmarks._conversation import conversation, tools as built_tools
from benchmarks._paired import cpu_pairs, median
from benchmarks._provider import MODEL, providers
from benchmarks._report import Figure, Report
from benchmarks._transport import first_content_ms, ours
from fastlane.emulator import Emulator, RequestLog, preset
from fastlane.plays.prompt_cache.play import PromptCache
from fastlane.plays.prompt_cache.prompts import Prompt

# Recorded runs of an airline's agent and its tools (tau-bench, MIT); an optional input.
_DATA = Path(__file__).parents[2] / "shared" / "data"
_CONCURRENCY = 8
_BATCH = 24
_RUNS, _QUICK_RUNS = 120, 8
_ARMS = ("stock", "stock_once", "connection", "prompt")
_ASKED = {"stream_options": {"include_usage": True}, "tool_choice": "none"}


class _Trace(NamedTuple):
    """What is replayed."""

    runs: list[list[dict[str, Any]]]
    tools: list[Any]
    name: str


@dataclass
class _Arm:
    """One side of the comparison."""

    client: Any
    write: Callable[[str, list[dict[str, Any]], str, list[Any]], dict[str, Any]]
    once: bool = False
    """Whether the app looks at the clock, and gathers its tools, once for a run instead of for every call."""
    first_ms: list[float] = field(default_factory=list)


def _trace(count: int) -> _Trace:
    recorded, definitions = _DATA / "airline_agent_runs.jsonl", _DATA / "airline_tools.json"
    if recorded.is_file() and definitions.is_file():
        runs: list[list[dict[str, Any]]] = [
            json.loads(line)["messages"] for line in recorded.read_text().splitlines()[:count]
        ]
        return _Trace(runs, json.loads(definitions.read_text()), "recorded airline agent")
    policy = conversation(1)[0]
    # The recorded runs have 6 to 52 messages, 24 on average.
    lengths = random.Random(0)
    runs = []
    for number in range(count):
        first, *rest = conversation(lengths.randint(6, 42))[1:]
        # No two runs begin alike.
        runs.append([policy, {**first, "content": f"{number}: {first['content']}"}, *rest])
    return _Trace(runs, built_tools(), "built")


def _policy(run: list[dict[str, Any]]) -> str:
    """The system prompt without the line that the time is written in instead."""
    lines = run[0]["content"].splitlines()
    return "\n".join(line for line in lines if not line.startswith("The current time is"))


def _as_apps_do(policy: str, history: list[dict[str, Any]], now: str, tools: list[Any]) -> dict[str, Any]:
    return {"messages": [{"role": "system", "content": f"{now}\n\n{policy}"}, *history], "tools": tools}


def _laid_out(policy: str, history: list[dict[str, Any]], now: str, tools: list[Any]) -> dict[str, Any]:
    in_order = sorted(tools, key=lambda tool: str(tool["function"]["name"]))
    return {"messages": Prompt(stable=policy, session=history, volatile=now), "tools": in_order}


def _now() -> str:
    return f"The current time is {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC."


def _turns(run: list[dict[str, Any]]) -> list[int]:
    """Where the agent was asked: before each of its messages."""
    return [number for number, message in enumerate(run) if message["role"] == "assistant"]


async def _batch(arm: _Arm, runs: Sequence[tuple[int, list[dict[str, Any]]]], tools: list[Any]) -> None:
    waiting = list(reversed(runs))

    async def work() -> None:
        while waiting:
            number, run = waiting.pop()
            chance = random.Random(number)  # the same orders for every arm
            policy, order, now = _policy(run), list(tools), ""
            for turn in _turns(run):
                if not (arm.once and now):
                    now = _now()
                    chance.shuffle(order)
                asked = {**_ASKED, **arm.write(policy, run[1:turn], now, list(order))}
                arm.first_ms.append(await first_content_ms(arm.client, "One moment, please.", more=asked))

    await asyncio.gather(*(work() for _ in range(_CONCURRENCY)))


async def _measure(trace: _Trace, started: Sequence[Emulator]) -> dict[str, _Arm]:
    options: dict[str, Any] = {"api_key": "none", "max_retries": 0}
    stock, once, connection, prompt = (emulator.base_url for emulator in started)
    async with (
        openai.AsyncOpenAI(base_url=stock, **options) as as_it_comes,
        openai.AsyncOpenAI(base_url=once, **options) as with_one_time,
        ours("async", connection) as connected,
        ours("async", prompt, PromptCache()) as laid_out,
    ):
        arms = {
            "stock": _Arm(as_it_comes, _as_apps_do),
            "stock_once": _Arm(with_one_time, _as_apps_do, once=True),
            "connection": _Arm(connected, _as_apps_do),
            "prompt": _Arm(laid_out, _laid_out),
        }
        warm: list[Any] = [{"role": "user", "content": "Is water wet?"}]
        for arm in arms.values():
            await asyncio.gather(
                *(arm.client.chat.completions.create(model=MODEL, messages=warm) for _ in range(_CONCURRENCY))
            )
        for emulator in started:
            emulator.clear()
        numbered = list(enumerate(trace.runs))
        for first in range(0, len(numbered), _BATCH):
            names = _ARMS if first // _BATCH % 2 else tuple(reversed(_ARMS))
            for name in names:
                await _batch(arms[name], numbered[first : first + _BATCH], trace.tools)
        return arms


def _achievable_share(trace: _Trace) -> float:
    """The share of all characters that begin a call alike an earlier one, laid out as well as can be."""
    fixed = len(json.dumps(trace.tools, separators=(",", ":")))
    known: set[str] = set()
    whole = reused = 0
    now = len("The current time is 2026-11-22 10:04:33 UTC.")
    for run in trace.runs:
        texts = [_policy(run), *(_text(message) for message in run[1:])]
        for turn in _turns(run):
            beginning, shared = "", 0
            size = fixed
            for text in texts[:turn]:
                beginning += "\0" + text
                size += len(text)
                if beginning in known:
                    shared = size
                else:
                    known.add(beginning)
            whole += size + now
            reused += shared
    return reused / whole


def _text(message: dict[str, Any]) -> str:
    if message.keys() == {"role", "content"} and isinstance(message["content"], str):
        return str(message["content"])
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False)


def _share(log: Sequence[RequestLog]) -> float:
    return sum(one.cached_tokens for one in log) / sum(one.prompt_tokens for one in log)


def _writing_cpu_us() -> float:
    """CPU microseconds of making a `Prompt` of 100 messages and 14 tools."""
    policy, *history = conversation(100)
    tools = built_tools()
    (taken,) = cpu_pairs([lambda: _laid_out(policy["content"], history, _now(), tools)], 50)
    return median(taken).value / 1e3


def measure(quick: bool) -> Report:
    """Replay the runs with each arm."""
    trace = _trace(_QUICK_RUNS if quick else _RUNS)
    with providers(len(_ARMS), model=preset("bench")) as started:
        arms = asyncio.run(_measure(trace, started))
        logs = dict(zip(_ARMS, (emulator.log() for emulator in started), strict=True))
    figures: dict[str, Figure] = {}
    p50 = {name: median(arm.first_ms).value for name, arm in arms.items()}
    for name in arms:
        figures |= {f"{name}_cached_share": _share(logs[name]), f"{name}_ttft_p50_ms": p50[name]}
    achievable = _achievable_share(trace)
    prompts = logs["prompt"]
    figures |= {
        "achievable_share": achievable,
        "cached_of_achievable_ratio": _share(prompts) / achievable,
        "ttft_p50_ratio": p50["stock"] / p50["prompt"],
        "ttft_p50_by_the_prompt_alone_ratio": p50["connection"] / p50["prompt"],
        "ttft_p50_to_once_ratio": p50["stock_once"] / p50["prompt"],
        "runs": len(trace.runs),
        "calls": len(prompts),
        "mean_prompt_tokens": sum(one.prompt_tokens for one in prompts) / len(prompts),
        "prompt_of_100_messages_cpu_us": _writing_cpu_us(),
    }
    return Report(
        figures=figures,
        reach={"cached_of_achievable_ratio": ">= 0.9", "ttft_p50_ratio": ">= 1.5"},
        conditions={"runs": trace.name},
    )
