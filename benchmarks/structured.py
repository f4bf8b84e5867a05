"""What bounding structured answers is worth: answers that run on behind their JSON, and bounds that must hold.

A support ticket is sorted into a category, by an emulated model that does not reason and is cut off at 1,024 tokens.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Literal, NamedTuple, get_args

import httpx2
import jsonschema  # type: ignore[import-untyped]
import openai
import pydantic
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
from referencing.exceptions import Unresolvable

import fastlane
from benchmarks._client import client_of, connections, in_mode, opened, ours, over_http2, run, settled, wishes
from benchmarks._conversation import prose
from benchmarks._drawn_schemas import drawn_schema
from benchmarks._paired import cpu_pairs, middle, percentile
from benchmarks._prepared import DONE, Prepared, event_of
from benchmarks._provider import MODEL, ROUND_TRIP_TIME_S, by_tag, fact, providers, with_facts
from benchmarks._report import Figure, Report
from fastlane._clock import cpu_ns, now_ns
from fastlane.emulator import Emulator, RequestLog, preset
from fastlane.knowledge.tokens import counter
from fastlane.protocol.json_scanner import JsonScanner
from fastlane.providers.facts import Reasoning
from fastlane.schemas.bound import schema_bound

_Category = Literal["billing", "shipping", "technical", "account", "other"]
_OUTPUT_LIMIT = 1_024
"""Where an answer that runs on is cut off, as in the talk's own runs: output tokens."""


class _Ticket(pydantic.BaseModel):
    """The talk's answer. No answer can be longer than its schema says."""

    category: _Category
    confidence: float = pydantic.Field(ge=0, le=1)


class _Case(_Ticket):
    """An answer that may be of any length, so that no ceiling can be derived."""

    reason: str
    steps: list[str]


def _ticket(number: int) -> list[Any]:
    return [
        {"role": "system", "content": "Sort the support ticket into a category, and say how sure you are."},
        {"role": "user", "content": f"Ticket {number}: it has happened again since {number % 28 + 1} May."},
    ]


def _known(emulator: Emulator) -> AbstractContextManager[object]:
    """Register what is known of the provider: the model does not reason, and the limit's newer name is taken."""
    parameters = {"max_completion_tokens": fact(True)}
    return with_facts(emulator, reasoning=Reasoning(never=fact((MODEL,))), parameters=parameters)


# A model that runs on behind its JSON

_KINDS = ("whitespace", "prose", "second")
_ARMS: dict[str, dict[str, Any]] = {"stock": {}, "fastlane": {}, "at_once": {"early_stop": "at_once"}}


class _Answer(NamedTuple):
    taken_ms: float
    text: str
    parsed: _Case | None
    """None if the client raised its error instead."""


class _Asked(NamedTuple):
    arm: str
    kind: str
    number: int

    @property
    def tag(self) -> str:
        return f"{self.arm}:{self.kind}:{self.number}"


async def _ask(client: Any, asked: _Asked, **wished: object) -> _Answer:
    headers = wishes(tag=asked.tag, manner=asked.kind, draw=asked.number, **wished)
    options = {"response_format": _Case, "max_completion_tokens": _OUTPUT_LIMIT, "extra_headers": headers}
    whole, started = True, now_ns()
    try:
        completion = await settled(
            client.chat.completions.parse(model=MODEL, messages=_ticket(asked.number), **options)
        )
    except openai.LengthFinishReasonError as error:
        completion, whole = error.completion, False
    message = completion.choices[0].message
    return _Answer((now_ns() - started) / 1e6, message.content or "", message.parsed if whole else None)


async def _ask_all(
    mode: str, base_url: str, numbers: Sequence[int], keep: Callable[[fastlane.CallRecord], None]
) -> dict[_Asked, _Answer]:
    plays = {arm: fastlane.BoundedOutput(**_ARMS[arm]) for arm in ("fastlane", "at_once")}
    own = {arm: ours(mode, base_url, play, on_call_end=[keep]) for arm, play in plays.items()}
    answers: dict[_Asked, _Answer] = {}

    async def lane(kind: str) -> None:
        # One for each lane: over HTTP/2 the stock client breaks where threads share it.
        async with opened(mode, base_url, "stock") as theirs:
            clients = {**theirs, **own}
            for client in clients.values():
                await in_mode(client, _open)
            for number in numbers:
                for arm in reversed(_ARMS) if number % 2 else _ARMS:
                    asked = _Asked(arm, kind, number)
                    answers[asked] = await in_mode(clients[arm], _ask, asked)

    await asyncio.gather(*map(lane, _KINDS))
    for client in own.values():
        await settled(client.close())
    return answers


