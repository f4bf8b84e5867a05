"""Whoever leaves takes nothing from the others, and the last one has the server stop."""

from __future__ import annotations

import asyncio
import gc
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
from fastlane.plays.urgency.play import Urgency
from fastlane.plays.urgency.single_flight import _flight, _threads, flights
from fastlane.transport.drivers import thread_driver as starting
from tests.attempts.scripted import Upstream, break_off, refuse
from tests.single_flight.callers import (
    HANG_S,
    KINDS,
    MESSAGES,
    Party,
    answer,
    has_joined,
    held,
    in_steps,
    party_of,
    texts,
    until,
)


def was_reset(upstream: Upstream) -> bool:
    return bool(upstream.silent) and upstream.silent[-1].reset is not None


def members() -> int:
    return max((flight.members for flight in flights()), default=0)


# Leaving


def test_whoever_began_a_stream_may_close_it(party: Party) -> None:
    gate = threading.Event()
    party.upstream.usually = in_steps(gate)

    first, second = party.streams(2)
    first.take(2).result(HANG_S)
    first.close()
    gate.set()

    assert texts(second.rest().result(HANG_S)) == "One two three four "
    assert len(party.upstream.asked) == 1
    assert [record.outcome for record in party.records] == ["closed", "completed"]


def test_whoever_began_a_stream_may_drop_it(party: Party) -> None:
    gate = threading.Event()
    party.upstream.usually = in_steps(gate)

    readings = party.streams(2)
    readings[0].take(1).result(HANG_S)
    second = readings.pop()
    readings.clear()
    gc.collect()
    until(lambda: members() == 1)
    gate.set()

    assert texts(second.rest().result(HANG_S)) == "One two three four "


def test_when_all_have_closed_a_stream_the_server_is_told_to_stop(party: Party) -> None:
    party.upstream.usually = in_steps(threading.Event())

    for reading in party.streams(3):
        reading.take(2).result(HANG_S)
        assert not was_reset(party.upstream)
        reading.close()

    until(lambda: was_reset(party.upstream))
    assert not flights()


def test_when_all_have_dropped_a_stream_the_server_is_told_to_stop(party: Party) -> None:
    party.upstream.usually = in_steps(threading.Event())

    readings = party.streams(3)
    readings[0].take(2).result(HANG_S)
    readings.clear()
    gc.collect()

    until(lambda: was_reset(party.upstream))
    until(lambda: not flights())


@pytest.mark.parametrize("stream", [False, True])
def test_a_task_that_began_may_be_cancelled(upstream: Upstream, stream: bool) -> None:
    gate = threading.Event()
    upstream.usually = held(gate, answer("The Rhine"))
    with party_of("async", upstream) as party:
        calls = party.asks(3, stream=stream)
        calls[0].cancel()
        until(lambda: members() == 2)
        gate.set()
        for call in calls[1:]:
            call.result(HANG_S)

        assert len(upstream.asked) == 1
        assert party.records[0].outcome == "cancelled"


def test_when_all_tasks_are_cancelled_the_server_is_told_to_stop(upstream: Upstream) -> None:
    upstream.usually = held(threading.Event(), answer("The Rhine"))
    with party_of("async", upstream) as party:
        calls = party.asks(3)
        until(lambda: bool(upstream.silent))
        for call in calls:
            call.cancel()

        until(lambda: was_reset(upstream))
        until(lambda: not flights())
        tasks = asyncio.run_coroutine_threadsafe(_tasks(), party._loop).result(HANG_S)
        assert tasks == []


async def _tasks() -> list[str]:
    for _ in range(100):
        names = [task.get_name() for task in asyncio.all_tasks()]
        if "fastlane flight" not in names:
            return []
        await asyncio.sleep(0.02)
    return names


def test_a_task_that_reads_for_all_may_be_cancelled(upstream: Upstream) -> None:
    gate = threading.Event()
    upstream.usually = in_steps(gate)
    with party_of("async", upstream) as party:
        first, second = party.streams(2)
        for reading in (first, second):
            reading.take(2).result(HANG_S)
        waits = first.take(1)  # it is the one that reads
        until(lambda: any(flight.is_reading for flight in flights()))
        rest = second.rest()
        waits.cancel()
        until(lambda: members() == 1)
        gate.set()

        assert texts(rest.result(HANG_S)) == "One two three four "


