"""What plays and the shell cost a call: CPU that they add without a network.

The arms take turns, in reversed order every other round. A second arm without what is measured (`again`, `nothing`,
`stock_to_stock`) shows how large a difference the run would report where there is none.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, repeat
from random import Random
from typing import Any, TypeVar

import httpx2

from benchmarks._client import MODES, client_of
from benchmarks._conversation import conversation, tools
from benchmarks._paired import added, cpu_pairs, differences, middle
from benchmarks._prepared import Prepared, stream_of
from benchmarks._provider import MODEL, fact
from benchmarks._report import Figure, Report
from fastlane import PromptCache, Routing
from fastlane._clock import thread_cpu_ns
from fastlane.engine.call import Call
from fastlane.knowledge.sightings import Sighting
from fastlane.plays.bounded_output.scanner import JsonScanner
from fastlane.plays.routing.catalog.models import Catalog, CatalogModel
from fastlane.plays.routing.router import RouteQuery, Router
from fastlane.providers import ProviderFacts, facts_named, registered
from fastlane.providers.facts import Cache

_ORIGIN = "http://prepared.invalid"
_T = TypeVar("_T")


def _clients(mode: str, arms: Sequence[dict[str, Any] | None], transport: Prepared) -> list[Any]:
    """Make a client for each arm: ours with these options, None for the stock one."""
    http: Any = httpx2.Client if mode == "sync" else httpx2.AsyncClient
    return [
        client_of(
            "stock" if one is None else "fastlane",
            mode,
            f"{_ORIGIN}/v1",
            http_client=http(transport=transport),
            **(one or {}),
        )
        for one in arms
    ]


# The shell

_QUESTION: list[Any] = [
    {"role": "system", "content": "Answer in one word."},
    {"role": "user", "content": "Is water wet?"},
]
_CHUNKS = 200


def _taken_us(mode: str, chunks: int | None, calls: int, pairs: int) -> dict[str, list[float]]:
    """Return CPU microseconds per call of each arm, round by round, for answers of so many chunks or not streamed."""
    arms: dict[str, dict[str, Any] | None] = {"stock": None, "fastlane": {}, "again": None}
    clients = _clients(mode, list(arms.values()), Prepared() if chunks is None else Prepared(stream_of(chunks)))

    def sync_arm(client: Any) -> None:
        for _ in range(calls):
            answer = client.chat.completions.create(model=MODEL, messages=_QUESTION, stream=chunks is not None)
            if chunks is not None:
                for _chunk in answer:
                    pass

    async def async_arm(client: Any) -> None:
        for _ in range(calls):
            answer = await client.chat.completions.create(model=MODEL, messages=_QUESTION, stream=chunks is not None)
            if chunks is not None:
                async for _chunk in answer:
                    pass

    with asyncio.Runner() as runner:

        def run_async(client: Any) -> None:
            runner.get_loop().run_until_complete(async_arm(client))

        arm = sync_arm if mode == "sync" else run_async
        taken = cpu_pairs([partial(arm, client) for client in clients], pairs)
        for client in clients:
            client.close() if mode == "sync" else runner.run(client.close())
    return {name: [one / 1e3 / calls for one in arm] for name, arm in zip(arms, taken, strict=True)}


def _added(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return middle(differences(ours, theirs))


def shell_cost(quick: bool) -> Report:
    """What the shell around the stock client costs: CPU per call and chunk that fastlane adds with default plays.

    Inside: everything from the application's call to the typed answer, or to the last typed chunk read. Outside: the
    network, TLS, HTTP framing and garbage collection. Below zero, the fast path saves more than the shell takes.
    """
    pairs = 100 if quick else 400
    figures: dict[str, Figure] = {}
    for mode in MODES:
        call = _taken_us(mode, None, 20, pairs)
        empty = _taken_us(mode, 0, 20, pairs)
        long = _taken_us(mode, _CHUNKS, 2, pairs)
        chunk_us = {
            arm: (_added(long[arm], long["stock"]) - _added(empty[arm], empty["stock"])) / _CHUNKS
            for arm in ("fastlane", "again")
        }
        stock_chunk_us = (middle(long["stock"]) - middle(empty["stock"])) / _CHUNKS
        figures |= {
            **added(f"{mode}_call_added", call["fastlane"], call["stock"]),
            f"{mode}_call_stock_us": middle(call["stock"]),
            f"{mode}_call_added_ratio": _added(call["fastlane"], call["stock"]) / middle(call["stock"]),
            f"{mode}_call_stock_to_stock_us": _added(call["again"], call["stock"]),
            f"{mode}_stream_added_us": _added(empty["fastlane"], empty["stock"]),
            f"{mode}_stream_stock_us": middle(empty["stock"]),
            f"{mode}_chunk_added_us": chunk_us["fastlane"],
            f"{mode}_chunk_stock_us": stock_chunk_us,
            f"{mode}_chunk_added_ratio": chunk_us["fastlane"] / stock_chunk_us,
            f"{mode}_chunk_stock_to_stock_us": chunk_us["again"],
        }
    return Report(
        figures=figures,
        reach={
            **{f"{mode}_call_added_us": "<= 30" for mode in MODES},
            **{f"{mode}_chunk_added_us": "<= 3" for mode in MODES},
        },
        conditions={"pairs": pairs},
    )


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
    """What keeping track of the prompt cache costs: CPU that `PromptCache()` adds to a call with 100 messages.

    An agent's conversation of some 50 kB with 14 tools, to a provider that takes a cache key: the same objects in every
    call (`same`), two messages more in every call (`growing`), growing with every message parsed anew from JSON, so
    that no string has its hash yet (`parsed`), and with a clock at the top, so that each call is compared with the one
    before (`changing`). Inside: all CPU time from the application's call to the typed answer. Outside: parsing the
    history, and garbage collection.
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
            arms: list[dict[str, Any] | None] = [{"only_plays": plays} for plays in ([], [PromptCache()], [])]
            clients = _clients("sync", arms, Prepared())

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
                f"{name}_nothing_added_us": _added(again, without),
                f"{name}_without_us": middle(without),
            }
    return Report(
        figures=figures,
        reach={f"{name}_added_us": "<= 60" for name in ("same", "growing", "parsed")},
        conditions={"pairs": pairs},
    )


