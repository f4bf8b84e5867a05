"""Time grows as the input does, for every reader and each kind of input that might have it grow faster."""

from __future__ import annotations

import pytest

from tests.fuzz.guard import MOST_RATIO, growth
from tests.fuzz.targets import TARGETS

CASES = [(name, what) for name, target in TARGETS.items() for what in target.grown]


@pytest.mark.parametrize(("name", "what"), CASES)
def test_the_time_grows_about_as_the_input_does(name: str, what: str) -> None:
    grown = growth(TARGETS[name].grown[what])

    assert grown.ratio <= MOST_RATIO, grown


@pytest.mark.slow
def test_time_that_grows_with_the_square_is_seen() -> None:
    def squared(size: int) -> object:
        data = b"x" * (size // 8)

        def run() -> None:
            kept = b""
            for at in range(len(data)):
                kept += data[at : at + 1]
                # From the start each time: a reader of pieces that forgets how far it has looked.
                kept.find(b"xy")

        return run

    assert growth(squared).ratio > MOST_RATIO  # type: ignore[arg-type]
