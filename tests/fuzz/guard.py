"""What keeps a parser from hanging: a limit of CPU time for each input, and a look at how time grows with size."""

from __future__ import annotations

import gc
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple

LIMIT_S = 20.0
"""CPU time of one input; the slowest of those that are fuzzed takes a hundredth of it."""

FACTOR = 4
"""How much larger the larger input is. Its time is 4 times as long where it grows as the input does, 16 times where it
grows with the square; between the two lies what caches of a size do to what is larger than them."""
MOST_RATIO = 10.0
_MEASURABLE_S = 0.01
_LARGEST = 4 << 20


class HangError(AssertionError):
    """An input took longer than anything of its size may."""


class Grown(NamedTuple):
    """How long one reader took for inputs of two sizes."""

    size: int
    """Of the larger, in bytes."""
    seconds: float
    ratio: float


@contextmanager
def limited(seconds: float = LIMIT_S) -> Iterator[None]:
    """Raise HangError in the block once it has used so much CPU time. For the main thread alone."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise HangError(f"more than {seconds:g} s of CPU time for one input")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def growth(made: Callable[[int], Callable[[], object]], first: int = 2_048) -> Grown:
    """Find a size that takes long enough to be measured, and compare its time with that of a size four times as large.

    CPU time of this thread, the least of several runs each, and the least of three such comparisons: what else the
    machine does makes a run longer, never shorter.
    """
    size = first
    while (took := _least(made(size), 1)) < _MEASURABLE_S and size < _LARGEST // FACTOR:
        size *= 2
    larger = size * FACTOR
    best = Grown(larger, 0.0, float("inf"))
    for _ in range(3):
        took = _least(made(size), 2)
        long = _least(made(larger), 1)
        # What is done at once with the largest size is quick enough, whatever its first part took.
        found = Grown(larger, long, long / max(took, 1e-4) if long > _MEASURABLE_S else 0.0)
        best = min(best, found, key=lambda one: one.ratio)
        if best.ratio <= MOST_RATIO:
            break
    return best


def _least(work: Callable[[], object], times: int) -> float:
    least = float("inf")
    was_on = gc.isenabled()
    gc.disable()
    try:
        for _ in range(times):
            began = time.thread_time()
            work()
            least = min(least, time.thread_time() - began)
    finally:
        if was_on:
            gc.enable()
    return least
