"""The talk's fourth play: a ticket's category as bounded JSON, from a talkative and from a well-behaved model.

Two emulated models with the times of a published report (gpt-4.1-nano, text generation): one is well-behaved; one is
talkative, and goes wrong in some of its answers (`_MODELS` says in how many; the shares are of our own making). The
application sets no limit of tokens; the model's own is 1,024. Every request has a schema: with the stock client as it
comes, with ours and `Connection()`, which is the baseline (`schema`), and with `BoundedOutput` (`all`). The
application asks again, once, where an answer cannot be read. All rows ask about the same tickets;
equal draws give equal delays and equal habits. Inside: from the application's first call to a result that it can use,
or to its last failure, over 40 ms. Outside: opening the connections. Tokens are the provider's own count, all calls for
one ticket together. A failure is a first answer that could not be used, or that the play had to ask for again; lost is
a ticket without any.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import openai
import pydantic

import fastlane
from benchmarks._provider import MODEL, providers
from benchmarks._report import Figure, Report
from benchmarks._structured import OUTPUT_LIMIT, Ticket, by_tag, known, ticket
from benchmarks._transport import ours, percentile, wishes
from fastlane._clock import now_ns
from fastlane.emulator import Emulator, RequestLog, preset

_ROUND_TRIP_TIME_S = 0.04
_AT_A_TIME = 12
_TRIES = 2
_MODELS: Mapping[str, str] = {
    "talkative": "talkative,fence;share=0.1,whitespace;share=0.15,prose;share=0.1;tokens=80,"
    "wrong_enum;share=0.05,truncated;share=0.02",
    "well_behaved": "exact",
}
_Ask = Callable[[int, int], Awaitable[Ticket | None]]
"""Ask about a ticket, for the n-th time; None where the answer cannot be read."""


class _Outcome(NamedTuple):
    taken_ms: float
    failures: int
    """Answers that could not be read."""
    usable: bool


def _wanted(row: str, model: str, number: int, attempt: int) -> dict[str, Any]:
    # Another attempt is another sample.
    draw = number + 1_000_003 * attempt
    asked = wishes(tag=f"{model}/{row}:{number}", draw=draw, manner=_MODELS[model])
    messages = ticket(number)
    return {"model": MODEL, "messages": messages, "extra_headers": asked}


def _read_json(text: str) -> Ticket | None:
    try:
        return Ticket.model_validate_json(text[text.find("{") : text.rfind("}") + 1])
    except pydantic.ValidationError:
        return None


def _by_schema(client: openai.AsyncOpenAI, row: str, model: str) -> _Ask:
    async def ask(number: int, attempt: int) -> Ticket | None:
        try:
            completion = await client.chat.completions.parse(
                **_wanted(row, model, number, attempt), response_format=Ticket
            )
        except openai.LengthFinishReasonError as error:
            return _read_json(error.completion.choices[0].message.content or "")
        except (fastlane.InvalidOutputError, pydantic.ValidationError):
            return None
        return completion.choices[0].message.parsed

    return ask


async def _outcome(ask: _Ask, number: int) -> _Outcome:
    started = now_ns()
    for attempt in range(_TRIES):
        if await ask(number, attempt) is not None:
            return _Outcome((now_ns() - started) / 1e6, attempt, True)
    return _Outcome((now_ns() - started) / 1e6, _TRIES, False)


async def _tickets(rows: Mapping[str, _Ask], count: int) -> dict[str, list[_Outcome]]:
    """All rows of one ticket at once; several tickets at a time."""
    outcomes: dict[str, dict[int, _Outcome]] = {row: {} for row in rows}
    at_once = asyncio.Semaphore(_AT_A_TIME)

    async def one(row: str, number: int) -> None:
        outcomes[row][number] = await _outcome(rows[row], number)

    async def all_rows(number: int) -> None:
        async with at_once:
            await asyncio.gather(*(one(row, number) for row in rows))

    await asyncio.gather(*map(all_rows, range(count)))
    return {row: [found[number] for number in range(count)] for row, found in outcomes.items()}


async def _run(emulator: Emulator, count: int) -> dict[str, dict[str, list[_Outcome]]]:
    """Every row on each model."""
    async with (
        openai.AsyncOpenAI(base_url=emulator.base_url, api_key="none", max_retries=0) as theirs,
        ours("async", emulator.base_url) as alone,
    ):
        clients: dict[str, openai.AsyncOpenAI] = {
            "stock": theirs,
            "schema": alone,
            "all": alone.with_plays(fastlane.BoundedOutput(reasks=_TRIES - 1)),
        }
        for client in clients.values():
            await client.models.list()

        def rows(model: str) -> dict[str, _Ask]:
            return {row: _by_schema(client, row, model) for row, client in clients.items()}

        outcomes = await asyncio.gather(*(_tickets(rows(model), count) for model in _MODELS))
    return dict(zip(_MODELS, outcomes, strict=True))


def _row(outcomes: Sequence[_Outcome], requests: Sequence[Sequence[RequestLog]]) -> dict[str, Figure]:
    taken = [outcome.taken_ms for outcome in outcomes]
    # What the play repairs by itself is a failure too: the answer was paid for.
    failures = sum(len(tries) > 1 or not outcome.usable for tries, outcome in zip(requests, outcomes, strict=True))
    return {
        "e2e_p50_ms": percentile(taken, 0.5),
        "e2e_p95_ms": percentile(taken, 0.95),
        "e2e_p99_ms": percentile(taken, 0.99),
        "e2e_mean_ms": sum(taken) / len(taken),
        "tokens_per_ticket": sum(one.output_tokens for tries in requests for one in tries) / len(outcomes),
        "parse_failures": failures,
        "lost": sum(not outcome.usable for outcome in outcomes),
    }


def measure(quick: bool) -> Report:
    """Run all rows on both models at once."""
    count = 24 if quick else 400
    model = replace(preset("gpt-4.1-nano-generate"), run_on_tokens=OUTPUT_LIMIT)
    with (
        providers(1, round_trip_time_s=_ROUND_TRIP_TIME_S, model=model) as emulators,
        known(emulators),
    ):
        outcomes = asyncio.run(_run(emulators[0], count))
        sent = by_tag(emulators[0].log())
    rows = {
        model: {
            row: _row(found, [sent[f"{model}/{row}:{number}"] for number in range(count)])
            for row, found in by_row.items()
        }
        for model, by_row in outcomes.items()
    }
    figures: dict[str, Figure] = {
        f"{model}_{row}_{name}": value
        for model, found in rows.items()
        for row, values in found.items()
        for name, value in values.items()
    }
    talkative, well_behaved = rows["talkative"], rows["well_behaved"]
    for name in ("p50", "p95", "p99"):
        figures[f"talkative_schema_to_all_{name}_ratio"] = _ratio(talkative, "schema", "all", f"e2e_{name}_ms")
    figures["well_behaved_all_to_schema_p50_ratio"] = _ratio(well_behaved, "all", "schema", "e2e_p50_ms")
    figures["tickets_per_row"] = count
    return Report(
        figures=figures,
        reach={
            "talkative_schema_to_all_p95_ratio": ">= 1.5",
            "talkative_all_lost": "== 0",
            "well_behaved_all_to_schema_p50_ratio": "<= 1.03",
            "well_behaved_all_parse_failures": "== 0",
        },
    )


def _ratio(rows: Mapping[str, Mapping[str, Figure]], one: str, other: str, name: str) -> float:
    return (rows[one][name] or 0) / (rows[other][name] or 1)
