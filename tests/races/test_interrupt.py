"""Ctrl-C at every stage of a call: raised at once, the request cancelled upstream, and nothing kept of the call."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import fastlane
from fastlane import Connection, Hedging, Urgency
from fastlane.engine.drivers import waiting_on
from fastlane.plays.urgency.slots import queues
from tests.attempts.scripted import MESSAGES, Asked, Upstream, answer, refuse, say_nothing, used_to
from tests.races.callers import held, two_pieces
from tests.transport.faces import in_a_thread
from tests.waiting import HANG_S, until

ENDLESS = ("retry-after", "59")
PATIENT_S = 500.0
"""A timeout that no test reaches: what ends before it was interrupted."""

each_play = pytest.mark.parametrize(
    "plays", [(), (Urgency(max_concurrency=1),), (Hedging(),)], ids=["bare", "urgency", "hedging"]
)


@contextmanager
def ctrl_c_when(happened: Callable[[], object], raises: type[BaseException] = KeyboardInterrupt) -> Iterator[None]:
    """Press Ctrl-C once something has happened, while this block runs in the main thread; it must be raised in it.

    `raises`: what the handler of the signal raises.
    """
    assert threading.current_thread() is threading.main_thread()
    over = threading.Event()
    failed: list[str] = []

    def press() -> None:
        deadline = time.monotonic() + HANG_S
        while not happened():
            if over.is_set() or time.monotonic() > deadline:
                failed.append("it was not interrupted where it was to be")
                break
            time.sleep(0.005)
        if not over.wait(0.02):  # in which it begins to wait
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    pressing = threading.Thread(target=press)
    pressing.start()
    try:
        with pytest.raises(raises):
            yield
    finally:
        over.set()
        pressing.join()
    assert failed == []


def client_of(upstream: Upstream, *plays: Any, **options: Any) -> Any:
    return client_at(upstream.url, *plays, **options)


def client_at(url: str, *plays: Any, **options: Any) -> Any:
    options = {"timeout": PATIENT_S, "max_retries": 2, **options}
    return fastlane.OpenAI(api_key="sk-test", base_url=url, only_plays=[Connection(), *plays], **options)


def ask(client: Any, **more: Any) -> Any:
    return client.chat.completions.create(model="m", messages=MESSAGES, **{"temperature": 0, **more})


def members(client: Any) -> list[Any]:
    """The connections to the client's server. (All clients with the same settings share a pool.)"""
    port = client.base_url.port
    return [member for member in client._client._transport._engine.members() if member.origin.port == port]


def pauses(client: Any) -> int:
    return len(waiting_on(client._client))


def is_as_before(client: Any, upstream: Upstream, *outcomes: str) -> bool:
    """Whether everything was given back, and the next call works."""
    until(lambda: not any(member.is_busy or member.claimed for member in members(client)))
    until(lambda: not any(sum(queue.in_flight) + sum(queue.queued) for _, queue in queues.items()))
    assert pauses(client) == 0
    upstream.usually = answer("The Rhine")
    assert ask(client.with_options(timeout=HANG_S)).choices[0].message.content.strip() == "The Rhine"
    assert [record.outcome for record in client.calls] == [*outcomes, "completed"]
    return True


def is_reset(upstream: Upstream) -> bool:
    return all(stream.reset is not None for stream in upstream.silent) and bool(upstream.silent)


@pytest.mark.parametrize("accepts", [False, True], ids=["connecting", "handshake"])
def test_interrupt_before_the_request_cancels_the_call(accepts: bool) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=10 if accepts else 0))
        address = server.getsockname()
        if not accepts:  # its backlog is full, so that a further connection stays pending
            for _ in range(4):
                filler = stack.enter_context(socket.socket())
                filler.setblocking(False)
                filler.connect_ex(address)
        client = stack.enter_context(client_at(f"https://127.0.0.1:{address[1]}/v1"))
        with ctrl_c_when(lambda: members(client)):
            ask(client)
        until(lambda: not members(client))
        assert [record.outcome for record in client.calls] == ["cancelled"]
        if accepts:  # the server notices: after the client's first message comes the end
            came = stack.enter_context(server.accept()[0])
            came.settimeout(HANG_S)
            while came.recv(65_536):
                pass


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@each_play
def test_interrupt_while_waiting_for_response_resets_stream(
    upstream: Upstream, plays: tuple[Any, ...], stream: bool
) -> None:
    upstream.usually = say_nothing
    with client_of(upstream, *plays) as client:
        with ctrl_c_when(lambda: upstream.silent):
            ask(client, stream=stream)
        until(lambda: is_reset(upstream))
        assert is_as_before(client, upstream, "cancelled")
        assert len(upstream.asked) == 2
        assert len(set(upstream.connections)) == 1


@each_play
def test_interrupt_while_reading_a_stream_resets_it(upstream: Upstream, plays: tuple[Any, ...]) -> None:
    upstream.usually = two_pieces
    with client_of(upstream, *plays) as client:
        read: list[Any] = []
        with ctrl_c_when(lambda: len(read) >= 2), ask(client, stream=True) as stream:
            for event in stream:
                read.append(event)  # noqa: PERF402 - what has come is looked at meanwhile
        until(lambda: is_reset(upstream))
        assert is_as_before(client, upstream, "cancelled")
        assert len(set(upstream.connections)) == 1