async def _open(client: Any) -> None:
    await settled(client.models.list())


async def _exact(base_url: str, pairs: int) -> list[_Answer]:
    """Return what the model says where it writes exactly, asked by the stock client and without delays."""
    async with over_http2("stock", "async", base_url, "exact") as client:
        return [await _ask(client, _Asked("exact", "exact", at), prefill_ms=0, token_ms=0) for at in range(pairs)]


def _running_on(
    answers: Mapping[_Asked, _Answer],
    exact: Sequence[_Answer],
    log: Sequence[RequestLog],
    records: Mapping[str, fastlane.CallRecord],
) -> dict[str, Figure]:
    sent = by_tag(log)
    figures: dict[str, Figure] = {}
    after: list[float] = []
    wrong = kept_on = 0
    for kind in _KINDS:
        mine = {arm: [asked for asked in answers if (asked.arm, asked.kind) == (arm, kind)] for arm in _ARMS}
        tokens = {arm: sum(sent[asked.tag][0].output_tokens for asked in mine[arm]) for arm in _ARMS}
        pairs = [answers[asked].taken_ms / answers[asked._replace(arm="fastlane")].taken_ms for asked in mine["stock"]]
        for arm in _ARMS:
            figures[f"{kind}_{arm}_e2e_p50_ms"] = middle([answers[asked].taken_ms for asked in mine[arm]])
        figures |= {f"{kind}_{arm}_tokens_per_answer": tokens[arm] / len(mine[arm]) for arm in _ARMS}
        figures |= {
            f"{kind}_e2e_ratio": middle(pairs),
            f"{kind}_tokens_ratio": tokens["stock"] / tokens["fastlane"],
            f"{kind}_stock_errors": sum(answers[asked].parsed is None for asked in mine["stock"]),
        }
        for asked in (*mine["fastlane"], *mine["at_once"]):
            wrong += answers[asked].text != exact[asked.number].text
            wrong += answers[asked].parsed != exact[asked.number].parsed
            (request,) = sent[asked.tag]
            attempt = records[request.request_id].last_attempt
            assert attempt is not None
            assert attempt.wire.ended_ns is not None
            kept_on += request.reset_code is None
            if not request.token_ns:
                raise RuntimeError("the play was to have answers streamed underneath")
            after.append(max(0.0, (request.token_ns[-1] - attempt.wire.ended_ns) / 1e6))
        # The stock client has the same answer, behind which it has paid for something else.
        if not all(answers[asked].text.startswith(exact[asked.number].text) for asked in mine["stock"]):
            raise RuntimeError("the model did not give both sides the same answer")
    return figures | {
        "server_went_on_after_reset_p50_ms": middle(after),
        "server_went_on_after_reset_p99_ms": percentile(after, 0.99),
        "server_went_on_after_reset_max_ms": max(after),
        "streams_not_reset": kept_on,
        "wrong_results": wrong,
    }


# Answers of a prepared provider, cut wherever they can be

_TEXTS = ("late", 'said "no"', "a brace } and a \\ in it", "für Größe", "雪 and 🛰", "", "line\nline", "[1, {}]")
_BEHIND = ("", "\n\n\n" + " " * 200, "\n\nThat is how } I see it.", "\n{}", "\n" * 9)
_OPENING = event_of({"role": "assistant", "content": ""})


