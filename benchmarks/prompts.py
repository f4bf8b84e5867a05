"""What `PromptCache`, `Prompt` and `ContextTrimming` are worth to agents: share of cached tokens, time to first token.

The emulated provider has a prefix cache as OpenAI documents it (1,024 tokens, blocks of 128). Agents are an airline's
and a coding agent, recorded where the recordings are, else built with their sizes.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

import fastlane
from benchmarks._client import MESSAGES, OPTIONS, client_of, first_content_ms, ours, wishes
from benchmarks._conversation import conversation, tools
from benchmarks._mutations import MUTATORS, Body, Mutation
from benchmarks._paired import added, cpu_pairs, differences, middle, paired, percentile
from benchmarks._prepared import Prepared
from benchmarks._provider import MODEL, fact, providers
from benchmarks._report import Figure, Report
from fastlane import PromptCache
from fastlane.emulator import Emulator, RequestLog, _tokens, preset
from fastlane.emulator._prefix_cache import PrefixCache
from fastlane.emulator._prompt import read_chat
from fastlane.knowledge.tokens import counter
from fastlane.plays.context_trimming.play import ContextTrimming
from fastlane.plays.prompt_cache.prompts import Prompt
from fastlane.providers import ProviderFacts, registered
from fastlane.providers.facts import Cache
from fastlane.records.plays import Drift

Messages = list[dict[str, Any]]

# Runs of an airline's agent and its tools (tau-bench, MIT), and of a coding agent; an optional input.
_DATA = Path(__file__).parents[2] / "shared" / "data"


def _recorded(name: str) -> list[Messages]:
    """Return recorded runs, an empty list if there are none."""
    file = _DATA / f"{name}_agent_runs.jsonl"
    return [json.loads(line)["messages"] for line in file.read_text().splitlines()] if file.is_file() else []


def _airline_tools() -> list[Any]:
    file = _DATA / "airline_tools.json"
    return json.loads(file.read_text()) if file.is_file() else tools()


def _facts(base_url: str, lifetime_s: float, *, per_minute: float | None = None) -> ProviderFacts:
    """Return the facts of the provider's cache; with a limit per key, also that it takes keys."""
    cache = Cache(automatic=fact(True), minimum_tokens=fact(1_024), block_tokens=fact(128), lifetime_s=fact(lifetime_s))
    parameters = {}
    if per_minute is not None:
        key_field, limit = fact("prompt_cache_key"), fact(per_minute)
        cache = cache.model_copy(update={"key_field": key_field, "requests_per_key_per_minute": limit})
        parameters = {"prompt_cache_key": fact(True)}
    origins = (base_url.removesuffix("/v1"),)
    return ProviderFacts(slug="emulated", origins=origins, cache=cache, parameters=parameters)


def _cached_share(log: Sequence[RequestLog]) -> float:
    return sum(one.cached_tokens for one in log) / sum(one.prompt_tokens for one in log)


# Many agents on a fleet

_PER_MINUTE = 15
_GAP_S = 6.0
_TURNS = 8
_AGENTS = 60


_Call = tuple[dict[str, Any], list[float]]
"""One call as both sides sent it, and for each the milliseconds to its first content."""


