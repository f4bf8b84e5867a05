from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fastlane.bench import Sample, check, find
from tests.bench.checks.answers import about, level
from tests.bench.recorded_runs import MS, a_run, with_vitals

LAG = "client saturated: lag"


def test_scheduler_process_lag_delays_no_timestamp() -> None:
    found = check(
        with_vitals(a_run(), arm=None, duration_s=10.0, cpu_s=9.0, loop_lag_p50_ms=50.0, loop_lag_p99_ms=900.0)
    )

    assert level(found, "client saturated: CPU", None) == "flagged"
    assert level(found, LAG, None) == "flagged"
    assert found.refusals() == ()


@pytest.mark.parametrize(
    ("run", "expected", "sentence"),
    [
        # 10 % of 4 % of 200 ms.
        ({"ratio": 0.96, "metrics": ("time_to_first_token",)}, "flagged", "where 0.8 ms are allowed"),
        # 10 % of 5 % of 100 gaps of 10 ms are 5 ms, and 2 ms is the most; one gap alone would want 0.05 ms.
        ({"ratio": 0.95, "metrics": ("time_per_output_token",), "tokens": 101}, "passed", "where 2 ms are allowed"),
        ({"ratio": 1.0}, "passed", "where 2 ms are allowed"),
    ],
)
def test_allowed_lag_depends_on_the_claimed_effect(run: dict[str, Any], expected: str, sentence: str) -> None:
    recorded = with_vitals(a_run(spread=0.0, pairs=20, **run), loop_lag_p99_ms=1.0)
    (finding,) = about(check(recorded, find(recorded)), LAG)

    assert finding.level == expected
    assert sentence in finding.sentence


def test_every_shard_is_looked_at() -> None:
    run = a_run()
    busy = replace(run.vitals[1], shard=1, cpu_s=100.0)
    found = check(replace(run, vitals=(*run.vitals, busy)))

    assert [each.check for each in found.refusals()] == ["client saturated: CPU"]


@pytest.mark.parametrize(("late_ms", "expected"), [(0, "passed"), (10, "flagged"), (40, "refused")])
def test_aa_copy_difference_is_flagged_or_refused(late_ms: int, expected: str) -> None:
    def late(sample: Sample) -> Sample:
        delay_ns = late_ms * MS if sample.arm == "baseline-again" else 0
        return replace(sample, token_ns=tuple(stamp + delay_ns for stamp in sample.token_ns))

    run = a_run(change=late, metrics=("time_to_first_token",))

    assert level(check(run, find(run)), "A/A copy", None) == expected