def test_interrupt_in_the_queue_removes_the_ticket(upstream: Upstream) -> None:
    gate = threading.Event()
    upstream.usually = held(gate, answer("The Rhine"))
    with client_of(upstream, Urgency(max_concurrency=1)) as client:
        before = in_a_thread(ask, client)
        until(lambda: bool(upstream.asked))
        with ctrl_c_when(lambda: pauses(client) == 1):
            ask(client)
        assert not any(sum(queue.queued) for _, queue in queues.items())
        gate.set()
        before.result()
        assert len(upstream.asked) == 1
        assert is_as_before(client, upstream, "cancelled", "completed")


@pytest.mark.parametrize("plays", [(), (Urgency(max_concurrency=1),)], ids=["bare", "urgency"])
def test_interrupt_before_a_retry_cancels_the_call(upstream: Upstream, plays: tuple[Any, ...]) -> None:
    upstream.usually = refuse(429, ENDLESS)
    with client_of(upstream, *plays) as client:
        with ctrl_c_when(lambda: pauses(client) == 1):
            ask(client)
        upstream.usually = answer("The Rhine")
        assert len(upstream.asked) == 1
        assert [record.outcome for record in client.calls] == ["cancelled"]
        if not plays:  # (A pace would keep to what the provider has asked for.)
            assert is_as_before(client, upstream, "cancelled")


@contextmanager
def alarms_press_ctrl_c() -> Iterator[None]:
    """Within this block, an alarm interrupts the process."""
    alarm, interrupt = signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, alarm)
        signal.signal(signal.SIGINT, interrupt)


class TimeLimitError(Exception):
    """Raised by a signal handler, as Celery raises its soft time limit."""


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("raises", "outcome"), [(KeyboardInterrupt, "cancelled"), (TimeLimitError, "failed")])
def test_interrupt_during_a_hedge_resets_both_attempts(
    upstream: Upstream, stream: bool, raises: type[BaseException], outcome: str
) -> None:
    def over(*_: object) -> None:
        raise raises

    with Asked("sync", upstream.url, Hedging(budget=1.0), timeout=PATIENT_S) as asked:
        used_to(asked, upstream, model="m")
        before = len(asked.client.calls)
        upstream.usually = say_nothing
        previous = signal.signal(signal.SIGINT, over)
        try:
            with ctrl_c_when(lambda: len(upstream.silent) == 2, raises):
                ask(asked.client, stream=stream)
        finally:
            signal.signal(signal.SIGINT, previous)
        until(lambda: is_reset(upstream))
        until(lambda: not any(thread.name == "fastlane race" for thread in threading.enumerate()))
        assert is_as_before(asked.client, upstream, *["completed"] * before, outcome)


# Where it comes amid a finaliser, Python can only say so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupt_during_early_close_leaks_no_slot(upstream: Upstream) -> None:
    with client_of(upstream, Urgency(max_concurrency=1, max_wait_s=HANG_S)) as client:
        with alarms_press_ctrl_c():
            for number in range(100):
                stream = ask(client, stream=True)
                next(iter(stream))
                try:
                    signal.setitimer(signal.ITIMER_REAL, 1e-6 + 4e-6 * number)
                    stream.close()
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except KeyboardInterrupt:
                    pass
                del stream  # closed or not: it has no reference any more
                gc.collect()
        until(lambda: not any(sum(queue.in_flight) for _, queue in queues.items()))


@each_play
def test_interrupt_of_an_event_loop_cancels_the_call(upstream: Upstream, plays: tuple[Any, ...]) -> None:
    upstream.usually = say_nothing
    client = fastlane.AsyncOpenAI(
        api_key="sk-test", base_url=upstream.url, only_plays=[Connection(), *plays], timeout=PATIENT_S
    )

    async def call() -> None:
        await ask(client)

    with ctrl_c_when(lambda: upstream.silent):
        asyncio.run(call())
    until(lambda: upstream.silent[0].reset is not None or upstream.silent[0].connection.closed.is_set())
    assert [record.outcome for record in client.calls] == ["cancelled"]

    async def call_again() -> Any:
        async with client:
            return await ask(client)

    upstream.usually = answer("The Rhine")
    assert asyncio.run(call_again()).choices[0].message.content.strip() == "The Rhine"
    assert not any(sum(queue.in_flight) for _, queue in queues.items())


@pytest.mark.parametrize("plays", [(), (Urgency(max_concurrency=1),)], ids=["bare", "urgency"])
# Where it comes amid a finaliser, Python can only say so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupt_at_any_moment_leaks_no_slot(upstream: Upstream, plays: tuple[Any, ...]) -> None:
    """Whatever it interrupts, no slot is lost, and the client still works."""
    with client_of(upstream, *plays) as client:
        ask(client)
        begun = time.monotonic()
        ask(client)
        usual_s = min(0.05, time.monotonic() - begun)
        with alarms_press_ctrl_c():
            for number in range(100):
                try:
                    signal.setitimer(signal.ITIMER_REAL, max(1e-6, usual_s * number / 100))
                    ask(client)
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except KeyboardInterrupt:
                    pass
        until(lambda: not any(member.is_busy or member.claimed for member in members(client)))
        until(lambda: not any(sum(queue.in_flight) + sum(queue.queued) for _, queue in queues.items()))
        assert ask(client.with_options(timeout=HANG_S)).choices[0].message.content
        until(lambda: not pauses(client))
