from __future__ import annotations

import os
import threading

import pytest

from fastlane.plays.prompt_cache.prefixes._guard import Guard


def test_a_thread_that_is_inside_gets_in_again_and_is_told_so() -> None:
    guard = Guard()

    with guard as outside, guard as inside:
        pass
    with guard as again:
        pass

    assert (outside, inside, again) == (True, False, True)


def test_another_thread_waits_until_it_is_free() -> None:
    guard = Guard()
    order: list[str] = []

    def come() -> None:
        with guard as first:
            order.append(f"other {first}")

    with guard:
        thread = threading.Thread(target=come)
        thread.start()
        thread.join(0.05)
        order.append("own")
    thread.join()

    assert order == ["own", "other True"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_finds_free_and_torn_what_another_thread_held_when_it_was_forked() -> None:
    held, untouched = Guard(), Guard()
    is_inside, is_over = threading.Event(), threading.Event()

    def hold() -> None:
        with held:
            is_inside.set()
            is_over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    is_inside.wait()
    child = os.fork()
    if not child:
        free = held._lock.acquire(blocking=False)
        os._exit(0 if free and held.is_torn and not untouched.is_torn else 1)
    is_over.set()
    thread.join()

    assert os.waitpid(child, 0)[1] == 0
    assert not held.is_torn
