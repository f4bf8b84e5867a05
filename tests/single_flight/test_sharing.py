"""Identical calls are sent once, and each gets an answer of its own."""

from __future__ import annotations

import gzip
import threading
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from fastlane.plays.urgency.coalescing import under_way
from tests.attempts.scripted import Script, Upstream, refuse, whole
from tests.single_flight.callers import HANG_S, KINDS, Party, answer, held, in_steps, party_of, texts, until
from tests.transport.peer import Stream


class River(BaseModel):
    name: str


def test_identical_calls_are_sent_once_and_each_gets_an_object_of_its_own(party: Party) -> None:
    gate = threading.Event()
    party.upstream.usually = held(gate, answer("The Rhine"))

    calls = party.asks(8)
    gate.set()
    answers = [call.result(HANG_S) for call in calls]

    assert len(party.upstream.asked) == 1
    assert {answer.choices[0].message.content for answer in answers} == {"The Rhine"}
    answers[0].choices[0].message.content = "changed"
    assert [answer.choices[0].message.content for answer in answers[1:]] == ["The Rhine"] * 7


def test_the_records_say_who_was_sent_and_who_shared(party: Party) -> None:
    gate = threading.Event()
    party.upstream.usually = held(gate, answer("The Rhine"))

    calls = party.asks(3)
    gate.set()
    for call in calls:
        call.result(HANG_S)
    leader, *others = party.records

    assert (leader.urgency.shared_with, leader.urgency.sharers) == (None, 2)
    assert [attempt.kind for attempt in leader.attempts] == ["first"]
    for record in others:
        assert (record.urgency.shared_with, record.urgency.sharers) == (leader.call_id, 0)
        assert [attempt.kind for attempt in record.attempts] == ["shared"]
        assert record.attempts[0].request_body_bytes is None
        assert (record.outcome, record.status_code, record.transport) == ("completed", 200, "fastlane")
        assert record.usage == leader.usage
        assert record.to_dict()["attempts"][0]["kind"] == "shared"


def test_an_answer_that_has_ended_is_shared_with_nobody_who_comes_then(party: Party) -> None:
    party.ask().result(HANG_S)
    party.ask().result(HANG_S)

    assert len(party.upstream.asked) == 2
    assert [record.urgency.sharers for record in party.records] == [0, 0]


def test_each_gets_the_answer_in_the_form_that_it_asked_for(party: Party) -> None:
    gate = threading.Event()
    party.upstream.usually = held(gate, answer("The Rhine"))

    typed = party.asks(1)[0]
    raw = party.method(lambda client: client.chat.completions.with_raw_response.create)
    until(lambda: _members() == 2)
    gate.set()
    parsed = raw.result(HANG_S)

    assert len(party.upstream.asked) == 1
    assert parsed.status_code == 200
    assert parsed.headers["content-type"] == "application/json"
    assert parsed.parse().choices[0].message.content == typed.result(HANG_S).choices[0].message.content == "The Rhine"
    assert parsed.elapsed.total_seconds() > 0


def _members() -> int:
    return max((shared.calls for shared in under_way()), default=0)


def test_answers_are_parsed_into_objects_of_their_own(party: Party) -> None:
    gate = threading.Event()
    party.upstream.usually = held(gate, answer('{"name": "Rhine"}'))

    calls = [party.method(lambda client: client.chat.completions.parse, response_format=River) for _ in range(3)]
    until(lambda: _members() == 3)
    gate.set()
    parsed = [call.result(HANG_S).choices[0].message.parsed for call in calls]

    assert len(party.upstream.asked) == 1
    assert parsed == [River(name="Rhine")] * 3
    assert len({id(one) for one in parsed}) == 3


@pytest.mark.parametrize(
    "other",
    [
        {"messages": [{"role": "user", "content": "Name a lake."}]},
        {"seed": 1},
        {"extra_headers": {"OpenAI-Beta": "assistants=v2"}},
        {"extra_headers": {"OpenAI-Organization": "other"}},
        {"extra_body": {"user": "somebody"}},
        {"stream": True},
    ],
    ids=["messages", "seed", "beta", "organization", "user", "stream"],
)
def test_different_calls_are_never_shared(upstream: Upstream, other: dict[str, Any]) -> None:
    gate = threading.Event()
    upstream.usually = held(gate, answer("The Rhine"))
    with party_of("sync", upstream) as party:
        calls = [party.ask(), party.ask(**other)]
        until(lambda: len(upstream.asked) == 2)
        gate.set()
        for call in calls:
            call.result(HANG_S)


