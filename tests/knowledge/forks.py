"""Run something in a forked child."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from fastlane import _fork

T = TypeVar("T")


def in_child(work: Callable[[], T]) -> T:
    """Return what `work` returns in a forked child. Raises EOFError if the child fails or hangs."""
    reading, writing = os.pipe()
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore", DeprecationWarning)  # of the other threads
        patch.setattr(_fork, "_LONGEST_WAIT_S", 60.0)  # however busy the machine is
        child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            signal.alarm(60)
            data = pickle.dumps(work())
            while data:
                data = data[os.write(writing, data) :]
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    found: T = pickle.loads(data)
    return found


@contextmanager
def held_by_another_thread(lock: Any) -> Iterator[None]:
    """Hold a lock, as when a process forks while one of its other threads is at work."""
    is_held, is_over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            is_held.set()
            is_over.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert is_held.wait(60)
    try:
        yield
    finally:
        is_over.set()
        thread.join()
