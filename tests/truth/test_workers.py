"""The bench's workers lose no chunk, and stamp none before it came."""

from __future__ import annotations

import pytest

from tests.truth import ARMS, WorkerRow, compiler, run


@pytest.fixture(scope="module")
def rows() -> tuple[WorkerRow, ...]:
    if compiler() is None:
        pytest.skip("there is no C compiler here")
    return run(2_000, lanes=3, requests=2, arms=ARMS[:2])


@pytest.mark.slow
def test_every_chunk_of_every_request_is_read_by_every_client(rows: tuple[WorkerRow, ...]) -> None:
    assert [row.arm for row in rows] == ["fastlane", "threads"]
    for row in rows:
        assert row.score.requests == 3 * 2
        assert row.score.unmatched == 0
        assert row.score.wrong_counts == 0


@pytest.mark.slow
def test_arrival_timestamps_precede_application_timestamps(rows: tuple[WorkerRow, ...]) -> None:
    for row in rows:
        assert row.score.arrived_error_p50_ms is not None
        # Both are held against the same truth, and bytes arrive before they are decoded.
        assert row.score.arrived_error_p50_ms <= row.score.ttft_error_p50_ms + 1e-6