def test_two_accounts_never_share(party: Party) -> None:
    gate = threading.Event()
    party.upstream.usually = held(gate, answer("The Rhine"))

    calls = [party.ask(), party.ask(party.new_client(api_key="sk-other"))]
    until(lambda: len(party.upstream.asked) == 2)
    gate.set()
    for call in calls:
        call.result(HANG_S)

    assert sorted(map(str, party.upstream.keys)) == ["Bearer sk-other", "Bearer sk-test"]


def test_two_clients_of_one_account_share(party: Party) -> None:
    gate = threading.Event()
    party.upstream.usually = held(gate, answer("The Rhine"))

    calls = [party.ask(), party.ask(party.new_client())]
    until(lambda: _members() == 2)
    gate.set()

    assert [call.result(HANG_S).choices[0].message.content for call in calls] == ["The Rhine"] * 2
    assert len(party.upstream.asked) == 1


def test_a_call_that_is_not_deterministic_is_sent_by_itself(party: Party) -> None:
    gate = threading.Event()
    party.upstream.usually = held(gate, answer("The Rhine"))

    calls = [party.ask(temperature=1) for _ in range(2)]
    until(lambda: len(party.upstream.asked) == 2)
    gate.set()
    for call in calls:
        call.result(HANG_S)

    assert [record.urgency.why_not_shared for record in party.records] == [
        "it is not deterministic: it has neither a temperature of 0 nor a seed"
    ] * 2


def test_without_the_setting_nothing_is_shared(upstream: Upstream) -> None:
    gate = threading.Event()
    upstream.usually = held(gate, answer("The Rhine"))
    with party_of("sync", upstream) as party:
        from fastlane import Connection
        from fastlane.plays.urgency.play import Urgency

        client = party.new_client(only_plays=[Connection(), Urgency()])
        calls = [party.ask(client) for _ in range(2)]
        until(lambda: len(upstream.asked) == 2)
        gate.set()
        for call in calls:
            call.result(HANG_S)


def test_a_refusal_of_the_request_is_everybodys(party: Party) -> None:
    gate = threading.Event()
    party.upstream.usually = held(gate, refuse(400, code="bad"))

    calls = party.asks(4)
    gate.set()
    errors = [call.exception(HANG_S) for call in calls]

    assert len(party.upstream.asked) == 1
    assert all(type(error) is openai.BadRequestError for error in errors)
    assert len({id(error) for error in errors}) == 4
    assert len({id(error.response) for error in errors if isinstance(error, openai.BadRequestError)}) == 4
    assert [record.error for record in party.records] == ["BadRequestError"] * 4


@pytest.mark.parametrize("kind", KINDS)
def test_calls_of_one_sharing_need_one_place_between_them(kind: str, upstream: Upstream) -> None:
    gate = threading.Event()
    upstream.usually = held(gate, answer("The Rhine"))
    with party_of(kind, upstream, max_concurrency=1) as party:
        calls = party.asks(5)
        gate.set()
        for call in calls:
            call.result(HANG_S)

        assert len(upstream.asked) == 1
        assert [record.urgency.admission is None for record in party.records] == [False, True, True, True, True]


def test_streamed_calls_are_sent_by_themselves(party: Party) -> None:
    gate = threading.Event()
    party.upstream.usually = in_steps(gate)

    readings = party.streams(2)
    gate.set()
    events = [reading.rest().result(HANG_S) for reading in readings]

    assert len(party.upstream.asked) == 2
    assert [texts(each) for each in events] == ["One two three four "] * 2
    assert [record.urgency.why_not_shared for record in party.records] == ["its answer is streamed"] * 2


def test_calls_of_two_levels_do_not_share(party: Party) -> None:
    """An interactive call does not wait behind a background one that waits for its slot."""
    gate = threading.Event()
    party.upstream.usually = held(gate, answer("The Rhine"))

    calls = [party.ask(party.client.with_urgency(level)) for level in ("background", "interactive")]
    until(lambda: len(party.upstream.asked) == 2)
    gate.set()
    for call in calls:
        call.result(HANG_S)


def test_compressed_bytes_are_shared_decoded(party: Party) -> None:
    gate = threading.Event()
    party.upstream.usually = held(gate, compressed("The Rhine"))

    calls = party.asks(2)
    gate.set()

    assert [call.result(HANG_S).choices[0].message.content for call in calls] == ["The Rhine"] * 2
    assert len(party.upstream.asked) == 1


def compressed(text: str) -> Script:
    def script(upstream: Upstream, stream: Stream, body: dict[str, Any]) -> None:
        stream.head(200, (("content-type", "application/json"), ("content-encoding", "gzip")))
        stream.data(gzip.compress(whole(body["model"], text)), end=True)

    return script
