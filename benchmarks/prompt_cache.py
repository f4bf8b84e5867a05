"""What `PromptCache()` is worth as it is by default, beside `Connection()` alone: cached tokens, time to first token.

60 agents at once, all with one system prompt and one set of tools, each with a call about every 6 s: many times what
one machine of the provider takes of one prefix. Emulated fleets, one for each side, where no machine takes more than
15 calls a minute of a key and prefix, which is OpenAI's rule, and others go to the first additional machine that
takes one. Facts that say that the provider takes `prompt_cache_key`, and its limit, are registered. Both sides send
the same calls at the same moments, over TLS and HTTP/2, streamed, each to its own fleet; which goes first takes
turns. Inside: from the application's call to the first content that it reads, and so everything that the play takes;
tokens as the provider counted them. Outside: opening the connections, and the first quarter of the calls, which find
the fleets cold. `achievable` is what one machine without a limit would have read of the very same calls.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import openai

import fastlane
from benchmarks._conversation import conversation, tools
from benchmarks._paired import paired
from benchmarks._provider import MODEL, fact, providers
from benchmarks._report import Figure, Report
from benchmarks._transport import first_content_ms, ours, percentile
from fastlane.emulator import Emulator, _tokens, preset
from fastlane.emulator._prefix_cache import PrefixCache
from fastlane.emulator._prompt import read_chat
from fastlane.providers import ProviderFacts, registered
from fastlane.providers.facts import Cache

_PER_MINUTE = 15
_MACHINES = 256
_GAP_S = 6.0
_TURNS = 8
_AGENTS = 60
_TOOL_OUTPUT_CHARACTERS = 4_000
# The fleets as they begin tell of nothing but cold caches.
_WARM_UP_SHARE = 0.25

_TOOLS = tools()


class _Call(NamedTuple):
    """One call as all sides sent it, and for each the milliseconds to its first content."""

    body: dict[str, Any]
    taken_ms: list[float]


Calls = list[_Call]


def _facts(emulator: Emulator) -> ProviderFacts:
    cache = Cache(
        automatic=fact(True),
        minimum_tokens=fact(1_024),
        block_tokens=fact(128),
        lifetime_s=fact(300.0),
        key_field=fact("prompt_cache_key"),
        requests_per_key_per_minute=fact(float(_PER_MINUTE)),
    )
    return ProviderFacts(
        slug="emulated-fleet",
        origins=(emulator.base_url.removesuffix("/v1"),),
        cache=cache,
        parameters={"prompt_cache_key": fact(True)},
    )


def _said(number: int) -> list[Any]:
    """What is said in one conversation, in turns: a question, the reading of a file, and what comes of it."""
    rng = random.Random(number)

    def words(characters: int) -> str:
        return " ".join(rng.randbytes(3).hex() for _ in range(characters // 7 + 1))[:characters]

    said = []
    for turn in range(_TURNS):
        call = {"id": f"call_{turn}", "type": "function", "function": {"name": "look_up_0", "arguments": "{}"}}
        said.append(
            [
                {"role": "user", "content": words(100)},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": f"call_{turn}", "content": words(_TOOL_OUTPUT_CHARACTERS)},
            ]
        )
    return said


async def _first_content(client: openai.AsyncOpenAI, index: int, call: _Call, draw: int) -> None:
    call.taken_ms[index] = await first_content_ms(client, None, more=call.body, output_tokens=8, draw=draw)


async def _conversation(clients: Sequence[openai.AsyncOpenAI], number: int, end_s: float, calls: Calls) -> None:
    """One conversation, every call of it sent by all clients at once."""
    rng = random.Random(-number)
    now_s = asyncio.get_running_loop().time
    messages = [*conversation(1)]
    for turn, said in enumerate(_said(number)):
        if now_s() > end_s:
            return
        messages = [*messages, *said]
        body = {"model": MODEL, "messages": messages, "tools": _TOOLS}
        call = _Call(body, [0.0] * len(clients))
        calls.append(call)
        order = range(len(clients)) if len(calls) % 2 else reversed(range(len(clients)))
        await asyncio.gather(*(_first_content(clients[index], index, call, number * _TURNS + turn) for index in order))
        messages = [*messages, {"role": "assistant", "content": "Done."}]
        await asyncio.sleep(rng.uniform(0.5, 1.5) * _GAP_S)


async def _agent(clients: Sequence[openai.AsyncOpenAI], number: int, end_s: float, calls: Calls) -> None:
    """One conversation after the other."""
    await asyncio.sleep(number * _GAP_S / _AGENTS)
    for times in itertools.count():
        await _conversation(clients, times * _AGENTS + number, end_s, calls)
        if asyncio.get_running_loop().time() > end_s:
            return


async def _run(emulators: Sequence[Emulator], seconds: float) -> Calls:
    """So many agents at once, for so long."""
    calls: Calls = []
    alone, keyed = (emulator.base_url for emulator in emulators)
    clients = [ours("async", alone), ours("async", keyed, fastlane.PromptCache())]
    for client in clients:
        await client.models.list()
    end_s = asyncio.get_running_loop().time() + seconds
    await asyncio.gather(*(_agent(clients, number, end_s, calls) for number in range(_AGENTS)))
    for client in clients:
        await client.close()
    return calls


def _achievable_share(bodies: Sequence[dict[str, Any]], skipped: int) -> float:
    """The cached share of these calls, one after the other, on one machine that takes all of them."""
    cache = PrefixCache(block_tokens=128, minimum_tokens=1_024, expiry_ns=1 << 62, machines=1)
    read = tokens = 0
    for number, body in enumerate(bodies):
        text = read_chat(body).text
        digests = _tokens.prefix_digests(text, block_tokens=128)
        if number >= skipped:
            read += cache.cached_tokens(0, MODEL, digests, 0)
            tokens += _tokens.count(text)
        cache.remember(0, MODEL, digests, 0)
    return read / tokens


def measure(quick: bool) -> Report:
    """Run both sides at once, against a fleet each."""
    seconds = 30.0 if quick else 180.0
    model = replace(preset("bench"), cache_machines=_MACHINES, cache_requests_per_key_per_minute=_PER_MINUTE)
    with providers(2, model=model) as emulators, registered(_facts(emulators[1])):
        calls = asyncio.run(_run(emulators, seconds))
        logs = [[each for each in emulator.log() if each.prompt_tokens] for emulator in emulators]
    skipped = round(len(calls) * _WARM_UP_SHARE)
    shares = [
        sum(each.cached_tokens for each in log[skipped:]) / sum(each.prompt_tokens for each in log[skipped:])
        for log in logs
    ]
    alone, keyed = ([taken[index] for _, taken in calls[skipped:]] for index in (0, 1))
    achievable = _achievable_share([body for body, _ in calls], skipped)
    figures: dict[str, Figure] = {
        "alone_cached_share": shares[0],
        "prompt_cache_cached_share": shares[1],
        "achievable_cached_share": achievable,
        "cached_share_ratio": shares[1] / shares[0],
        "prompt_cache_to_achievable_ratio": shares[1] / achievable,
        "alone_ttft_p50_ms": percentile(alone, 0.5),
        "prompt_cache_ttft_p50_ms": percentile(keyed, 0.5),
        "ttft_p50_ratio": percentile(alone, 0.5) / percentile(keyed, 0.5),
        **paired("paired_ttft", alone, keyed),
        "calls_per_side": len(calls),
    }
    return Report(
        figures=figures,
        reach={"cached_share_ratio": ">= 1", "paired_ttft_low_ratio": ">= 1"},
        conditions={"calls_per_minute": round(60 * len(calls) / seconds)},
    )