def _written(number: int) -> tuple[_Case, str, str]:
    category: Any = get_args(_Category)[number % len(get_args(_Category))]
    reason, step = _TEXTS[number % len(_TEXTS)], _TEXTS[(number // 3 + 1) % len(_TEXTS)]
    steps = [step, reason][: number % 3]
    value = _Case(category=category, confidence=number % 97 / 96, reason=f"{reason} {number}", steps=steps)
    as_models_do: Sequence[Mapping[str, Any]] = (
        {}, {"separators": (",", ":"), "ensure_ascii": False}, {"indent": 4, "ensure_ascii": False}
    )  # fmt: skip
    return value, json.dumps(value.model_dump(), **as_models_do[number % 3]), _BEHIND[number % len(_BEHIND)]


def _parsed(play: fastlane.BoundedOutput, *reads: bytes) -> _Case | None:
    """Return what `.parse()` gives of a stream in these reads; None if it raises that there is no valid answer."""
    http_client = httpx2.Client(transport=Prepared(reads))
    with client_of(
        "fastlane", "sync", "http://prepared.invalid/v1", http_client=http_client, only_plays=[play]
    ) as client:
        try:
            completion = client.chat.completions.parse(
                model=MODEL, messages=_ticket(1), response_format=_Case, max_completion_tokens=_OUTPUT_LIMIT
            )
        except (openai.LengthFinishReasonError, fastlane.InvalidOutputError, pydantic.ValidationError):
            return None
        parsed: _Case | None = completion.choices[0].message.parsed
        return parsed


def _cut_answers(count: int) -> dict[str, Figure]:
    """Cut answers at every byte of their streams, each into two reads; let every fifth character be the last one."""
    plays = itertools.cycle([fastlane.BoundedOutput(), fastlane.BoundedOutput(early_stop="at_once")])
    cut = wrong = ended = taken_for_whole = 0
    for value, text, behind in map(_written, itertools.count()):
        for at in range(0, len(text), 5):
            reads = (_OPENING, event_of({"content": text[:at]}), event_of({}, "length") + DONE)
            taken_for_whole += _parsed(next(plays), *reads) is not None
            ended += 1
        whole = text + behind
        deltas = [event_of({"content": whole[at : at + 4]}) for at in range(0, len(whole), 4)]
        stream = b"".join((_OPENING, *deltas, event_of({}, "stop") + DONE))
        for at in range(1, min(len(stream), count - cut + 1)):
            wrong += _parsed(next(plays), stream[:at], stream[at:]) != value
            cut += 1
        if cut >= count:
            break
    return {
        "answers_cut_between_reads": cut,
        "wrong_results_of_cut_answers": wrong,
        "answers_ended_early": ended,
        "ended_early_and_taken_for_whole": taken_for_whole,
    }


def early_stop(quick: bool) -> Report:
    """Compare the stock client with `BoundedOutput` where a model runs on behind its JSON.

    The model writes the right JSON and then white space, prose or further objects up to its limit; the schema has no
    bound, so all that is saved is saved by the stop. Both ask the same over 40 ms, in threads and in tasks. Inside:
    from `.parse()` to its result, or to the stock client's error. Tokens are those that the provider gave to its
    socket. Outside: opening connections. Results must be those of the same model where it writes exactly. Then, without
    a network: answers whose reads are cut at every byte, and answers that end at every fifth character as if at a
    limit.
    """
    pairs = 6 if quick else 40
    records: dict[str, fastlane.CallRecord] = {}

    def keep(record: fastlane.CallRecord) -> None:
        if record.request_id:
            records[record.request_id] = record

    with providers(round_trip_time_s=ROUND_TRIP_TIME_S, model=preset("bench")) as (emulator,), _known(emulator):
        exact = asyncio.run(_exact(emulator.base_url, pairs))
        answers = run(_ask_all("sync", emulator.base_url, range(pairs // 2), keep))
        answers |= run(_ask_all("async", emulator.base_url, range(pairs // 2, pairs), keep))
        time.sleep(ROUND_TRIP_TIME_S)  # the last reset is in flight
        log = emulator.log()
    if connections(log, "fastlane") != 2:
        raise RuntimeError("ours was to have one connection of each mode")
    return Report(
        figures={
            **_running_on(answers, exact, log, records),
            **_cut_answers(1_000 if quick else 5_000),
            "pairs_of_a_kind": pairs,
        },
        reach={
            **{f"{kind}_tokens_ratio": ">= 5" for kind in _KINDS},
            "server_went_on_after_reset_p99_ms": f"<= {1e3 * ROUND_TRIP_TIME_S}",
            "streams_not_reset": "== 0",
            "wrong_results": "== 0",
            "wrong_results_of_cut_answers": "== 0",
            "ended_early_and_taken_for_whole": "== 0",
        },
    )


# A talkative and a well-behaved model

_AT_A_TIME = 12
_TRIES = 2
_MODELS: Mapping[str, str] = {
    "talkative": "talkative,fence;share=0.1,whitespace;share=0.15,prose;share=0.1;tokens=80,"
    "wrong_enum;share=0.05,truncated;share=0.02",
    "well_behaved": "exact",
}


_Outcome = tuple[float, bool]
"""The milliseconds that a ticket took, and whether its answer can be used."""


async def _sorted(client: openai.AsyncOpenAI, tag: str, number: int, attempt: int, manner: str) -> _Ticket | None:
    """Ask about a ticket; None if the answer cannot be read."""
    # Another attempt is another sample.
    headers = wishes(tag=f"{tag}:{number}", draw=number + 1_000_003 * attempt, manner=manner)
    try:
        completion = await client.chat.completions.parse(
            model=MODEL, messages=_ticket(number), extra_headers=headers, response_format=_Ticket
        )
    except openai.LengthFinishReasonError as error:
        text = error.completion.choices[0].message.content or ""
        try:
            return _Ticket.model_validate_json(text[text.find("{") : text.rfind("}") + 1])
        except pydantic.ValidationError:
            return None
    except (fastlane.InvalidOutputError, pydantic.ValidationError):
        return None
    return completion.choices[0].message.parsed


async def _sort_all(emulator: Emulator, count: int) -> dict[str, list[_Outcome]]:
    """Have every row sort the same tickets of each model, all rows of one ticket at once and several at a time."""
    async with client_of("stock", "async", emulator.base_url) as theirs, ours("async", emulator.base_url) as alone:
        bounded = alone.with_plays(fastlane.BoundedOutput(reasks=_TRIES - 1))
        clients: dict[str, Any] = {"stock": theirs, "schema": alone, "all": bounded}
        for client in clients.values():
            await client.models.list()

        async def outcome(model: str, row: str, number: int) -> _Outcome:
            started, usable = now_ns(), False
            for attempt in range(_TRIES):
                answer = _sorted(clients[row], f"{model}/{row}", number, attempt, _MODELS[model])
                usable = await answer is not None
                if usable:
                    break
            return (now_ns() - started) / 1e6, usable

        async def tickets(model: str) -> dict[str, list[_Outcome]]:
            at_once = asyncio.Semaphore(_AT_A_TIME)

            async def all_rows(number: int) -> list[_Outcome]:
                async with at_once:
                    return await asyncio.gather(*(outcome(model, row, number) for row in clients))

            by_ticket = await asyncio.gather(*map(all_rows, range(count)))
            return {
                f"{model}/{row}": list(each) for row, each in zip(clients, zip(*by_ticket, strict=True), strict=True)
            }

        first, second = await asyncio.gather(*map(tickets, _MODELS))
        return first | second


def bounded_ab(quick: bool) -> Report:
    """Compare ways to get a ticket's category as JSON, from a talkative and from a well-behaved model.

    Both have the times of a published report (gpt-4.1-nano). Every request has a schema: the stock client, ours with
    `Connection()` (`schema`), and with `BoundedOutput` (`all`). The application asks again, once, if an answer cannot
    be read. Inside: from its first call to a usable result or its last failure, over 40 ms. Outside: opening
    connections. Tokens are the provider's count for all calls of a ticket. A failure is a first answer that could not
    be used, or that the play asked for again; lost is a ticket without any.
    """
    count = 24 if quick else 400
    model = replace(preset("gpt-4.1-nano-generate"), run_on_tokens=_OUTPUT_LIMIT)
    with providers(round_trip_time_s=ROUND_TRIP_TIME_S, model=model) as (emulator,), _known(emulator):
        outcomes = asyncio.run(_sort_all(emulator, count))
        sent = by_tag(emulator.log())
    figures: dict[str, Any] = {}
    for row, found in outcomes.items():
        taken = [ms for ms, _ in found]
        requests = [sent[f"{row}:{number}"] for number in range(count)]
        # What the play repairs by itself is a failure too: the answer was paid for.
        failures = [len(tries) > 1 or not usable for tries, (_, usable) in zip(requests, found, strict=True)]
        values = {
            "e2e_p50_ms": percentile(taken, 0.5),
            "e2e_p95_ms": percentile(taken, 0.95),
            "e2e_p99_ms": percentile(taken, 0.99),
            "e2e_mean_ms": sum(taken) / len(taken),
            "tokens_per_ticket": sum(one.output_tokens for tries in requests for one in tries) / count,
            "parse_failures": sum(failures),
            "lost": sum(not usable for _, usable in found),
        }
        figures |= {f"{row.replace('/', '_')}_{name}": value for name, value in values.items()}
    for name in ("p50", "p95", "p99"):
        schema, bounded = (figures[f"talkative_{row}_e2e_{name}_ms"] for row in ("schema", "all"))
        figures[f"talkative_schema_to_all_{name}_ratio"] = schema / bounded
    schema, bounded = (figures[f"well_behaved_{row}_e2e_p50_ms"] for row in ("schema", "all"))
    figures |= {"well_behaved_all_to_schema_p50_ratio": bounded / schema, "tickets_per_row": count}
    return Report(
        figures=figures,
        reach={
            "talkative_schema_to_all_p95_ratio": ">= 1.5",
            "talkative_all_lost": "== 0",
            "well_behaved_all_to_schema_p50_ratio": "<= 1.03",
            "well_behaved_all_parse_failures": "== 0",
        },
    )


# Bounds of drawn schemas

_BOUND_MODEL = "gpt-4o"
_PER_SCHEMA = 20


def _texts(value: Any) -> Iterator[str]:
    for ascii_alone in (True, False):
        yield json.dumps(value, ensure_ascii=ascii_alone, separators=(",", ":"))
        yield json.dumps(value, ensure_ascii=ascii_alone)
        yield json.dumps(value, ensure_ascii=ascii_alone, indent=4)


def _valid(schema: Any, values: Iterable[Any]) -> list[Any]:
    kind = jsonschema.validators.validator_for(schema)
    # With no other schemas than those of JSON schema itself, nothing is fetched.
    validator = kind(schema, format_checker=kind.FORMAT_CHECKER, registry=REGISTRY)
    try:
        return [value for value in values if validator.is_valid(value)]
    except (jsonschema.exceptions.JsonSchemaException, Unresolvable, re.error):
        return []


def _cached_bound_us(calls: int = 2_000, properties: int = 12) -> float:
    kinds = (
        {"type": "string", "maxLength": 80},
        {"type": "integer", "minimum": 0, "maximum": 100},
        {"enum": ["a", "b"]},
    )
    fields = {f"field_{number}": kinds[number % len(kinds)] for number in range(properties)}
    schema = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    taken = []
    for _ in range(calls):
        started = cpu_ns()
        schema_bound(schema)
        taken.append((cpu_ns() - started) / 1e3)
    return middle(taken)


def bound_law(quick: bool) -> Report:
    """Check that no valid answer is longer than `bound()` says, and how close the longest come.

    Schemas of draft 7 and values at their limits are drawn at random; jsonschema says which are valid. Each is written
    by `json.dumps` in six ways. Tokens are bytes of UTF-8, or with a tokenizer (`TIKTOKEN_CACHE_DIR`) the model's own.
    Inside: `bound()` and the length of its texts; `cached_bound_us` is its CPU for a schema of 12 properties that it
    has seen. Outside: making the values.
    """
    exact = counter(_BOUND_MODEL).exact
    count_tokens = counter(_BOUND_MODEL).text if exact else lambda text: len(text.encode("utf-8", "surrogatepass"))
    closest: list[float] = []
    instances = exceeding = bounded = schemas = 0
    while instances < (400 if quick else 20_000):
        random = Random(schemas)
        drawn = drawn_schema(random)
        schemas += 1
        tokens = schema_bound(drawn.schema, assume=False).tokens
        if tokens is None:
            continue
        bounded += 1
        longest = 0
        for value in _valid(drawn.schema, [drawn.longest(random) for _ in range(_PER_SCHEMA)]):
            texts = list(_texts(value))
            instances += 1
            longest = max(longest, *map(len, texts))
            exceeding += any(len(text) > tokens or count_tokens(text) > tokens for text in texts)
        if longest and tokens:
            # The share of the bound that the longest value used up.
            closest.append(longest / tokens)
    return Report(
        figures={
            "instances": instances,
            "exceeding": exceeding,
            "schemas": schemas,
            "bounded_schemas": bounded,
            "longest_seen_to_bound_ratio": middle(closest),
            "cached_bound_us": _cached_bound_us(),
        },
        reach={"exceeding": "== 0", "cached_bound_us": "<= 10"},
        conditions={"tokens": "the model's own" if exact else "bytes, for want of its tokenizer"},
    )


# What watching an answer costs

_ANSWERS = 40


def _long_ticket(random: Random) -> Any:
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
    tickets = [_long_ticket(random) for _ in range(_ANSWERS)]
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
