"""Time grows as the input does, for every reader and each kind of input that might have it grow faster."""

from __future__ import annotations

import pytest

from tests.fuzz.guard import MOST_RATIO, growth
from tests.fuzz.targets import TARGETS

CASES = [(name, what) for name, target in TARGETS.items() for what in target.grown]


@pytest.mark.parametrize(("name", "what"), CASES)
def test_four_times_the_input_takes_no_more_than_about_four_times_as_long(name: str, what: str) -> None:
    grown = growth(TARGETS[name].grown[what])

    assert grown.ratio <= MOST_RATIO, grown


def test_time_that_grows_with_the_square_is_seen() -> None:
    def squared(size: int) -> object:
        data = b"x" * (size // 8)

        def run() -> None:
            kept = b""
            for at in range(len(data)):
                kept = bytes(kept) + data[at : at + 1]
                sum(kept[:64])
                kept.count(b"y")

        return run

    assert growth(squared).ratio > MOST_RATIO  # type: ignore[arg-type]