def test_time_outs_hold_for_each(party: Party) -> None:
    gate = threading.Event()
    party.upstream.usually = held(gate, answer("The Rhine"))

    short = party.ask(party.client.with_options(timeout=2.0, max_retries=0))
    until(lambda: has_joined(1))
    patient = party.ask()
    until(lambda: has_joined(2))
    error = short.exception(HANG_S)
    gate.set()

    assert type(error) is openai.APITimeoutError
    assert patient.result(HANG_S).choices[0].message.content == "The Rhine"
    assert len(party.upstream.asked) == 1
    assert party.records[0].attempts[0].error == "ReadTimeout"


def test_who_has_waited_too_long_goes_on_with_the_same_request_when_it_tries_again(upstream: Upstream) -> None:
    gate = threading.Event()
    upstream.usually = held(gate, answer("The Rhine"))
    with party_of("sync", upstream) as party:
        short = party.ask(party.client.with_options(timeout=2.0, max_retries=1))
        until(lambda: has_joined(1))
        patient = party.ask()
        until(lambda: has_joined(2))
        until(lambda: flights()[0].joined == 3)
        gate.set()

        for call in (short, patient):
            assert call.result(HANG_S).choices[0].message.content == "The Rhine"
        assert len(upstream.asked) == 1


def test_time_outs_in_a_stream_hold_for_each(party: Party) -> None:
    gate = threading.Event()
    party.upstream.usually = in_steps(gate)

    patient = party.streams(1)[0]
    hurried_client = party.client.with_options(timeout=2.0)
    hurried = party.ask(hurried_client, stream=True).result(HANG_S)
    patient.take(2).result(HANG_S)

    def sync() -> list[Any]:
        return list(hurried)

    async def tasks() -> list[Any]:
        return [event async for event in hurried]

    error = party.run(sync, tasks).exception(HANG_S)
    assert "Timeout" in type(error).__name__
    gate.set()

    assert texts(patient.rest().result(HANG_S)) == "One two three four "
    assert len(party.upstream.asked) == 1


# Failing


@pytest.mark.parametrize(
    "failure",
    [refuse(429, ("retry-after-ms", "10")), refuse(500, ("retry-after-ms", "10")), break_off],
    ids=["429", "500", "reset"],
)
def test_what_can_be_tried_again_is_tried_again_by_one_of_them(party: Party, failure: Any) -> None:
    gate = threading.Event()
    party.upstream.scripts = [held(gate, failure)]

    calls = party.asks(4)
    gate.set()
    answers = [call.result(HANG_S) for call in calls]

    assert {answer.choices[0].message.content for answer in answers} == {"from upstream"}
    assert len(party.upstream.asked) == 2
    assert len([record for record in party.records if record.urgency.shared_with is None]) == 1
    assert all(len(record.attempts) == 2 for record in party.records)


def test_each_tries_as_often_as_it_may(party: Party) -> None:
    gate = threading.Event()
    party.upstream.scripts = [held(gate, refuse(429, ("retry-after-ms", "10")))]

    calls = [party.ask(party.client.with_options(max_retries=0))]
    for joined in (1, 2):
        until(lambda joined=joined: has_joined(joined))  # type: ignore[misc]
        calls.append(party.ask())
    until(lambda: has_joined(3))
    gate.set()

    assert isinstance(calls[0].exception(HANG_S), openai.RateLimitError)
    assert [call.result(HANG_S).choices[0].message.content for call in calls[1:]] == ["from upstream"] * 2
    assert len(party.upstream.asked) == 2


def test_when_no_try_is_left_the_error_is_everybodys(party: Party) -> None:
    gate = threading.Event()
    refusal = refuse(429, ("retry-after-ms", "300"))  # in which the slowest thread has come as far as the others
    party.upstream.scripts = [held(gate, refusal)]
    party.upstream.usually = refusal

    calls = party.asks(4)
    gate.set()
    errors = [call.exception(HANG_S) for call in calls]

    assert all(type(error) is openai.RateLimitError for error in errors)
    assert len({id(error) for error in errors}) == 4
    assert len(party.upstream.asked) == 3


