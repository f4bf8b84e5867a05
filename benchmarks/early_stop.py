"""A model that runs on behind its JSON: what it costs the stock client, and what is left of it with `BoundedOutput`.

An emulated model answers with the right JSON and then writes white space, prose or further objects up to the limit of
1,024 tokens. Its schema allows answers of any length, so that no ceiling can be derived from it: all that is saved is
saved by the stop. The stock client over HTTP/2 and ours ask the same of the same provider over 40 ms, synchronous in
threads and asynchronous, and take turns, in reversed order every other round. Inside: from the application's call of
`.parse()` to its result, where the stock client raises its error and the application reads what came. Tokens are those
that the provider handed to its socket, by its own log; the end of a stream is its last token against the moment when
our client had reset the stream, by one clock. Outside: opening the connections. Results have to be equal to the byte to
those of the same model where it writes exactly.

The same once more, without a clock, by tools, as responses and as streams of the application's own.
Then a prepared provider without a network: answers in every manner, in two deltas that are cut at every position, in
reads that are cut at every byte, and answers that end at every position as if at a limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import openai

import fastlane
from benchmarks._cut_answers import cut_between_deltas, cut_between_reads
from benchmarks._paired import median
from benchmarks._provider import MODEL, providers
from benchmarks._report import Figure, Report
from benchmarks._structured import OUTPUT_LIMIT, Case, by_tag, known, ticket
from benchmarks._transport import connections, percentile, stock, stock_async, wishes
from fastlane._clock import now_ns
from fastlane.emulator import Emulator, RequestLog, preset

_ROUND_TRIP_TIME_S = 0.04
_KINDS = ("whitespace", "prose", "second")
_ARMS: dict[str, dict[str, Any]] = {"stock": {}, "fastlane": {}, "at_once": {"early_stop": "at_once"}}
_IDLE_S = 420.0


class _Answer(NamedTuple):
    """What one call brought, in nanoseconds of the clock of both processes."""

    taken_ms: float
    text: str
    parsed: Case | None
    """None where the client raised its error instead."""


class _Asked(NamedTuple):
    arm: str
    kind: str
    number: int

    @property
    def tag(self) -> str:
        return f"{self.arm}:{self.kind}:{self.number}"

    def options(self) -> dict[str, Any]:
        return {
            "model": MODEL,
            "messages": ticket(self.number),
            "response_format": Case,
            "max_completion_tokens": OUTPUT_LIMIT,
            "extra_headers": wishes(tag=self.tag, manner=self.kind, draw=self.number),
        }


def _read(started: int, completion: Any, *, whole: bool) -> _Answer:
    message = completion.choices[0].message
    return _Answer((now_ns() - started) / 1e6, message.content or "", message.parsed if whole else None)


def _ask(client: openai.OpenAI, asked: _Asked) -> _Answer:
    started = now_ns()
    try:
        return _read(started, client.chat.completions.parse(**asked.options()), whole=True)
    except openai.LengthFinishReasonError as error:
        return _read(started, error.completion, whole=False)


async def _aask(client: openai.AsyncOpenAI, asked: _Asked) -> _Answer:
    started = now_ns()
    try:
        return _read(started, await client.chat.completions.parse(**asked.options()), whole=True)
    except openai.LengthFinishReasonError as error:
        return _read(started, error.completion, whole=False)


def _in_turn(kind: str, numbers: Sequence[int]) -> Iterator[_Asked]:
    for number in numbers:
        arms = list(_ARMS)
        for arm in reversed(arms) if number % 2 else arms:
            yield _Asked(arm, kind, number)


class _Ended:
    """When our client was done with each answer, by the id that the provider gave to the request."""

    def __init__(self) -> None:
        self.records: dict[str, fastlane.CallRecord] = {}

    def __call__(self, record: fastlane.CallRecord) -> None:
        if record.request_id:
            self.records[record.request_id] = record


def _plays(arm: str, pool: int) -> list[fastlane.Play]:
    return [fastlane.Connection(idle_s=_IDLE_S + pool), fastlane.BoundedOutput(**_ARMS[arm])]


def _run(emulator: Emulator, pairs: int, ended: _Ended) -> dict[_Asked, _Answer]:
    """Ask all, each kind in a lane of its own: half of them synchronous, then half asynchronous."""
    own: dict[str, Any] = {"base_url": emulator.base_url, "api_key": "none", "max_retries": 0, "on_call_end": [ended]}
    with (
        fastlane.OpenAI(**own, only_plays=_plays("fastlane", 1)) as ours,
        fastlane.OpenAI(**own, only_plays=_plays("at_once", 2)) as at_once,
        ThreadPoolExecutor(len(_KINDS)) as pool,
    ):

        def lane(kind: str) -> dict[_Asked, _Answer]:
            # One for each lane: over HTTP/2 the stock client breaks where threads share it.
            with stock(emulator.base_url, "stock") as theirs:
                clients = {"stock": theirs, "fastlane": ours, "at_once": at_once}
                for client in clients.values():
                    client.models.list()
                return {asked: _ask(clients[asked.arm], asked) for asked in _in_turn(kind, range(pairs // 2))}

        answers = {asked: answer for found in pool.map(lane, _KINDS) for asked, answer in found.items()}

    async def asynchronous() -> None:
        async with (
            fastlane.AsyncOpenAI(**own, only_plays=_plays("fastlane", 3)) as ours,
            fastlane.AsyncOpenAI(**own, only_plays=_plays("at_once", 4)) as at_once,
        ):

            async def lane(kind: str) -> None:
                async with stock_async(emulator.base_url, "stock") as theirs:
                    clients = {"stock": theirs, "fastlane": ours, "at_once": at_once}
                    for client in clients.values():
                        await client.models.list()
                    for asked in _in_turn(kind, range(pairs // 2, pairs)):
                        answers[asked] = await _aask(clients[asked.arm], asked)

            await asyncio.gather(*map(lane, _KINDS))

    asyncio.run(asynchronous())
    return answers


def _exact(emulator: Emulator, pairs: int) -> list[_Answer]:
    """What the model says where it writes exactly, asked by the stock client and without delays."""
    with stock(emulator.base_url, "exact") as client:
        return [
            _read(
                0,
                client.chat.completions.parse(
                    **{
                        **_Asked("exact", "exact", number).options(),
                        "extra_headers": wishes(tag="exact", prefill_ms=0, token_ms=0, manner="exact"),
                    }
                ),
                whole=True,
            )
            for number in range(pairs)
        ]


def _figures(
    answers: dict[_Asked, _Answer], exact: Sequence[_Answer], log: Sequence[RequestLog], ended: _Ended
) -> dict[str, Figure]:
    sent = by_tag(log)
    figures: dict[str, Figure] = {}
    after: list[float] = []
    wrong = kept_on = 0
    for kind in _KINDS:
        mine = {arm: [asked for asked in answers if (asked.arm, asked.kind) == (arm, kind)] for arm in _ARMS}
        tokens = {arm: sum(sent[asked.tag][0].output_tokens for asked in mine[arm]) for arm in _ARMS}
        taken = {arm: median([answers[asked].taken_ms for asked in mine[arm]]).value for arm in _ARMS}
        figures |= {f"{kind}_{arm}_e2e_p50_ms": taken[arm] for arm in _ARMS}
        figures |= {f"{kind}_{arm}_tokens_per_answer": tokens[arm] / len(mine[arm]) for arm in _ARMS}
        pairs = [answers[asked].taken_ms / answers[asked._replace(arm="fastlane")].taken_ms for asked in mine["stock"]]
        figures |= {
            f"{kind}_e2e_ratio": median(pairs).value,
            f"{kind}_tokens_ratio": tokens["stock"] / tokens["fastlane"],
            f"{kind}_stock_errors": sum(answers[asked].parsed is None for asked in mine["stock"]),
        }
        for asked in (*mine["fastlane"], *mine["at_once"]):
            wrong += answers[asked].text != exact[asked.number].text
            wrong += answers[asked].parsed != exact[asked.number].parsed
            (request,) = sent[asked.tag]
            attempt = ended.records[request.request_id].last_attempt
            assert attempt is not None
            assert attempt.wire.ended_ns is not None
            kept_on += request.reset_code is None
            if not request.token_ns:
                raise RuntimeError("the play was to have answers streamed underneath")
            after.append(max(0.0, (request.token_ns[-1] - attempt.wire.ended_ns) / 1e6))
        # The stock client has the same answer, behind which it has paid for something else.
        for asked in mine["stock"]:
            if not answers[asked].text.startswith(exact[asked.number].text):
                raise RuntimeError("the model did not give both sides the same answer")
    return figures | {
        "server_went_on_after_reset_p50_ms": median(after).value,
        "server_went_on_after_reset_p99_ms": percentile(after, 0.99),
        "server_went_on_after_reset_max_ms": max(after),
        "streams_not_reset": kept_on,
        "wrong_results": wrong,
    }


# Other shapes of a call


def _tool(client: openai.OpenAI, number: int, headers: dict[str, str]) -> object:
    completion = client.chat.completions.parse(
        model=MODEL,
        messages=ticket(number),
        tools=[openai.pydantic_function_tool(Case)],
        tool_choice="required",
        extra_headers=headers,
    )
    return [call.function.parsed_arguments for call in completion.choices[0].message.tool_calls or ()]


def _response(client: openai.OpenAI, number: int, headers: dict[str, str]) -> object:
    return client.responses.parse(
        model=MODEL, input=ticket(number), text_format=Case, extra_headers=headers
    ).output_parsed


def _stream(client: openai.OpenAI, number: int, headers: dict[str, str]) -> object:
    with client.chat.completions.stream(
        model=MODEL, messages=ticket(number), response_format=Case, extra_headers=headers
    ) as stream:
        return stream.get_final_completion().choices[0].message.parsed


def _response_stream(client: openai.OpenAI, number: int, headers: dict[str, str]) -> object:
    with client.responses.stream(model=MODEL, input=ticket(number), text_format=Case, extra_headers=headers) as stream:
        return stream.get_final_response().output_parsed


def _other_shapes(emulator: Emulator, count: int) -> dict[str, Figure]:
    """Ask by tools, as responses and as streams of the application's own; compare with what an exact model gives."""
    asked = wrong = 0
    own: dict[str, Any] = {"base_url": emulator.base_url, "api_key": "none", "max_retries": 0}
    with (
        stock(emulator.base_url, "shapes") as theirs,
        fastlane.OpenAI(**own, only_plays=_plays("fastlane", 5)) as ours,
        fastlane.OpenAI(**own, only_plays=_plays("at_once", 6)) as at_once,
    ):
        for shape in (_tool, _response, _stream, _response_stream):
            for number in range(count):
                exact = shape(theirs, number, wishes(prefill_ms=0, token_ms=0))
                for kind in _KINDS:
                    for client in (ours, at_once):
                        headers = wishes(tag=f"shapes:{kind}", prefill_ms=0, token_ms=3, manner=kind)
                        asked += 1
                        wrong += shape(client, number, headers) != exact
    most = max(request.output_tokens for request in emulator.log() if (request.tag or "").startswith("shapes:"))
    return {"other_shapes": asked, "other_shapes_most_tokens": most, "wrong_results_of_other_shapes": wrong}


