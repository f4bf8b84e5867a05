"""Calls that leave or fail take nothing from the others: the next one sends the request."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import openai
import pytest

import fastlane
from fastlane import Connection
from fastlane.plays.urgency import coalescing
from fastlane.plays.urgency.coalescing import under_way
from fastlane.plays.urgency.play import Urgency
from tests.attempts.scripted import Upstream, break_off, refuse, say_nothing
from tests.single_flight.callers import HANG_S, KINDS, MESSAGES, Party, answer, has_joined, held, party_of, until


def was_reset(upstream: Upstream) -> bool:
    return bool(upstream.silent) and upstream.silent[-1].reset is not None


def calls_at_once() -> int:
    return max((shared.calls for shared in under_way()), default=0)


# Leaving


def test_cancelled_leader_hands_the_request_over(upstream: Upstream) -> None:
    upstream.scripts = [say_nothing]
    upstream.usually = answer("The Rhine")
    with party_of("async", upstream) as party:
        calls = party.asks(3)
        until(lambda: bool(upstream.silent))
        calls[0].cancel()

        for call in calls[1:]:
            assert call.result(HANG_S).choices[0].message.content == "The Rhine"
        assert was_reset(upstream)
        assert len(upstream.asked) == 2
        assert [record.outcome for record in party.records] == ["cancelled", "completed", "completed"]


def test_cancelled_follower_leaves_alone(upstream: Upstream) -> None:
    gate = threading.Event()
    upstream.usually = held(gate, answer("The Rhine"))
    with party_of("async", upstream) as party:
        calls = party.asks(3)
        calls[1].cancel()
        until(lambda: calls_at_once() == 2)
        gate.set()
        for call in (calls[0], calls[2]):
            call.result(HANG_S)

        assert len(upstream.asked) == 1
        assert sorted(record.outcome for record in party.records) == ["cancelled", "completed", "completed"]


def test_cancelling_all_stops_the_server(upstream: Upstream) -> None:
    upstream.usually = held(threading.Event(), answer("The Rhine"))
    with party_of("async", upstream) as party:
        calls = party.asks(3)
        until(lambda: bool(upstream.silent))
        for call in reversed(calls):
            call.cancel()

        until(lambda: was_reset(upstream))
        until(lambda: not under_way())
        assert len(upstream.asked) == 1


def test_follower_keeps_to_its_own_timeout(party: Party) -> None:
    gate = threading.Event()
    party.upstream.usually = held(gate, answer("The Rhine"))

    patient = party.ask()
    until(lambda: has_joined(1))
    short = party.ask(party.client.with_options(timeout=0.5, max_retries=0))
    error = short.exception(HANG_S)
    gate.set()

    assert type(error) is openai.APITimeoutError
    assert patient.result(HANG_S).choices[0].message.content == "The Rhine"
    assert len(party.upstream.asked) == 1
    attempt = party.records[1].attempts[0]
    assert (attempt.kind, attempt.error) == ("shared", "ReadTimeout")


def test_timeout_of_the_leader_hands_the_request_over(party: Party) -> None:
    party.upstream.scripts = [say_nothing]
    party.upstream.usually = answer("The Rhine")

    short = party.ask(party.client.with_options(timeout=1.0, max_retries=0))
    until(lambda: has_joined(1))
    patient = party.ask()

    assert type(short.exception(HANG_S)) is openai.APITimeoutError
    assert patient.result(HANG_S).choices[0].message.content == "The Rhine"
    assert len(party.upstream.asked) == 2


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="the system sends no signal to a thread")
def test_ctrl_c_in_the_leader_hands_the_request_over(upstream: Upstream) -> None:
    def press() -> None:
        until(lambda: bool(upstream.silent))
        others.append(party.ask())
        until(lambda: has_joined(2))
        upstream.usually = answer("The Rhine")
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    others: list[Future[Any]] = []
    upstream.usually = say_nothing
    with party_of("sync", upstream) as party:
        pressing = threading.Thread(target=press)
        pressing.start()
        with pytest.raises(KeyboardInterrupt):
            party.client.chat.completions.create(model="m", messages=MESSAGES, temperature=0)
        pressing.join()

        assert others[0].result(HANG_S).choices[0].message.content == "The Rhine"
        assert len(upstream.asked) == 2
    until(lambda: not under_way())


# Failing


@pytest.mark.parametrize("status", [429, 500])
def test_each_call_retries_a_shared_refusal(party: Party, status: int) -> None:
    gate, again = threading.Event(), threading.Event()
    party.upstream.scripts = [held(gate, refuse(status, ("retry-after-ms", "10")))]
    party.upstream.usually = held(again, answer("The Rhine"))

    calls = party.asks(4)
    gate.set()
    until(lambda: len(party.upstream.asked) == 2 and has_joined(4))
    again.set()

    assert {call.result(HANG_S).choices[0].message.content for call in calls} == {"The Rhine"}
    assert len(party.upstream.asked) == 2
    assert len([record for record in party.records if record.urgency.shared_with is None]) == 1
    assert all([one.status_code for one in record.attempts] == [status, 200] for record in party.records)


def test_broken_connection_hands_the_request_over(party: Party) -> None:
    gate = threading.Event()
    party.upstream.scripts = [held(gate, break_off)]
    party.upstream.usually = answer("The Rhine")

    calls = party.asks(4)
    gate.set()

    assert {call.result(HANG_S).choices[0].message.content for call in calls} == {"The Rhine"}


def test_each_call_has_its_own_number_of_retries(party: Party) -> None:
    gate, again = threading.Event(), threading.Event()
    party.upstream.scripts = [held(gate, refuse(429, ("retry-after-ms", "10")))]
    party.upstream.usually = held(again, answer("The Rhine"))

    calls = [party.ask(party.client.with_options(max_retries=0))]
    for joined in (1, 2):
        until(lambda joined=joined: has_joined(joined))  # type: ignore[misc]
        calls.append(party.ask())
    until(lambda: has_joined(3))
    gate.set()
    assert isinstance(calls[0].exception(HANG_S), openai.RateLimitError)
    until(lambda: has_joined(2))
    again.set()

    assert [call.result(HANG_S).choices[0].message.content for call in calls[1:]] == ["The Rhine"] * 2
    assert len(party.upstream.asked) == 2


# Slots


def test_leader_that_leaves_the_queue_is_followed(upstream: Upstream) -> None:
    gate = threading.Event()
    upstream.usually = held(gate, answer("The Rhine"))
    with party_of("async", upstream, max_concurrency=1) as party:
        before = party.ask(messages=[{"role": "user", "content": "Something else."}])
        until(lambda: len(upstream.asked) == 1)
        calls = [party.ask(), party.ask(), party.ask()]
        until(lambda: has_joined(3))
        calls[0].cancel()
        until(lambda: any(shared.calls == 2 for shared in under_way()))
        gate.set()

        for call in (before, *calls[1:]):
            assert call.result(HANG_S).choices[0].message.content == "The Rhine"
        assert len(upstream.asked) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_leader_whose_client_is_closed_is_followed(kind: str, upstream: Upstream) -> None:
    gate = threading.Event()
    upstream.usually = held(gate, answer("The Rhine"))
    with party_of(kind, upstream, max_concurrency=1) as party:
        before = party.ask(messages=[{"role": "user", "content": "Something else."}])
        until(lambda: len(upstream.asked) == 1)
        closing = party.new_client(max_retries=0)
        first = party.ask(closing)
        until(lambda: len(under_way()) == 2)
        second = party.ask()
        until(lambda: has_joined(2))

        async def close() -> None:
            await closing.close()

        party.run(closing.close, close).result(HANG_S)
        error = first.exception(HANG_S)
        assert isinstance(error, RuntimeError | openai.APIConnectionError)  # the client has been closed
        gate.set()

        assert before.result(HANG_S).choices[0].message.content == "The Rhine"
        assert second.result(HANG_S).choices[0].message.content == "The Rhine"
        assert len(upstream.asked) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_leader_that_gets_no_slot_is_followed(kind: str, upstream: Upstream) -> None:
    gate = threading.Event()
    upstream.usually = held(gate, answer("The Rhine"))
    with party_of(kind, upstream, max_concurrency=1) as party:
        before = party.ask(messages=[{"role": "user", "content": "Something else."}])
        until(lambda: len(upstream.asked) == 1)
        hurried = Urgency(single_flight=True, max_concurrency=1, max_wait_s=1.0)
        refused = party.ask(party.new_client(only_plays=[Connection(), hurried]))
        until(lambda: len(under_way()) == 2)
        patient = party.ask()
        until(lambda: has_joined(2))
        error = refused.exception(HANG_S)
        gate.set()

        assert type(error).__name__ == "QueueTimeoutError"
        for call in (before, patient):
            assert call.result(HANG_S).choices[0].message.content == "The Rhine"
        assert len(upstream.asked) == 2


# Forks and garbage collections


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_child_process_shares_nothing_with_its_parent(upstream: Upstream) -> None:
    gate = threading.Event()
    upstream.usually = held(gate, answer("The Rhine"))
    with party_of("sync", upstream) as party:
        calls = party.asks(2)
        child = os.fork()
        if not child:
            os._exit(len(under_way()))
        _, status = os.waitpid(child, 0)
        gate.set()

        assert os.waitstatus_to_exitcode(status) == 0
        for call in calls:
            call.result(HANG_S)


@pytest.mark.asyncio
async def test_collected_leader_waits_for_no_lock(upstream: Upstream) -> None:
    upstream.scripts = [say_nothing]
    upstream.usually = answer("The Rhine")
    plays = [Connection(), Urgency(single_flight=True)]
    async with fastlane.AsyncOpenAI(api_key="sk-test", base_url=upstream.url, only_plays=plays, strict=True) as client:
        create = client.chat.completions.create
        calls = [asyncio.create_task(create(model="m", messages=MESSAGES, temperature=0)) for _ in range(2)]
        while not (has_joined(2) and upstream.asked):  # noqa: ASYNC110 - nobody sets an event
            await asyncio.sleep(0.005)
        waited = threading.Event()

        def let_go() -> None:
            waited.set()
            coalescing._lock.release()

        coalescing._lock.acquire()
        patience = threading.Timer(HANG_S, let_go)
        patience.start()
        # As the collector does, whenever it likes.
        coroutine: Any = calls[0].get_coro()
        coroutine.close()
        patience.cancel()
        assert not waited.is_set()
        coalescing._lock.release()

        assert (await calls[1]).choices
        calls[0].cancel()
        with suppress(asyncio.CancelledError, RuntimeError):
            await calls[0]
    assert not under_way()