def test_a_stream_that_breaks_off_breaks_off_for_all(party: Party) -> None:
    gate = threading.Event()
    party.upstream.usually = in_steps(gate, ends=False)

    readings = party.streams(3)
    for reading in readings:
        reading.take(2).result(HANG_S)
    gate.set()
    errors = [reading.rest().exception(HANG_S) for reading in readings]

    assert len({type(error) for error in errors}) == 1
    assert len({id(error) for error in errors}) == 3
    assert all(error is not None for error in errors)
    assert [texts(reading.events) for reading in readings] == ["One two "] * 3
    assert len(party.upstream.asked) == 1
    assert {record.outcome for record in party.records} == {"failed"}


def test_errors_keep_no_request_of_another_call(party: Party) -> None:
    party.upstream.usually = break_off

    error = party.ask(party.client.with_options(max_retries=0)).exception(HANG_S)

    assert isinstance(error, openai.APIConnectionError)
    told: BaseException | None = error.__cause__.__cause__ if error.__cause__ is not None else None
    while told is not None:
        assert told.__traceback__ is None
        told = told.__cause__


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="the system sends no signal to a thread")
def test_ctrl_c_in_the_thread_that_sends_ends_its_call_alone(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: threading.Thread) -> None:
        if refusals:
            raise refusals.pop()
        starting.start(thread)

    def press() -> None:
        until(lambda: bool(upstream.silent))
        others.append(party.ask())
        until(lambda: has_joined(2))
        upstream.usually = answer("The Rhine")
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    refusals = [RuntimeError("can't start new thread")]
    others: list[Future[Any]] = []
    upstream.usually = held(threading.Event(), answer("Never"))
    monkeypatch.setattr(_threads, "start", start)
    with party_of("sync", upstream) as party:
        pressing = threading.Thread(target=press)
        pressing.start()
        with pytest.raises(KeyboardInterrupt):
            party.client.chat.completions.create(model="m", messages=MESSAGES, temperature=0)
        pressing.join()

        assert others[0].result(HANG_S).choices[0].message.content == "The Rhine"
        assert len(upstream.asked) == 2
    until(lambda: not flights())


# Places