# BoundedOutput

_ANSWERS = 40
_SENTENCE = (
    "the customer was charged twice for one order and asks that the second payment is sent back as soon as possible, "
    "which the shop's own page says takes three days; there was no answer to an earlier message"
)
_WORDS = _SENTENCE.split()


def _text(random: Random, words: int) -> str:
    return " ".join(random.choices(_WORDS, k=words))


def _ticket(random: Random) -> Any:
    steps = [{"team": random.choice(_WORDS), "action": _text(random, 10)[:120]} for _ in range(random.randint(1, 4))]
    return {
        "category": random.choice(("billing", "bug", "feature_request", "account_access", "shipping", "other")),
        "confidence": round(random.random(), 2),
        "priority": random.randint(1, 5),
        "summary": _text(random, 30)[:400],
        "tags": random.choices(_WORDS, k=random.randint(0, 5)),
        "steps": steps,
        "assignee": random.choice((None, "Maria Schmidt")),
        "refund": random.random() < 0.5,
    }


def _nested(random: Random, depth: int = 0) -> Any:
    children = [_nested(random, depth + 1) for _ in range(random.randint(1, 3))] if depth < 4 else []
    return {"name": random.choice(_WORDS), "weight": random.randint(0, 100), "children": children}


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
    """What watching a structured answer costs: CPU of `BoundedOutput`'s scanner for each piece that is streamed.

    A support ticket (`ticket`, `ticket_indented`), one long text (`long_text`), a tree of small objects (`nested`) and
    a list of integers (`numbers`) are cut into pieces of 3 to 5 characters, the size of a usual token. Inside: all CPU
    time from the first piece to the last, making the scanner included. Outside: receiving events.
    """
    rounds, random = 10 if quick else 40, Random(7)
    tickets = [_ticket(random) for _ in range(_ANSWERS)]
    long_texts = [{"text": ".\n\n".join(_text(random, 60) for _ in range(10))} for _ in range(_ANSWERS)]
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


# Routing

_MODELS = 20
_BATCH = 100
_S = 1_000_000_000


