"""A closed client leaves no call waiting: what has not been sent finds it closed, and others go on."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Any

import openai
import pytest

from fastlane import Connection, Hedging, Urgency
from fastlane.engine.drivers import waiting_on
from fastlane.plays.urgency.slots import queues
from tests.attempts.scripted import Upstream, answer, refuse, say_nothing
from tests.races.callers import Party, held
from tests.waiting import HANG_S, until

ANOTHER: list[Any] = [{"role": "user", "content": "Something else."}]
ENDLESS = ("retry-after", "59")  # more than a test takes, and as much as openai's loop waits


def close(party: Party, client: Any) -> None:
    party.run(client.close).result(HANG_S)


def queued() -> int:
    return sum(sum(queue.queued) for _, queue in queues.items())


def raised_client_closed(call: Future[Any]) -> bool:
    """As openai's client says it of a call that comes too late: some of its versions in an error of their own."""
    error: BaseException | None = call.exception(HANG_S)
    cause = error.__cause__ if isinstance(error, openai.APIConnectionError) else error
    return type(cause) is RuntimeError and "the client has been closed" in str(cause)


def a_client(party: Party, *plays: Any, **options: Any) -> Any:
    return party.new_client(only_plays=[Connection(), *plays], **options)


def has_records(client: Any, *outcomes: str) -> bool:
    return sorted(record.outcome for record in client.calls) == sorted(outcomes)


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_close_ends_the_wait_for_a_slot(kind: str, upstream: Upstream) -> None:
    gate = threading.Event()
    upstream.usually = held(gate, answer("The Rhine"))
    urgency = Urgency(max_concurrency=1, reserved=0.0)
    with Party(kind, upstream) as party:
        leaves, stays = a_client(party, urgency), a_client(party, urgency)
        before = party.ask(stays)
        until(lambda: len(upstream.asked) == 1)
        waits = [party.ask(leaves), party.ask(leaves.with_options(max_retries=5))]
        behind = party.ask(stays)
        until(lambda: queued() == 3)
        close(party, leaves)

        assert all(raised_client_closed(call) for call in waits)
        until(lambda: queued() == 1)
        gate.set()
        for call in (before, behind):
            assert call.result(HANG_S).choices[0].message.content == "The Rhine"
        assert len(upstream.asked) == 2
        assert has_records(leaves, "failed", "failed")
        close(party, stays)


@pytest.mark.parametrize("plays", [(), (Urgency(),), (Hedging(),)], ids=["bare", "urgency", "hedging"])
def test_close_ends_the_pause_before_a_retry(kind: str, upstream: Upstream, plays: tuple[Any, ...]) -> None:
    upstream.usually = refuse(429, ENDLESS)
    with Party(kind, upstream) as party:
        client = a_client(party, *plays, max_retries=1)
        call = party.ask(client)
        until(lambda: len(waiting_on(client._client)) == 1)  # it has been refused, and waits to be sent again
        close(party, client)

        assert raised_client_closed(call)
        assert len(upstream.asked) == 1
        assert has_records(client, "failed")


def test_call_after_close_raises_at_once(kind: str, upstream: Upstream) -> None:
    with Party(kind, upstream, max_concurrency=1) as party:
        clients = [party.new_client(), a_client(party), a_client(party, Hedging()), a_client(party, Urgency())]
        for client in clients:
            close(party, client)
            assert raised_client_closed(party.ask(client))
        assert upstream.asked == []


def test_close_ends_calls_in_flight(kind: str, upstream: Upstream) -> None:
    upstream.usually = say_nothing
    with Party(kind, upstream) as party:
        client = a_client(party, max_retries=0)
        close(party, party.client)  # no other client may keep the connections
        calls = [party.ask(client), party.ask(client.with_options(timeout=500))]
        until(lambda: len(upstream.asked) == 2)
        close(party, client)

        assert all(
            isinstance(call.exception(HANG_S), openai.APIConnectionError) or raised_client_closed(call)
            for call in calls
        )


def test_client_of_two_loops_is_closed_on_one_of_them_for_both(upstream: Upstream) -> None:
    gate = threading.Event()
    upstream.usually = held(gate, answer("The Rhine"))
    with Party("async", upstream, max_concurrency=1, reserved=0.0) as party:
        leaves = a_client(party, Urgency(max_concurrency=1, reserved=0.0))
        before = party.ask(messages=ANOTHER)
        until(lambda: len(upstream.asked) == 1)
        waits = party.ask(leaves)
        until(lambda: queued() == 1)
        asyncio.run(leaves.close())

        assert raised_client_closed(waits)
        gate.set()
        before.result(HANG_S)