def test_who_waits_for_a_place_and_leaves_is_followed_by_the_next(upstream: Upstream) -> None:
    gate = threading.Event()
    upstream.usually = held(gate, answer("The Rhine"))
    with party_of("async", upstream, max_concurrency=1) as party:
        before = party.ask(messages=[{"role": "user", "content": "Something else."}])
        until(lambda: len(upstream.asked) == 1)
        calls = [party.ask(), party.ask(), party.ask()]
        until(lambda: has_joined(3))
        calls[0].cancel()
        until(lambda: any(flight.members == 2 for flight in flights()))
        gate.set()

        for call in (before, *calls[1:]):
            assert call.result(HANG_S).choices[0].message.content == "The Rhine"
        assert len(upstream.asked) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_who_waits_for_a_place_and_whose_client_is_closed_ends_alone(kind: str, upstream: Upstream) -> None:
    gate = threading.Event()
    upstream.usually = held(gate, answer("The Rhine"))
    with party_of(kind, upstream, max_concurrency=1) as party:
        before = party.ask(messages=[{"role": "user", "content": "Something else."}])
        until(lambda: len(upstream.asked) == 1)
        closing = party.new_client(max_retries=0)
        first = party.ask(closing)
        until(lambda: has_joined(1))
        second = party.ask()
        until(lambda: has_joined(2))

        async def close() -> None:
            await closing.close()

        party.run(closing.close, close).result(HANG_S)
        assert isinstance(first.exception(HANG_S), RuntimeError)  # httpx2's own: the client has been closed
        gate.set()

        assert before.result(HANG_S).choices[0].message.content == "The Rhine"
        assert second.result(HANG_S).choices[0].message.content == "The Rhine"
        assert len(upstream.asked) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_who_is_refused_a_place_is_followed_by_the_next(kind: str, upstream: Upstream) -> None:
    gate = threading.Event()
    upstream.usually = held(gate, answer("The Rhine"))
    with party_of(kind, upstream, max_concurrency=1) as party:
        before = party.ask(messages=[{"role": "user", "content": "Something else."}])
        until(lambda: len(upstream.asked) == 1)
        hurried = Urgency(single_flight=True, max_concurrency=1, max_wait_s=1.0)
        refused = party.ask(party.new_client(only_plays=[Connection(), hurried]))
        until(lambda: has_joined(1))
        patient = party.ask()
        until(lambda: has_joined(2))
        error = refused.exception(HANG_S)
        gate.set()

        assert type(error).__name__ == "QueueTimeoutError"
        for call in (before, patient):
            assert call.result(HANG_S).choices[0].message.content == "The Rhine"
        assert len(upstream.asked) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_who_is_more_urgent_does_not_wait_behind_who_came_first(kind: str, upstream: Upstream) -> None:
    gate = threading.Event()
    upstream.usually = held(gate, answer("The Rhine"))
    with party_of(kind, upstream, max_concurrency=1, reserved=0.0) as party:
        before = party.ask(messages=[{"role": "user", "content": "Something else."}])
        until(lambda: len(upstream.asked) == 1)
        patient = party.ask(party.client.with_urgency("background"), service_tier="auto")
        until(lambda: has_joined(1))
        hurried = party.ask(party.client.with_urgency("interactive"), service_tier="auto")
        until(lambda: has_joined(2))
        gate.set()

        for call in (before, patient, hurried):
            call.result(HANG_S)
        shared = {record.urgency.urgency: record.urgency for record in party.records[1:]}
        assert len(upstream.asked) == 2
        assert shared["interactive"].shared_with is None
        assert shared["background"].shared_with is not None


def test_a_place_is_kept_until_the_answer_ends_though_its_call_has_left(party: Party) -> None:
    gate = threading.Event()
    party.upstream.usually = in_steps(gate)

    first, second = party.streams(2)
    first.take(2).result(HANG_S)
    first.close()
    (flight,) = flights()
    assert flight.place is not None
    gate.set()
    second.rest().result(HANG_S)

    assert flight.place is None


# A child process


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_process_knows_of_no_flight(upstream: Upstream) -> None:
    gate = threading.Event()
    upstream.usually = held(gate, answer("The Rhine"))
    with party_of("sync", upstream) as party:
        calls = party.asks(2)
        child = os.fork()
        if not child:
            os._exit(len(flights()))
        _, status = os.waitpid(child, 0)
        gate.set()

        assert os.waitstatus_to_exitcode(status) == 0
        for call in calls:
            call.result(HANG_S)


@pytest.mark.asyncio
async def test_a_call_that_is_collected_leaves_without_waiting_for_a_lock(upstream: Upstream) -> None:
    gate = threading.Event()
    upstream.usually = held(gate, answer("The Rhine"))
    plays = [Connection(), Urgency(single_flight=True)]
    async with fastlane.AsyncOpenAI(api_key="sk-test", base_url=upstream.url, only_plays=plays, strict=True) as client:
        create = client.chat.completions.create
        calls = [asyncio.create_task(create(model="m", messages=MESSAGES, temperature=0)) for _ in range(2)]
        while not (has_joined(2) and upstream.asked):  # noqa: ASYNC110 - nobody sets an event
            await asyncio.sleep(0.005)
        waited = threading.Event()

        def let_go() -> None:
            waited.set()
            _flight.lock.release()

        _flight.lock.acquire()
        patience = threading.Timer(HANG_S, let_go)
        patience.start()
        # As the collector does, whenever it likes.
        coroutine: Any = calls[0].get_coro()
        coroutine.close()
        patience.cancel()
        assert not waited.is_set()
        _flight.lock.release()

        gate.set()
        assert (await calls[1]).choices
        calls[0].cancel()
        with suppress(asyncio.CancelledError, RuntimeError):
            await calls[0]
    assert len(upstream.asked) == 1
    assert not flights()
