"""The timer: calls functions later, in order, in one thread, whatever they do."""

from __future__ import annotations

import gc
import logging
import os
import threading
import weakref
from collections.abc import Iterator

import pytest

from fastlane._clock import now_ns
from fastlane.knowledge import timer
from tests.knowledge.forks import in_child

WAIT_S = 30


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """Hold the timer's thread up until this is set."""
    goes_on = threading.Event()
    timer.call_later(0.0, lambda: goes_on.wait(WAIT_S))
    yield goes_on
    goes_on.set()


def test_timer_calls_functions_in_order_in_one_thread(held: threading.Event) -> None:
    called: list[tuple[str, threading.Thread]] = []
    done = threading.Event()
    begun_ns = now_ns()
    timer.call_at(begun_ns + 3, done.set)
    timer.call_at(begun_ns + 2, lambda: called.append(("later", threading.current_thread())))
    timer.call_at(begun_ns + 1, lambda: called.append(("sooner", threading.current_thread())))
    held.set()

    assert done.wait(WAIT_S)
    assert [name for name, _ in called] == ["sooner", "later"]
    (thread,) = {thread for _, thread in called}
    assert thread.daemon
    assert thread.name == "fastlane timer"


def test_timer_call_in_thread_does_not_hold_up_the_others() -> None:
    waits, done = threading.Event(), threading.Event()
    timer.call_later(0.0, lambda: waits.wait(WAIT_S), in_thread=True)
    timer.call_later(0.01, done.set)

    assert done.wait(WAIT_S)
    waits.set()


def test_timer_cancelled_call_is_not_made_and_is_freed(held: threading.Event) -> None:
    class Something:
        def __call__(self) -> None:
            called.append(self)

    called: list[Something] = []
    done = threading.Event()
    something = Something()
    gone = weakref.ref(something)
    timer.call_later(0.0, something).cancel()
    del something
    timer.call_later(0.0, done.set)
    held.set()

    assert done.wait(WAIT_S)
    assert called == []
    gc.collect()
    assert gone() is None


def test_timer_continues_after_a_failing_callback(caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()

    def fail() -> None:
        raise ValueError("with a prompt in it")

    with caplog.at_level(logging.WARNING, logger="fastlane"):
        timer.call_later(0.0, fail)
        timer.call_later(0.01, done.set)
        assert done.wait(WAIT_S)

    assert "ValueError" in caplog.text
    assert "prompt" not in caplog.text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_timer_in_forked_child_has_new_thread_and_no_tasks(held: threading.Event) -> None:
    called = threading.Event()
    timer.call_later(0.0, called.set)

    def child() -> list[bool]:
        done = threading.Event()
        timer.call_later(0.0, done.set)
        return [done.wait(WAIT_S), called.is_set()]

    assert in_child(child) == [True, False]
    held.set()
    assert called.wait(WAIT_S)
