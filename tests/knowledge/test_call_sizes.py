from __future__ import annotations

import pytest

from fastlane.knowledge.call_sizes import CallSizes


def learned(*tokens: int, body_bytes: int = 10_000) -> CallSizes:
    sizes = CallSizes()
    for one in tokens:
        sizes.learn(body_bytes=body_bytes, input_tokens=one)
    return sizes


@pytest.mark.parametrize(
    ("tokens", "body_bytes", "ratio"),
    [
        ((2_500, 2_500, 1_000, 2_500, 7_000, 2_500), 10_000, 0.25),
        ((*[2_500] * 1_000, *[4_000] * 8), 10_000, 0.4),
        # What is not text, or mostly frames, says nothing.
        ((700,), 900_000, None),
        ((200,), 300, None),
        ((0,), 9_000, None),
    ],
)
def test_ratio_is_the_median_of_the_latest(tokens: tuple[int, ...], body_bytes: int, ratio: float | None) -> None:
    assert learned(*tokens, body_bytes=body_bytes).tokens_per_byte == ratio


def test_sizes_are_learned_and_the_limit_is_heeded() -> None:
    sizes = CallSizes()
    for _ in range(100):
        sizes.learn(body_bytes=4_000, input_tokens=1_000, cached_tokens=900, output_tokens=100)
    assert sizes.input_tokens(0) == pytest.approx(1_000)
    assert sizes.output_tokens(None) == pytest.approx(100, rel=0.1)
    assert sizes.output_tokens(7) == 7
    assert sizes.uncached_share == pytest.approx(0.1)
