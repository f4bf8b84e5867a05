"""Shared answers beside the other plays, and against the embedded provider, whose log counts what was really asked."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pytest

import fastlane
from fastlane import BoundedOutput, Call, Connection, Encoding, Hedging, Play, PromptCache, Stage
from fastlane.emulator import Emulator
from fastlane.plays.urgency.play import Urgency
from fastlane.records.record import CallRecord
from tests.attempts.scripted import Upstream, answer
from tests.single_flight.callers import (
    HANG_S,
    KINDS,
    MESSAGES,
    Party,
    held,
    in_steps,
    party_of,
    texts,
    until,
)

CALLERS = 24
# The emulated provider takes its time, so that the slowest thread comes while the request is under way.
RIVER = {
    "type": "json_schema",
    "json_schema": {
        "name": "river",
        "schema": {
            "type": "object",
            "properties": {"name": {"type": "string", "maxLength": 20}},
            "required": ["name"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
SLOWLY = {"x-emulator-prefill-ms": "1000", "x-emulator-output-tokens": "30"}


def test_the_provider_is_asked_once_by_threads(provider: Emulator) -> None:
    client = fastlane.OpenAI(
        api_key="sk-test", base_url=provider.base_url, only_plays=[Connection(), Urgency(single_flight=True)]
    )

    def ask(_: int) -> Any:
        made: Any = client.chat.completions.create(model="m", messages=MESSAGES, temperature=0, extra_headers=SLOWLY)
        return made.model_dump()

    with ThreadPoolExecutor(CALLERS) as pool:
        answers = list(pool.map(ask, range(CALLERS)))

    assert len(provider.log()) == 1
    assert all(one == answers[0] for one in answers)


@dataclass(frozen=True)
class Labels(Play):
    """A play of an application's own that changes no bytes."""

    stage = Stage.SEND

    def plan(self, call: Call) -> Call:
        return replace(call, changes=(*call.changes, "labelled"))


@dataclass(frozen=True)
class LabelsBodies(Labels):
    stage = Stage.ENCODE


@pytest.mark.parametrize("play", [Labels(), LabelsBodies()], ids=["send", "encode"])
def test_own_play_of_a_late_stage_leaves_calls_as_they_are(provider: Emulator, play: Play) -> None:
    """The core goes by what a play declares, and not by its stage."""
    client = fastlane.OpenAI(
        api_key="sk-test", base_url=provider.base_url, only_plays=[Connection(), Urgency(single_flight=True), play]
    )

    def ask(_: int) -> Any:
        return client.chat.completions.create(model="m", messages=MESSAGES, temperature=0, extra_headers=SLOWLY)

    with ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(ask, range(CALLERS)))

    assert len(provider.log()) == 1
    assert {record.changes for record in client.calls} == {("labelled",)}
    assert not any(play.compresses_bodies for play in client.plays)


def test_the_provider_is_asked_once_by_tasks(provider: Emulator) -> None:
    async def ask(client: Any) -> Any:
        made = await client.chat.completions.create(model="m", messages=MESSAGES, temperature=0, extra_headers=SLOWLY)
        return made.model_dump()

    async def main() -> list[Any]:
        plays = [Connection(), Urgency(single_flight=True)]
        async with fastlane.AsyncOpenAI(api_key="sk-test", base_url=provider.base_url, only_plays=plays) as client:
            return await asyncio.gather(*[ask(client) for _ in range(CALLERS)])

    answers = asyncio.run(main())

    assert len(provider.log()) == 1
    assert all(one == answers[0] for one in answers)


def test_the_same_response_is_shared_where_the_provider_does_not_keep_it(provider: Emulator) -> None:
    async def main() -> list[Any]:
        plays = [Connection(), Urgency(single_flight=True)]
        async with fastlane.AsyncOpenAI(api_key="sk-test", base_url=provider.base_url, only_plays=plays) as client:
            asked: dict[str, Any] = {"model": "m", "input": "Name a river.", "temperature": 0, "extra_headers": SLOWLY}
            kept = [client.responses.create(**asked) for _ in range(2)]
            shared = [client.responses.create(**asked, store=False) for _ in range(3)]
            return await asyncio.gather(*kept, *shared)

    answers = asyncio.run(main())

    assert len(provider.log()) == 3
    assert len({answer.id for answer in answers}) == 3


def _shared(party: Party, count: int, **body: Any) -> tuple[list[Any], CallRecord, list[CallRecord]]:
    gate = threading.Event()
    party.upstream.usually = held(gate, answer('{"name": "Rhine"}'))
    calls = party.asks(count, **body)
    gate.set()
    answers = [call.result(HANG_S) for call in calls]
    assert len(party.upstream.asked) == 1
    leader, *others = party.records
    return answers, leader, others


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_bounded_and_checked_for_each(kind: str, upstream: Upstream) -> None:
    with party_of(kind, upstream, BoundedOutput(early_stop=False)) as party:
        answers, leader, others = _shared(party, 3, response_format=RIVER)

    assert [json.loads(answer.choices[0].message.content) for answer in answers] == [{"name": "Rhine"}] * 3
    verdicts = [record.output.verdict for record in (leader, *others) if record.output is not None]
    assert verdicts == ["valid"] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_answers_that_are_streamed_underneath_are_not_shared(kind: str, upstream: Upstream) -> None:
    upstream.usually = answer('{"name": "Rhine"}')
    with party_of(kind, upstream, BoundedOutput()) as party:
        party.ask(response_format=RIVER).result(HANG_S)

        assert party.records[0].urgency.why_not_shared == "its answer is streamed"


@pytest.mark.parametrize("kind", KINDS)
def test_a_hit_of_the_prompt_cache_is_counted_for_the_call_that_was_sent(kind: str, upstream: Upstream) -> None:
    with party_of(kind, upstream, PromptCache()) as party:
        _, leader, others = _shared(party, 3)

    assert leader.prompt_cache is not None
    assert [record.prompt_cache for record in others] == [None, None]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_shared_is_no_tokens_of_ones_own(kind: str, upstream: Upstream) -> None:
    with party_of(kind, upstream) as party:
        _, leader, others = _shared(party, 3)

    assert (leader.savings.shared_tokens, leader.savings.response_bytes is None) == (None, False)
    for record in others:
        assert record.savings.shared_tokens == 7
        assert (record.savings.request_bytes, record.savings.response_bytes) == (None, None)
        assert record.savings.cache_read_tokens is None


@pytest.mark.parametrize("kind", KINDS)
def test_the_body_may_travel_in_another_form(kind: str, upstream: Upstream) -> None:
    with party_of(kind, upstream, Encoding()) as party:
        answers, _, _ = _shared(party, 3)

    assert len(answers) == 3


def test_a_call_that_may_be_sent_twice_is_not_shared(upstream: Upstream) -> None:
    gate = threading.Event()
    upstream.usually = in_steps(gate)
    with party_of("sync", upstream, Hedging()) as party:
        first, second = party.streams(2)
        until(lambda: len(upstream.asked) == 2)
        gate.set()

        assert texts(first.rest().result(HANG_S)) == texts(second.rest().result(HANG_S))


def test_a_report_and_a_span_can_be_made_of_a_shared_call(upstream: Upstream) -> None:
    with party_of("sync", upstream) as party:
        _shared(party, 3)
        text = str(party.client.report())

    assert "shared" in text
