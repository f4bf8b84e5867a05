"""What plays cost a call: CPU that they add without a network.

The arms take turns, in reversed order every other round. A second arm without what is measured (`nothing`) shows how
large a difference the run would report where there is none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, repeat
from random import Random
from typing import Any

import httpx2

from benchmarks._client import client_of
from benchmarks._conversation import conversation, prose, tools
from benchmarks._paired import added, cpu_pairs, differences, middle
from benchmarks._prepared import Prepared
from benchmarks._provider import MODEL, fact
from benchmarks._report import Figure, Report
from fastlane import PromptCache
from fastlane.plays.bounded_output.scanner import JsonScanner
from fastlane.providers import ProviderFacts, registered
from fastlane.providers.facts import Cache

_ORIGIN = "http://prepared.invalid"


# PromptCache

_LENGTH, _MOST_MESSAGES = 100, 140
_HISTORY_CALLS = 10


def _growing(whole: list[Any]) -> Iterator[list[Any]]:
    for number in count():
        opening = {"role": "user", "content": f"I am customer {number}."}
        turns = [whole[0], opening, *whole[1:]]
        yield from (turns[:length] for length in range(_LENGTH, _MOST_MESSAGES, 2))


def _changing(whole: list[Any]) -> Iterator[list[Any]]:
    for number in count():
        system = {**whole[0], "content": f"It is {number:06} seconds past noon. {whole[0]['content']}"}
        yield [system, *whole[1:_LENGTH]]


_HISTORIES: dict[str, Callable[[list[Any]], Iterator[list[Any]]]] = {
    "same": lambda whole: repeat(whole[:_LENGTH]),
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
    facts = ProviderFacts(
        slug="prepared",
        origins=(_ORIGIN,),
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
    figures: dict[str, Figure] = {}
    with registered(facts):
        for name, histories in _HISTORIES.items():
            clients = [
                client_of("fastlane", "sync", f"{_ORIGIN}/v1", http_client=http_client, only_plays=plays)
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


# BoundedOutput

_ANSWERS = 40


def _ticket(random: Random) -> Any:
    steps = [{"team": "shop", "action": prose(random, 70)} for _ in range(random.randint(1, 4))]
    return {
        "category": random.choice(("billing", "bug", "feature_request", "account_access", "shipping", "other")),
        "confidence": round(random.random(), 2),
        "priority": random.randint(1, 5),
        "summary": prose(random, 180),
        "tags": prose(random, random.randint(1, 40)).split(),
        "steps": steps,
        "assignee": random.choice((None, "Maria Schmidt")),
        "refund": random.random() < 0.5,
    }


def _nested(random: Random, depth: int = 0) -> Any:
    children = [_nested(random, depth + 1) for _ in range(random.randint(1, 3))] if depth < 4 else []
    return {"name": prose(random, 6), "weight": random.randint(0, 100), "children": children}


def _watch(answers: Sequence[Sequence[str]]) -> None:
    for answer in answers:
        feed = JsonScanner().feed
        for piece in answer:
            state = feed(piece)
        assert state == "complete"


def _pieces(text: str, random: Random) -> Iterator[str]:
    while text:
        size = random.randint(3, 5)
        yield text[:size]
        text = text[size:]


def bounded_cost(quick: bool) -> Report:
    """Measure the CPU of `BoundedOutput`'s scanner for each streamed piece of a structured answer.

    Answers are cut into pieces of 3 to 5 characters, the size of a usual token. Inside: all CPU time from the first
    piece to the last, making the scanner included. Outside: receiving events.
    """
    rounds, random = 10 if quick else 40, Random(7)
    tickets = [_ticket(random) for _ in range(_ANSWERS)]
    long_texts = [{"text": prose(random, 3_600)} for _ in range(_ANSWERS)]
    answers: Mapping[str, list[str]] = {
        "ticket": [json.dumps(ticket, separators=(",", ":")) for ticket in tickets],
        "ticket_indented": [json.dumps(ticket, indent=2) for ticket in tickets],
        "long_text": [json.dumps(text) for text in long_texts],
        "nested": [json.dumps(_nested(random)) for _ in range(_ANSWERS)],
        "numbers": [json.dumps(random.choices(range(1_000), k=200), separators=(",", ":")) for _ in range(_ANSWERS)],
    }
    figures: dict[str, Figure] = {}
    sizes: list[int] = []
    for name, texts in answers.items():
        cuts = [list(_pieces(text, random)) for text in texts]
        (taken,) = cpu_pairs([partial(_watch, cuts)], rounds, warm_ups=1)
        figures[f"{name}_us"] = middle(taken) / 1e3 / sum(map(len, cuts))
        sizes += [len(piece) for pieces in cuts for piece in pieces]
    return Report(
        figures=figures,
        reach={f"{name}_us": "<= 3" for name in answers},
        conditions={"rounds": rounds, "mean_piece_characters": round(sum(sizes) / len(sizes), 2)},
    )
