"""A model that runs on behind its JSON: what it costs the stock client, and what is left of it with `BoundedOutput`.

An emulated model answers with the right JSON and then writes white space, prose or further objects up to the limit of
1,024 tokens. Its schema allows answers of any length, so that no ceiling can be derived from it: all that is saved is
saved by the stop. The stock client over HTTP/2 and ours ask the same of the same provider over 40 ms, synchronous in
threads and asynchronous, and take turns, in reversed order every other round. Inside: from the application's call of
`.parse()` to its result, where the stock client raises its error and the application reads what came. Tokens are those
that the provider handed to its socket, by its own log; the end of a stream is its last token against the moment when
our client had reset the stream, by one clock. Outside: opening the connections. Results have to be equal to the byte to
those of the same model where it writes exactly.

Then a prepared provider without a network: answers in reads that are cut at every byte, and answers that end at every
fifth character as if at a limit.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import httpx2
import openai
import pydantic

import fastlane
from benchmarks._paired import median
from benchmarks._prepared import MODEL as PREPARED, Prepared, event_of
from benchmarks._provider import MODEL, providers
from benchmarks._report import Figure, Report
from benchmarks._structured import CATEGORIES, OUTPUT_LIMIT, Case, by_tag, known, ticket
from benchmarks._transport import connections, in_mode, made, opened, ours, percentile, run, settled, wishes
from fastlane._clock import now_ns
from fastlane.emulator import Emulator, RequestLog, preset

_ROUND_TRIP_TIME_S = 0.04
_KINDS = ("whitespace", "prose", "second")
_ARMS: dict[str, dict[str, Any]] = {"stock": {}, "fastlane": {}, "at_once": {"early_stop": "at_once"}}


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


async def _ask(client: Any, asked: _Asked) -> _Answer:
    started = now_ns()
    try:
        return _read(started, await settled(client.chat.completions.parse(**asked.options())), whole=True)
    except openai.LengthFinishReasonError as error:
        return _read(started, error.completion, whole=False)


class _Ended:
    """When our client was done with each answer, by the id that the provider gave to the request."""

    def __init__(self) -> None:
        self.records: dict[str, fastlane.CallRecord] = {}

    def __call__(self, record: fastlane.CallRecord) -> None:
        if record.request_id:
            self.records[record.request_id] = record


async def _run(mode: str, base_url: str, numbers: Sequence[int], ended: _Ended) -> dict[_Asked, _Answer]:
    """Ask all with clients of one mode, each kind in a lane of its own."""
    own = {
        arm: ours(mode, base_url, fastlane.BoundedOutput(**_ARMS[arm]), on_call_end=[ended])
        for arm in ("fastlane", "at_once")
    }
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


def _exact(emulator: Emulator, pairs: int) -> list[_Answer]:
    """What the model says where it writes exactly, asked by the stock client and without delays."""
    with made("sync", "stock", emulator.base_url, "exact") as client:
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


# Answers of a prepared provider, cut wherever they can be

_TEXTS = ("late", 'said "no"', "a brace } and a \\ in it", "für Größe", "雪 and 🛰", "", "line\nline", "[1, {}]")
_BEHIND = ("", "\n\n\n" + " " * 200, "\n\nThat is how } I see it.", "\n{}", "\n" * 9)
_OPENING = event_of({"role": "assistant", "content": ""})
_END = event_of({}, "stop") + b"data: [DONE]\n\n"
_END_AT_LIMIT = event_of({}, "length") + b"data: [DONE]\n\n"
_TOKEN = 4


class _Cuts(NamedTuple):
    """How many answers were cut into two reads, and how many ended where they were cut, as at a limit."""

    answers: int
    wrong: int
    """Of these results, those that were not that of the whole answer."""
    ended: int
    taken_for_whole: int


def _answers() -> Iterator[tuple[Case, str, str]]:
    """Without end: a value, its JSON as models write it, and what comes behind it."""
    for number in itertools.count():
        category: Any = CATEGORIES[number % len(CATEGORIES)]
        reason, step = _TEXTS[number % len(_TEXTS)], _TEXTS[(number // 3 + 1) % len(_TEXTS)]
        steps = [step, reason][: number % 3]
        value = Case(category=category, confidence=number % 97 / 96, reason=f"{reason} {number}", steps=steps)
        plain = value.model_dump()
        text = (
            json.dumps(plain),
            json.dumps(plain, separators=(",", ":"), ensure_ascii=False),
            json.dumps(plain, indent=4, ensure_ascii=False),
        )[number % 3]
        yield value, text, _BEHIND[number % len(_BEHIND)]


def _parsed(reads: Sequence[bytes], play: fastlane.BoundedOutput) -> Case | None:
    """What `.parse()` gives of a stream in these reads; None where it raises that there is no whole, valid answer."""
    http_client = httpx2.Client(transport=Prepared("text/event-stream", tuple(reads)))
    with fastlane.OpenAI(
        base_url="http://prepared.invalid/v1", api_key="none", max_retries=0, http_client=http_client, only_plays=[play]
    ) as client:
        try:
            completion = client.chat.completions.parse(
                model=PREPARED, messages=ticket(1), response_format=Case, max_completion_tokens=OUTPUT_LIMIT
            )
        except (openai.LengthFinishReasonError, fastlane.InvalidOutputError, pydantic.ValidationError):
            return None
        return completion.choices[0].message.parsed


def _cut_answers(count: int) -> _Cuts:
    """Cut answers at every byte of their streams, each into two reads; let every fifth character be the last one."""
    plays = itertools.cycle([fastlane.BoundedOutput(), fastlane.BoundedOutput(early_stop="at_once")])
    cuts = _Cuts(0, 0, 0, 0)
    for value, text, behind in _answers():
        whole = text + behind
        for at in range(0, len(text), 5):
            reads = (_OPENING, event_of({"content": text[:at]}), _END_AT_LIMIT)
            taken = _parsed(reads, next(plays)) is not None
            cuts = cuts._replace(ended=cuts.ended + 1, taken_for_whole=cuts.taken_for_whole + taken)
        deltas = [event_of({"content": whole[at : at + _TOKEN]}) for at in range(0, len(whole), _TOKEN)]
        stream = b"".join((_OPENING, *deltas, _END))
        for at in range(1, len(stream)):
            is_wrong = _parsed((stream[:at], stream[at:]), next(plays)) != value
            cuts = cuts._replace(answers=cuts.answers + 1, wrong=cuts.wrong + is_wrong)
            if cuts.answers >= count:
                return cuts
    raise AssertionError


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
        answers = run(_run("sync", emulator.base_url, range(pairs // 2), ended))
        answers |= run(_run("async", emulator.base_url, range(pairs // 2, pairs), ended))
        time.sleep(_ROUND_TRIP_TIME_S)  # the last reset is on its way
        log = emulator.log()
    if connections(log, "fastlane") != 2:
        raise RuntimeError("ours was to have one connection of each mode")
    cuts = _cut_answers(pieces)
    figures = _figures(answers, exact, log, ended) | {
        "answers_cut_between_reads": cuts.answers,
        "wrong_results_of_cut_answers": cuts.wrong,
        "answers_ended_early": cuts.ended,
        "ended_early_and_taken_for_whole": cuts.taken_for_whole,
        "pairs_of_a_kind": pairs,
    }
    return Report(
        figures=figures,
        reach={
            **{f"{kind}_tokens_ratio": ">= 5" for kind in _KINDS},
            "server_went_on_after_reset_p99_ms": f"<= {1e3 * _ROUND_TRIP_TIME_S}",
            "streams_not_reset": "== 0",
            "wrong_results": "== 0",
            "wrong_results_of_cut_answers": "== 0",
            "ended_early_and_taken_for_whole": "== 0",
        },
    )
