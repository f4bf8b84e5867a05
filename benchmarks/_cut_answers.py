"""Structured answers of a prepared provider in pieces, cut wherever they can be, and what the client makes of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import httpx2
import openai
import pydantic

import fastlane
from benchmarks._prepared import MODEL, Prepared, event_of
from benchmarks._structured import CATEGORIES, OUTPUT_LIMIT, Case, ticket

_TEXTS = ("late", 'said "no"', "a brace } and a \\ in it", "für Größe", "雪 and 🛰", "", "line\nline", "[1, {}]")
_BEHIND = ("", "\n\n\n" + " " * 200, "\n\nThat is how } I see it.", "\n{}", "\n" * 9)
_OPENING = event_of({"role": "assistant", "content": ""})
_END = event_of({}, "stop") + b"data: [DONE]\n\n"
_END_AT_LIMIT = event_of({}, "length") + b"data: [DONE]\n\n"
_TOKEN = 4


class Cuts(NamedTuple):
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
                model=MODEL, messages=ticket(1), response_format=Case, max_completion_tokens=OUTPUT_LIMIT
            )
        except (openai.LengthFinishReasonError, fastlane.InvalidOutputError, pydantic.ValidationError):
            return None
        return completion.choices[0].message.parsed


def cut_answers(count: int) -> Cuts:
    """Cut answers at every byte of their streams, each into two reads; let every fifth character be the last one."""
    plays = itertools.cycle([fastlane.BoundedOutput(), fastlane.BoundedOutput(early_stop="at_once")])
    cuts = Cuts(0, 0, 0, 0)
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
