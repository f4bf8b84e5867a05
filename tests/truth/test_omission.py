"""What a stalling server does to requests that come when they are meant to."""

from __future__ import annotations

from benchmarks.measuring import true_ttft_ms

MS = 1_000_000
STALL = (5_000 * MS, 6_000 * MS)


def test_ttft_includes_the_rest_of_a_stall() -> None:
    assert true_ttft_ms([1_000 * MS, 7_000 * MS], [STALL], 0.02) == [20.0, 20.0]
    assert true_ttft_ms([5_000 * MS, 5_400 * MS], [STALL], 0.02) == [1_020.0, 620.0]
    # What is due in a stall comes at its end.
    assert true_ttft_ms([4_990 * MS], [STALL], 0.02) == [1_010.0]