def _catalog() -> Catalog:
    random = Random(0)
    models = [
        CatalogModel(
            name=f"model-{index}",
            base_url=f"https://host-{index}.example.com/v1",
            quality=40.0 + index,
            context_tokens=200_000,
            first_token_s=((1_000, random.uniform(0.2, 2.0)), (10_000, random.uniform(2.0, 4.0))),
            tokens_per_s=random.uniform(50, 500),
        )
        for index in range(_MODELS)
    ]
    return Catalog(models=tuple(models))


def _router() -> Router:
    """Return a router that has noted 30 answers of each model."""
    random, router = Random(0), Router(_catalog())
    for number in range(30 * _MODELS):
        index = number % _MODELS
        sighting = Sighting(
            model=f"model-{index}",
            origin=f"https://host-{index}.example.com:443",
            task=f"task-{number % 3}",
            uncached_tokens=random.uniform(100, 20_000),
            first_token_s=random.lognormvariate(0, 0.4),
            output_tokens=300,
            decode_s=random.lognormvariate(1, 0.3),
        )
        router.note(sighting, number * _S)
    return router


def _questions(cached: Mapping[str, float]) -> list[RouteQuery]:
    random = Random(1)
    return [
        RouteQuery(
            task=f"task-{number % 3}",
            min_quality=10.0,
            input_tokens=random.uniform(600, 50_000),
            cached_tokens=cached,
        )
        for number in range(_BATCH)
    ]


def _batches_us(batches: int, prepare: Callable[[int], Sequence[_T]], decide: Callable[[_T, int], object]) -> float:
    """Return the median CPU microseconds of this thread for each of a batch, one a second of simulated time."""
    taken = []
    for batch in range(batches):
        first = 30 * _MODELS + batch * _BATCH
        given = prepare(first)
        started = thread_cpu_ns()
        for number, one in enumerate(given, start=first):
            decide(one, number * _S)
        taken.append((thread_cpu_ns() - started) / _BATCH / 1e3)
    return middle(taken)


def _decide_us(batches: int, router: Router, questions: Sequence[RouteQuery]) -> float:
    return _batches_us(batches, lambda _first: questions, router.decide)


def _plan_us(batches: int) -> float:
    play, facts = Routing(_catalog()), facts_named("openai")
    asked = [{"role": "user" if at % 2 else "assistant", "content": f"{at} " + "as they say " * 38} for at in range(8)]
    body = {"model": "fastlane/auto", "messages": asked, "stream": True}

    def calls(first: int) -> list[Call]:
        return [
            Call(
                call_id=str(number),
                endpoint="/chat/completions",
                origin="https://own.example.com:443",
                body=body,
                stream=True,
                facts=facts,
                issued_ns=(1 + number) * _S,
            )
            for number in range(first, first + _BATCH)
        ]

    def decide(call: Call, _at_ns: int) -> None:
        _, decision = play.decide(call, play.route_of(call), facts=facts)
        if len(decision.ranked) != _MODELS:
            raise RuntimeError("the plan does not rank all models")

    return _batches_us(batches, calls, decide)


def routing_cost(quick: bool) -> Report:
    """What a decision of `Routing` costs: CPU microseconds with 20 candidates.

    Each has noted answers; questions of changing sizes and tasks come one a second of simulated time. Medians of
    batches: of the decision alone with plain questions, with a cache for each candidate (`full`), with one breaker open
    (`open`), and the worst of these, which has the bar; and of the whole plan for a call of some 4,000 bytes
    (`plan_cpu_us`). Inside: all CPU of the thread between the question (or the call) and the decision (or the plan).
    """
    batches = 30 if quick else 200
    plain, full = _questions({}), _questions({f"model-{index}": 500.0 for index in range(_MODELS)})
    with_open = _router()
    refusal = Sighting(model="model-0", origin="https://host-0.example.com:443", failure="rate_limit", rest_s=1e6)
    with_open.note(refusal, 0)
    decide = {
        "decide_cpu_us": _decide_us(batches, _router(), plain),
        "decide_full_cpu_us": _decide_us(batches, _router(), full),
        "decide_open_cpu_us": _decide_us(batches, with_open, plain),
    }
    return Report(
        figures={**decide, "decide_worst_cpu_us": max(decide.values()), "plan_cpu_us": _plan_us(batches)},
        reach={"decide_worst_cpu_us": "<= 50"},
        conditions={"batches": f"{batches} of {_BATCH}"},
    )
