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

FACTOR = 8
"""How much larger the larger input is. Its time is 8 times as long where it grows as the input does, 64 times where it
grows with the square; between the two lies what caches of a size do to what is larger than them."""
MOST_RATIO = 20.0
"""Seen as soon as a quarter of the smaller input's time is what grows with the square: 8 * 3/4 + 64 * 1/4 = 22."""
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
    """Find a size that takes long enough to be measured, and compare its time with that of FACTOR times the size.

    CPU time of this thread, the least of all runs of each size, in up to three rounds: what else the machine does makes
    a run longer, never shorter.
    """
    size = first
    while _least(made(size), 1) < _MEASURABLE_S and size < _LARGEST // FACTOR:
        size *= 2
    larger = size * FACTOR
    short = long = float("inf")
    for _ in range(3):
        short = min(short, _least(made(size), 2))
        long = min(long, _least(made(larger), 1))
        # What is done at once with the largest size is quick enough, whatever its first part took.
        found = Grown(larger, long, long / max(short, 1e-4) if long > _MEASURABLE_S else 0.0)
        # Nothing that the machine does besides takes twice the most that may be.
        if found.ratio <= MOST_RATIO or found.ratio > 2 * MOST_RATIO:
            break
    return found


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
