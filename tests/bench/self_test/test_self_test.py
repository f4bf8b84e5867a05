"""The self-test runs the harness's own workers, loses no chunk, and says what it found."""

from __future__ import annotations

import dataclasses
import io
import json
from typing import Any

import pytest
from rich.console import Console

from fastlane.bench.self_test import ARMS, SelfTest, print_self_test, run
from fastlane.errors import ConfigurationError


@pytest.fixture(scope="module")
def tested() -> SelfTest:
    return run(lanes=3, requests=2, shards=2, rates=(2_000,), arms=ARMS[:2])


def test_every_chunk_of_every_request_is_read_by_every_client(tested: SelfTest) -> None:
    for row in tested.rows:
        assert row.score.requests == 3 * 2
        assert row.score.unmatched == 0
        assert row.score.wrong_counts == 0


def test_a_row_says_what_it_was_measured_with(tested: SelfTest) -> None:
    assert [row.arm for row in tested.rows] == ["fastlane", "fastlane, threads"]
    for row in tested.rows:
        assert (row.tokens_per_s, row.streams, row.shards) == (2_000, 3, 2)
        assert row.cpu_share > 0
        assert row.loop_lag_p99_ms is not None


def test_stamps_of_the_transport_are_never_later_than_the_application(tested: SelfTest) -> None:
    for row in tested.rows:
        assert row.score.arrived_error_p50_ms is not None
        # Both are held against the same truth, and bytes arrive before they are decoded.
        assert row.score.arrived_error_p50_ms <= row.score.ttft_error_p50_ms + 1e-6


def test_it_is_plain_data_that_says_what_the_bars_were(tested: SelfTest) -> None:
    plain: dict[str, Any] = json.loads(json.dumps(tested.to_dict()))

    assert plain["bars"] == {"ttft_error_p50_ms": 1.0, "ttft_error_p99_ms": 3.0, "tpot_error_p50": 0.02}
    assert [row["arm"] for row in plain["rows"]] == ["fastlane", "fastlane, threads"]
    assert plain["reached"] is tested.reached


def printed(self_test: SelfTest) -> str:
    file = io.StringIO()
    print_self_test(self_test, Console(file=file, width=200))
    return file.getvalue()


def with_errors(tested: SelfTest, **changes: Any) -> SelfTest:
    sound: dict[str, Any] = {
        "ttft_error_p50_ms": 0.5,
        "ttft_error_p99_ms": 1.5,
        "tpot_error_p50": 0.01,
        "server_late_p99_ms": 0.1,
    }
    rows = tuple(
        dataclasses.replace(row, score=dataclasses.replace(row.score, **(sound | changes))) for row in tested.rows
    )
    return dataclasses.replace(tested, rows=rows)


def test_within_reach_is_said_and_so_is_beyond_it(tested: SelfTest) -> None:
    assert "Within reach: yes" in printed(with_errors(tested))
    for change in (
        {"ttft_error_p50_ms": 1.1},
        {"ttft_error_p99_ms": 3.1},
        {"tpot_error_p50": 0.021},
        {"wrong_counts": 1},
    ):
        assert "Within reach: NO" in printed(with_errors(tested, **change))


def test_only_a_machine_that_is_too_busy_is_called_so(tested: SelfTest) -> None:
    assert "too busy" in printed(with_errors(tested, server_late_p99_ms=5.0))
    assert "too busy" not in printed(with_errors(tested))


def test_a_pace_that_is_not_known_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="100 or 2000 tokens per second, got 7"):
        run(rates=(7,))