def measure(quick: bool) -> Report:
    """Measure all kinds side by side, then cut answers."""
    pairs = 6 if quick else 40
    pieces = 1_000 if quick else 5_000
    ended = _Ended()
    with (
        providers(1, round_trip_time_s=_ROUND_TRIP_TIME_S, model=preset("bench")) as emulators,
        known(emulators),
    ):
        (emulator,) = emulators
        exact = _exact(emulator, pairs)
        answers = _run(emulator, pairs, ended)
        log = emulator.log()
        shapes = _other_shapes(emulator, 1 if quick else 10)
    if connections(log, "fastlane") != 2:
        raise RuntimeError("ours was to have one connection of each mode")
    figures = _figures(answers, exact, log, ended) | shapes
    deltas, reads = cut_between_deltas(pieces), cut_between_reads(pieces)
    figures |= {
        "answers_cut_between_deltas": deltas.answers,
        "answers_cut_between_reads": reads.answers,
        "wrong_results_of_cut_answers": deltas.wrong + reads.wrong,
        "answers_ended_early": deltas.ended,
        "ended_early_and_taken_for_whole": deltas.taken_for_whole,
        "pairs_of_a_kind": pairs,
    }
    return Report(
        figures=figures,
        reach={
            **{f"{kind}_tokens_ratio": ">= 5" for kind in _KINDS},
            "server_went_on_after_reset_p99_ms": f"<= {1e3 * _ROUND_TRIP_TIME_S}",
            "streams_not_reset": "== 0",
            "wrong_results": "== 0",
            "wrong_results_of_other_shapes": "== 0",
            "wrong_results_of_cut_answers": "== 0",
            "ended_early_and_taken_for_whole": "== 0",
        },
    )
