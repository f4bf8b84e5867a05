"""What keeping track of the prompt cache costs: CPU per call that `PromptCache()` adds, for a history of 100 messages.

A client with the play against one without it, both over the same in-memory transport, to a provider that is known to
take a cache key, so that the key is derived too. An agent's conversation of 100 messages with its 14 tools, some 50 kB:
the same objects in every call (`same`), two messages more in every call (`growing`: from 100 to 140
messages, then another customer's conversation), and growing with every message parsed anew from JSON, as where a server
keeps no state (`parsed`): no string has its hash yet, and each is read once. `changing` costs the most: a clock at the
top of the system prompt, so that each call is compared with the one before.

Inside: all CPU time of the process from the application's call to the typed answer. Outside: parsing the history, the
network, and garbage collection. What two clients without the play differ by (`nothing_added_us`) is noise.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from datetime import date
from itertools import count
from typing import Any

import httpx2

import fastlane
from benchmarks._conversation import conversation, tools
from benchmarks._paired import Median, differences, median
from benchmarks._prepared import ANSWER, MODEL, Prepared
from benchmarks._report import Figure, Reach, Report
from fastlane._clock import cpu_ns
from fastlane.providers import Fact, ProviderFacts, registered
from fastlane.providers.facts import Cache

_MESSAGES = 100
_MOST_MESSAGES = 140
_CALLS = 10
"""Of one client, before the other's turn."""
_WARM_UPS = 3
_TOOLS = tools()
_HISTORY = conversation(_MOST_MESSAGES)
_Histories = Callable[[], list[Any]]
_Case = Callable[[], _Histories]


def _facts() -> ProviderFacts:
    def fact(value: Any) -> Fact[Any]:
        return Fact(value=value, source="https://localhost/prepared", checked=date(2026, 11, 22), evidence="measured")

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
    history = _HISTORY[:_MESSAGES]
    return lambda: history


def _turns() -> Iterator[list[Any]]:
    for conversation_number in count():
        opening = {"role": "user", "content": f"I am customer {conversation_number}."}
        whole = [_HISTORY[0], opening, *_HISTORY[1:]]
        yield from (whole[:length] for length in range(_MESSAGES, _MOST_MESSAGES, 2))


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
        return [system, *_HISTORY[1:_MESSAGES]]

    return histories


_CASES: dict[str, _Case] = {
    "same": _same, "growing": _growing, "parsed": _parsed, "changing": _changing,
}  # fmt: skip


def _clients() -> list[fastlane.OpenAI]:
    """One without the play, one with it, and another without it."""
    transport = Prepared("application/json", (ANSWER,))
    settings: dict[str, Any] = {"base_url": "http://prepared.invalid/v1", "api_key": "none", "max_retries": 0}
    return [
        fastlane.OpenAI(**settings, only_plays=plays, http_client=httpx2.Client(transport=transport))
        for plays in ([], [fastlane.PromptCache()], [])
    ]


def _taken(case: _Case, pairs: int) -> list[list[float]]:
    """Microseconds of CPU per call of each client, round by round, in reversed order every other round."""
    clients = _clients()
    histories = [case() for _ in clients]
    taken: list[list[float]] = [[] for _ in clients]
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for round_number in range(-_WARM_UPS, pairs):
            indexes = range(len(clients))
            for index in reversed(indexes) if round_number % 2 else indexes:
                create = clients[index].chat.completions.create
                block = [histories[index]() for _ in range(_CALLS)]
                started = cpu_ns()
                for history in block:
                    create(model=MODEL, messages=history, tools=_TOOLS)
                if round_number >= 0:
                    taken[index].append((cpu_ns() - started) / 1e3 / _CALLS)
            if round_number % 10 == 9:
                gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()
        for client in clients:
            client.close()
    return taken


def measure(quick: bool) -> Report:
    """Measure each case with clients of its own."""
    pairs = 60 if quick else 400
    figures: dict[str, Figure] = {}
    with registered(_facts()):
        for name, case in _CASES.items():
            without, having, again = _taken(case, pairs)
            added: Median = median(differences(having, without))
            figures |= {
                f"{name}_added_us": added.value,
                f"{name}_added_low_us": added.low,
                f"{name}_added_high_us": added.high,
                f"{name}_nothing_added_us": median(differences(again, without)).value,
                f"{name}_without_us": median(without).value,
            }
    return Report(
        figures=figures,
        reach=tuple(Reach(figure=f"{name}_added_us", op="<=", target=150) for name in ("same", "growing", "parsed")),
        conditions={
            "pairs": pairs,
            "messages": _MESSAGES,
            "kilobytes": round(len(json.dumps([_HISTORY[:_MESSAGES], _TOOLS])) / 1e3),
            "tools": len(_TOOLS),
            "garbage_collection": "between rounds",
        },
    )
