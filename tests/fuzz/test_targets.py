"""Every parser against its oracle, on seeds, inputs made of them, and any bytes: `make fuzz` tries more of them."""

from __future__ import annotations

import functools
import random
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from hypothesis import given, settings, strategies as st

from tests.fuzz.drawn import mutate
from tests.fuzz.targets import TARGETS

LIMIT_S = 20.0
"""CPU time of one input; the slowest takes a hundredth of it."""


@contextmanager
def limited(seconds: float = LIMIT_S) -> Iterator[None]:
    """Raise TimeoutError in the block once it has used so much CPU time. For the main thread alone."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"more than {seconds:g} s of CPU time for one input")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


EXAMPLES = max(300, settings().max_examples)
"""How many inputs each parser gets: the number of the profile `fuzz` under `make fuzz`."""


@functools.cache
def seeds_of(name: str) -> Sequence[bytes]:
    found: Sequence[bytes] = TARGETS[name].seeds()
    return found


@pytest.mark.parametrize("name", TARGETS)
def test_fuzz_seeds_agree_with_the_oracle(name: str) -> None:
    for data in seeds_of(name):
        TARGETS[name].check(data)


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=EXAMPLES)
@given(draw=st.randoms(use_true_random=False), fresh=st.none() | st.binary(max_size=400))
def test_changed_seeds_and_any_bytes_agree_with_the_oracle(name: str, draw: random.Random, fresh: bytes | None) -> None:
    data = mutate(seeds_of(name), draw) if fresh is None else fresh
    with limited():
        TARGETS[name].check(data)