def _turn(rng: random.Random, number: int) -> Messages:
    def words(characters: int) -> str:
        return " ".join(rng.randbytes(3).hex() for _ in range(characters // 7 + 1))[:characters]

    call = {"id": f"call_{number}", "type": "function", "function": {"name": "look_up_0", "arguments": "{}"}}
    return [
        {"role": "user", "content": words(100)},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": words(4_000)},
    ]


async def _fleet_calls(emulators: Sequence[Emulator], seconds: float) -> list[_Call]:
    """Have so many agents call for so long, every call sent by both clients at once."""
    calls: list[_Call] = []
    alone, keyed = (emulator.base_url for emulator in emulators)
    clients = [ours("async", alone), ours("async", keyed, PromptCache())]
    for client in clients:
        await client.models.list()
    now_s, listed = asyncio.get_running_loop().time, tools()
    end_s = now_s() + seconds

    async def one_call(messages: Messages, draw: int) -> None:
        body, taken_ms = {"model": MODEL, "messages": messages, "tools": listed}, [0.0] * len(clients)
        calls.append((body, taken_ms))

        async def send(side: int) -> None:
            taken_ms[side] = await first_content_ms(clients[side], None, more=body, output_tokens=8, draw=draw)

        await asyncio.gather(*map(send, (0, 1) if len(calls) % 2 else (1, 0)))

    async def agent(number: int) -> None:
        await asyncio.sleep(number * _GAP_S / _AGENTS)
        for talk in itertools.count(number, _AGENTS):
            wording, pauses, messages = random.Random(talk), random.Random(-talk), [*conversation(1)]
            for turn in range(_TURNS):
                if now_s() > end_s:
                    return
                messages = [*messages, *_turn(wording, turn)]
                await one_call(messages, talk * _TURNS + turn)
                messages = [*messages, {"role": "assistant", "content": "Done."}]
                await asyncio.sleep(pauses.uniform(0.5, 1.5) * _GAP_S)

    await asyncio.gather(*map(agent, range(_AGENTS)))
    for client in clients:
        await client.close()
    return calls


def _achievable_on_one_machine(calls: Sequence[_Call], skipped: int) -> float:
    """Return the cached share of these calls, one after the other, on one machine that takes all of them."""
    cache = PrefixCache(block_tokens=128, minimum_tokens=1_024, expiry_ns=1 << 62, machines=1)
    read = tokens = 0
    for number, (body, _) in enumerate(calls):
        text = read_chat(body).text
        digests = _tokens.prefix_digests(text, block_tokens=128)
        if number >= skipped:
            read += cache.cached_tokens(0, MODEL, digests, 0)
            tokens += _tokens.count(text)
        cache.remember(0, MODEL, digests, 0)
    return read / tokens


def prompt_cache(quick: bool) -> Report:
    """Compare `PromptCache()` with `Connection()` alone: cached tokens, time to first token.

    60 agents with one system prompt and one set of tools call about every 6 s. In each of two emulated fleets a machine
    takes 15 calls a minute of a key and prefix, which is OpenAI's rule; others go to another machine. Both sides send
    the same calls at the same moments. `achievable` is what one machine without a limit would have read from its cache.
    Inside: from the call to the first content. Outside: opening connections, and the first quarter of the calls.
    """
    seconds = 30.0 if quick else 180.0
    model = replace(preset("bench"), cache_machines=256, cache_requests_per_key_per_minute=_PER_MINUTE)
    with (
        providers(2, model=model) as fleets,
        registered(_facts(fleets[1].base_url, 300.0, per_minute=_PER_MINUTE)),
    ):
        calls = asyncio.run(_fleet_calls(fleets, seconds))
        logs = [[each for each in emulator.log() if each.prompt_tokens] for emulator in fleets]
    # The fleets as they begin tell of nothing but cold caches.
    skipped = round(len(calls) / 4)
    alone_share, keyed_share = (_cached_share(log[skipped:]) for log in logs)
    alone, keyed = ([taken[side] for _, taken in calls[skipped:]] for side in (0, 1))
    achievable = _achievable_on_one_machine(calls, skipped)
    return Report(
        figures={
            "alone_cached_share": alone_share,
            "prompt_cache_cached_share": keyed_share,
            "achievable_cached_share": achievable,
            "cached_share_ratio": keyed_share / alone_share,
            "prompt_cache_to_achievable_ratio": keyed_share / achievable,
            "alone_ttft_p50_ms": percentile(alone, 0.5),
            "prompt_cache_ttft_p50_ms": percentile(keyed, 0.5),
            "ttft_p50_ratio": percentile(alone, 0.5) / percentile(keyed, 0.5),
            **paired("paired_ttft", alone, keyed),
            "calls_per_side": len(calls),
        },
        reach={"cached_share_ratio": ">= 1", "paired_ttft_low_ratio": ">= 1"},
        conditions={"calls_per_minute": round(60 * len(calls) / seconds)},
    )


# Prompts as they are written and laid out

_CONCURRENCY = 8
_BATCH = 24
_ARMS = ("stock", "stock_once", "connection", "prompt")


def _airline_runs(count: int) -> tuple[list[Messages], str]:
    recorded = _recorded("airline")
    if recorded:
        return recorded[:count], "recorded airline agent"
    policy = conversation(1)[0]
    # The recorded runs have 6 to 52 messages, 24 on average.
    lengths, runs = random.Random(0), []
    for number in range(count):
        first, *rest = conversation(lengths.randint(6, 42))[1:]
        # No two runs begin alike.
        runs.append([policy, {**first, "content": f"{number}: {first['content']}"}, *rest])
    return runs, "built"


def _policy(run: Messages) -> str:
    """Return the system prompt without the line that the time is written in instead."""
    lines: list[str] = run[0]["content"].splitlines()
    return "\n".join(line for line in lines if not line.startswith("The current time is"))


def _now() -> str:
    return f"The current time is {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC."


def _as_apps_do(policy: str, history: Messages, now: str, listed: list[Any]) -> dict[str, Any]:
    return {"messages": [{"role": "system", "content": f"{now}\n\n{policy}"}, *history], "tools": listed}


def _laid_out(policy: str, history: Messages, now: str, listed: list[Any]) -> dict[str, Any]:
    in_order = sorted(listed, key=lambda tool: str(tool["function"]["name"]))
    return {"messages": Prompt(stable=policy, session=history, volatile=now), "tools": in_order}


def _asked_at(run: Messages) -> list[int]:
    """Return where the agent was asked: before each of its messages."""
    return [number for number, message in enumerate(run) if message["role"] == "assistant"]


async def _replay(
    arm: str, client: Any, runs: Sequence[tuple[int, Messages]], listed: list[Any], first_ms: list[float]
) -> None:
    write = _laid_out if arm == "prompt" else _as_apps_do
    waiting = list(reversed(runs))

    async def work() -> None:
        while waiting:
            number, run = waiting.pop()
            chance = random.Random(number)  # the same orders for every arm
            policy, order, now = _policy(run), list(listed), ""
            for turn in _asked_at(run):
                if arm != "stock_once" or not now:
                    now = _now()
                    chance.shuffle(order)
                asked = {"stream_options": {"include_usage": True}, "tool_choice": "none"}
                asked |= write(policy, run[1:turn], now, list(order))
                first_ms.append(await first_content_ms(client, "One moment, please.", more=asked))

    await asyncio.gather(*(work() for _ in range(_CONCURRENCY)))


async def _replay_all(runs: Sequence[Messages], started: Sequence[Emulator]) -> dict[str, list[float]]:
    """Replay the runs with each arm, in batches that take turns; return milliseconds to the first content."""
    stock, once, connection, prompt = (emulator.base_url for emulator in started)
    made = [client_of("stock", "async", stock), client_of("stock", "async", once), ours("async", connection)]
    taken: dict[str, list[float]] = {arm: [] for arm in _ARMS}
    listed = _airline_tools()
    async with AsyncExitStack() as stack:
        clients = dict(zip(_ARMS, [*made, ours("async", prompt, PromptCache())], strict=True))
        for client in clients.values():
            await stack.enter_async_context(client)
            warm = (client.chat.completions.create(model=MODEL, messages=MESSAGES) for _ in range(_CONCURRENCY))
            await asyncio.gather(*warm)
        for emulator in started:
            emulator.clear()
        numbered = list(enumerate(runs))
        for first in range(0, len(numbered), _BATCH):
            for arm in _ARMS if first // _BATCH % 2 else reversed(_ARMS):
                await _replay(arm, clients[arm], numbered[first : first + _BATCH], listed, taken[arm])
    return taken


def _achievable(runs: Sequence[Messages]) -> float:
    """Return the share of all characters that begin a call alike an earlier one, laid out as well as can be."""
    fixed = len(json.dumps(_airline_tools(), separators=(",", ":")))
    known: set[str] = set()
    whole = reused = 0
    now = len("The current time is 2026-11-22 10:04:33 UTC.")
    for run in runs:
        texts = [_policy(run), *map(_text, run[1:])]
        for turn in _asked_at(run):
            beginning, shared, size = "", 0, fixed
            for text in texts[:turn]:
                beginning += "\0" + text
                size += len(text)
                if beginning in known:
                    shared = size
                known.add(beginning)
            whole += size + now
            reused += shared
    return reused / whole


def _text(message: dict[str, Any]) -> str:
    if message.keys() == {"role", "content"} and isinstance(message["content"], str):
        return str(message["content"])
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False)


def prompt_cache_agents(quick: bool) -> Report:
    """Compare ways to lay out an agent's prompt: share of cached tokens, time to first token.

    Runs of an airline's agent with 14 tools, eight at a time. The application writes the time at the top of its system
    prompt and gathers its tools in another order for every call. `stock`: openai's client with that prompt; `prompt`:
    `Prompt(stable=..., session=..., volatile=...)` with `PromptCache()` and sorted tools; `connection`: fastlane with
    the prompt as written; `stock_once`: an application that reads the clock and gathers its tools once for a run. Each
    has a provider of its own, which takes 120 ms and 20 us for each uncached token. Achievable: characters of the
    longest beginning that an earlier call had, of all. Inside: from the call to the first content. Outside: opening
    connections.
    """
    runs, source = _airline_runs(8 if quick else 120)
    with providers(len(_ARMS), model=preset("bench")) as started:
        taken = asyncio.run(_replay_all(runs, started))
        logs = dict(zip(_ARMS, (emulator.log() for emulator in started), strict=True))
    p50 = {arm: middle(values) for arm, values in taken.items()}
    figures: dict[str, Figure] = {}
    for arm in _ARMS:
        figures |= {f"{arm}_cached_share": _cached_share(logs[arm]), f"{arm}_ttft_p50_ms": p50[arm]}
    policy, *history = conversation(100)
    listed, prompts = tools(), logs["prompt"]
    (writing,) = cpu_pairs([lambda: _laid_out(policy["content"], history, _now(), listed)], 50)
    achievable = _achievable(runs)
    return Report(
        figures={
            **figures,
            "achievable_share": achievable,
            "cached_of_achievable_ratio": _cached_share(prompts) / achievable,
            "ttft_p50_ratio": p50["stock"] / p50["prompt"],
            "ttft_p50_by_the_prompt_alone_ratio": p50["connection"] / p50["prompt"],
            "ttft_p50_to_once_ratio": p50["stock_once"] / p50["prompt"],
            "runs": len(runs),
            "calls": len(prompts),
            "mean_prompt_tokens": sum(one.prompt_tokens for one in prompts) / len(prompts),
            "prompt_of_100_messages_cpu_us": middle(writing) / 1e3,
        },
        reach={"cached_of_achievable_ratio": ">= 0.9", "ttft_p50_ratio": ">= 1.5"},
        conditions={"runs": source},
    )


# A hundred turns

_ASKED_TIMES = 100


def _coding_run(messages: int) -> Messages:
    """Build a run whose tools return ten times as much as an airline's."""
    built = conversation(messages)
    return [{**one, "content": one["content"] * 10} if one["role"] == "tool" else one for one in built]


def _grown(runs: Sequence[Messages], first: int) -> list[Messages]:
    """Put runs one behind the other, with ids of their own; return the prompts of 100 turns."""
    made: Messages = []
    prompts: list[Messages] = []
    for number in itertools.count(first):
        run = runs[number % len(runs)]
        for message in run if not made else run[1:]:
            if message["role"] == "assistant":
                prompts.append(list(made))
                if len(prompts) == _ASKED_TIMES:
                    return prompts
            made.append(_renamed(message, f"{number}_"))
    raise AssertionError


def _renamed(message: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    renamed = dict(message)
    if "tool_call_id" in renamed:
        renamed["tool_call_id"] = prefix + renamed["tool_call_id"]
    if renamed.get("tool_calls"):
        renamed["tool_calls"] = [{**call, "id": prefix + call["id"]} for call in renamed["tool_calls"]]
    return renamed


def _truncated(prompt: Messages, tokens: int) -> Messages:
    """Return instructions, and as many of the last messages as fit: what applications do, with an eye for pairs."""
    count = counter(MODEL).message
    left = tokens - count(prompt[0])
    start = len(prompt)
    while start > 1 and count(prompt[start - 1]) <= left:
        start -= 1
        left -= count(prompt[start])
    while start < len(prompt) - 1 and prompt[start]["role"] == "tool":
        start += 1
    return [prompt[0], *prompt[start:]]


class _Last(NamedTuple):
    ttft_ms: float
    cached_tokens: int
    prompt_tokens: int
    last_prompt_tokens: int


def _send_turns(emulator: Emulator, plays: list[Any], prompts: Sequence[Any]) -> _Last:
    """Send every prompt; only the last one takes time at the provider."""
    emulator.forget_prompts()
    cached = whole = 0
    record: fastlane.CallRecord | None = None
    with fastlane.OpenAI(base_url=emulator.base_url, **OPTIONS, only_plays=plays) as client:
        for prompt in prompts:
            headers = wishes(output_tokens=1, **({} if prompt is prompts[-1] else {"prefill_ms": 0}))
            options: Any = {"stream_options": {"include_usage": True}, "extra_headers": headers}
            for _ in client.chat.completions.create(model=MODEL, messages=prompt, stream=True, **options):
                pass
            record = client.last_call
            assert record is not None
            cached += record.usage.cached_tokens or 0
            whole += record.usage.input_tokens or 0
    assert record is not None
    return _Last(1e3 * (record.time_to_first_token_s or 0), cached, whole, record.usage.input_tokens or 0)


def _trim(emulator: Emulator, prompts: list[Messages]) -> dict[str, _Last]:
    connection, play = fastlane.Connection(), ContextTrimming()
    new = len(prompts[-1]) - len(prompts[-2])
    behind = _truncated(prompts[-1], play.low_water)
    arms: dict[str, tuple[list[Any], list[Messages]]] = {
        "unbounded": ([connection], prompts),
        "truncating": ([connection], [_truncated(prompt, play.low_water) for prompt in prompts]),
        "ours": ([connection, play], prompts),
        "low_water": ([connection], [behind[:-new], behind]),
        # The play still knows the conversation; the provider has forgotten it.
        "unbounded_cold": ([connection], prompts[-1:]),
        "ours_cold": ([connection, play], prompts[-1:]),
        "low_water_cold": ([connection], [behind]),
    }
    return {arm: _send_turns(emulator, plays, sent) for arm, (plays, sent) in arms.items()}


def context_trimming(quick: bool) -> Report:
    """Compare ways to send a coding agent's history of 100 turns: first token, cached tokens.

    Histories are unbounded, cut every turn to the low-water mark, or left to `ContextTrimming()`. Only the last turn
    takes time at the provider. It is compared with the same turn behind a cached history of the low-water mark's size,
    and once more with nothing cached (cold). Inside: from the call to its first token, planning too. Outside: opening
    connections.
    """
    recorded = _recorded("coding")
    runs = recorded or [_coding_run(40 + number) for number in range(9)]
    conversations = [_grown(runs, first) for first in range(2 if quick else len(runs))]
    with providers(model=preset("bench")) as (emulator,):
        done = [_trim(emulator, prompts) for prompts in conversations]
    arms = {name: [one[name] for one in done] for name in done[0]}

    def ratio(one: str, other: str) -> list[float]:
        return [first.ttft_ms / second.ttft_ms for first, second in zip(arms[one], arms[other], strict=True)]

    named = ("unbounded", "truncating", "ours")
    shares = {
        name: sum(last.cached_tokens for last in arms[name]) / sum(last.prompt_tokens for last in arms[name])
        for name in named
    }
    return Report(
        figures={
            **{f"{name}_last_ttft_ms": middle([last.ttft_ms for last in lasts]) for name, lasts in arms.items()},
            **{f"{name}_last_prompt_tokens": arms[name][0].last_prompt_tokens for name in ("unbounded", "ours")},
            **{f"{name}_cached_share": share for name, share in shares.items()},
            "last_ttft_to_low_water_ratio": middle(ratio("ours", "low_water")),
            "worst_last_ttft_to_low_water_ratio": max(ratio("ours", "low_water")),
            "last_ttft_to_truncating_ratio": middle(ratio("ours", "truncating")),
            "cold_last_ttft_to_low_water_ratio": middle(ratio("ours_cold", "low_water_cold")),
            "cold_unbounded_to_ours_ttft_ratio": middle(ratio("unbounded_cold", "ours_cold")),
            "cached_share_to_unbounded_ratio": shares["ours"] / shares["unbounded"],
        },
        reach={"last_ttft_to_low_water_ratio": "<= 1.2", "cached_share_to_unbounded_ratio": ">= 0.85"},
        conditions={
            "conversations": f"{len(conversations)} of {_ASKED_TIMES} turns, {'recorded' if recorded else 'built'}"
        },
    )


# What broke a prompt's beginning

_LIFETIME_S = 0.4
_ROUNDING = 16
_NEIGHBOURS = 2
_BESIDE = {"role": "system", "content": "Name this conversation in at most five words."}
# Not the key: on one machine the embedded provider keeps nothing apart by it, and says that it was read.
_PARAMETERS = (
    ("reasoning_effort", "low", "high"),
    ("verbosity", "low", "high"),
    ("service_tier", "default", "priority"),
)


def _outside(kind: str, rng: random.Random, body: Body) -> Mutation:
    """Change what is no segment: another model or parameter, or nothing at all."""
    if kind == "changed_model":
        # One without any earlier request: for any other the prompt may be in its cache.
        return Mutation(kind, body, {**body, "model": f"model-{rng.getrandbits(32):08x}"}, "model", None)
    if kind == "changed_parameter":
        name, one, other = rng.choice(_PARAMETERS)
        return Mutation(kind, {**body, name: one}, {**body, name: other}, name, None)
    return Mutation(kind, body, body, None, None)


class _Conversations(NamedTuple):
    client: fastlane.OpenAI
    emulator: Emulator

    def send(self, body: Body) -> None:
        self.client.chat.completions.create(**body, max_completion_tokens=1)

    def drift(self, mutation: Mutation, more: Messages) -> Drift | None:
        """Return what the client says of the second of the two calls."""
        before = mutation.before
        self.send(before)
        if mutation.kind in {"expired", "evicted"}:
            self.send(before)  # twice, so that it is known to have been kept
        else:
            self.send({"model": before["model"], "messages": [_BESIDE, before["messages"][1]]})
        if mutation.kind == "evicted":
            self.emulator.forget_prompts()
        elif mutation.kind == "expired":
            time.sleep(_LIFETIME_S + 0.1)
        self.send({**mutation.after, "messages": [*mutation.after["messages"], *more]})
        record = self.client.last_call
        assert record is not None
        assert record.prompt_cache is not None
        return record.prompt_cache.drift


def _is_placed(mutation: Mutation, drift: Drift | None) -> bool:
    if drift is None or drift.path != mutation.path:
        return False
    if mutation.character is None:
        return True
    return drift.character is not None and drift.character <= mutation.character < drift.character + _ROUNDING


def _judged(runs: Sequence[Messages], each: int) -> Iterator[tuple[str, str, bool]]:
    """Yield the kind of each mutation, the kind that was named, and whether its place was."""
    rng, listed = random.Random(17), _airline_tools()
    kinds = [*MUTATORS, "changed_model", "changed_parameter"]
    # What was emptied is truly gone, whatever is changed afterwards: the two that lose it have a provider of their own.
    for several, lifetime_s in ((kinds, 300.0), (["evicted"], 300.0), (["expired"], _LIFETIME_S)):
        plays = [fastlane.Connection(), PromptCache()]
        with (
            providers(model=replace(preset("instant"), cache_expiry_s=lifetime_s)) as (emulator,),
            registered(_facts(emulator.base_url, lifetime_s)),
            fastlane.OpenAI(base_url=emulator.base_url, **OPTIONS, only_plays=plays) as client,
        ):
            asked = _Conversations(client, emulator)
            for kind in several * each:
                run = rng.choice(runs)
                turns = rng.randrange(9, len(run) - 2)
                body = {"model": MODEL, "messages": copy.deepcopy(run[:turns]), "tools": copy.deepcopy(listed)}
                mutation = MUTATORS[kind](rng, body) if kind in MUTATORS else _outside(kind, rng, body)
                client.prompt_cache.clear()
                emulator.forget_prompts()
                for other in rng.sample(runs, _NEIGHBOURS):
                    if other is not run:
                        asked.send({**body, "messages": other[: rng.randrange(4, len(other))]})
                drift = asked.drift(mutation, run[turns : turns + 2])
                yield kind, "none" if drift is None else drift.kind, _is_placed(mutation, drift)


def drift(quick: bool) -> Report:
    """Check that the change that broke a prompt's beginning is named: its kind, the value, the place.

    Conversations go twice to the embedded provider: as they are, and with one more turn and one thing changed, in 14
    ways. Two others with the same tools go before, and a call that names the conversation goes between. A place is
    right if it has the value's path, and the character rounded down by less than 16. The provider's cache is really
    emptied (evicted) or older than its lifetime (expired). Inside: what records of real calls say. Outside: any time.
    """
    each = 6 if quick else 50
    recorded = [run for run in (*_recorded("airline"), *_recorded("coding")) if len(run) >= 12]
    found = list(_judged(recorded or [conversation(30 + number) for number in range(12)], each))
    figures: dict[str, Figure] = {
        "kinds_ratio": sum(kind == named for kind, named, _ in found) / len(found),
        "places_ratio": sum(placed for _, _, placed in found) / len(found),
        "kinds": len({kind for kind, _, _ in found}),
        "changes": len(found),
    }
    for kind in dict.fromkeys(kind for kind, _, _ in found):
        right = [named == kind for other, named, _ in found if other == kind]
        figures[f"{kind}_ratio"] = sum(right) / len(right)
    return Report(
        figures=figures,
        reach={"kinds_ratio": ">= 0.95", "places_ratio": "== 1"},
        conditions={"conversations": "recorded" if recorded else "built", "each": each},
    )


# What `PromptCache` costs

_PREPARED = "http://prepared.invalid/v1"
_LENGTH, _MOST_MESSAGES = 100, 140
_HISTORY_CALLS = 10


def _growing(whole: list[Any]) -> Iterator[list[Any]]:
    for number in itertools.count():
        opening = {"role": "user", "content": f"I am customer {number}."}
        turns = [whole[0], opening, *whole[1:]]
        yield from (turns[:length] for length in range(_LENGTH, _MOST_MESSAGES, 2))


def _changing(whole: list[Any]) -> Iterator[list[Any]]:
    for number in itertools.count():
        system = {**whole[0], "content": f"It is {number:06} seconds past noon. {whole[0]['content']}"}
        yield [system, *whole[1:_LENGTH]]


_HISTORIES: dict[str, Callable[[list[Any]], Iterator[list[Any]]]] = {
    "same": lambda whole: itertools.repeat(whole[:_LENGTH]),
    "growing": _growing,
    "parsed": lambda whole: (json.loads(json.dumps(history)) for history in _growing(whole)),
    "changing": _changing,
}


def prompt_cache_cost(quick: bool) -> Report:
    """Measure the CPU that `PromptCache()` adds to a call with 100 messages.

    A conversation of some 50 kB with 14 tools, to a provider that takes a cache key: the same objects in every call
    (`same`), two messages more in every call (`growing`), the same parsed anew from JSON (`parsed`), and with a clock
    at the top (`changing`). Inside: all CPU from the call to the typed answer. Outside: parsing, garbage collection.
    """
    pairs = 60 if quick else 400
    listed, whole = tools(), conversation(_MOST_MESSAGES)
    figures: dict[str, Figure] = {}
    # Without a limit per key a conversation stays with one, as it does where calls are not made in a loop.
    with registered(_facts(_PREPARED, 300.0, per_minute=1e9)):
        for name, histories in _HISTORIES.items():
            clients = [
                client_of("fastlane", "sync", _PREPARED, http_client=http_client, only_plays=plays)
                for plays in ([], [PromptCache()], [])
                for http_client in [httpx2.Client(transport=Prepared())]
            ]

            def ask(client: Any, block: Sequence[list[Any]]) -> None:
                for history in block:
                    client.chat.completions.create(model=MODEL, messages=history, tools=listed)

            def block(made: Iterator[list[Any]]) -> list[list[Any]]:
                return [next(made) for _ in range(_HISTORY_CALLS)]

            prepare = [partial(block, histories(whole)) for _ in clients]
            taken = cpu_pairs([partial(ask, client) for client in clients], pairs, prepare=prepare)
            for client in clients:
                client.close()
            without, having, again = ([one / 1e3 / _HISTORY_CALLS for one in arm] for arm in taken)
            figures |= {
                **added(f"{name}_added", having, without),
                f"{name}_nothing_added_us": middle(differences(again, without)),
                f"{name}_without_us": middle(without),
            }
    return Report(
        figures=figures,
        reach={f"{name}_added_us": "<= 60" for name in ("same", "growing", "parsed")},
        conditions={"pairs": pairs},
    )
