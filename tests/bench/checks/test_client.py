from __future__ import annotations

from dataclasses import replace

import pytest

from fastlane.bench.checks import check
from fastlane.bench.findings import ArmComparison, CellFindings, ComparisonVerdict, Figures, Findings, Interval
from fastlane.bench.recorded import Sample
from tests.bench.checks.answers import about, level
from tests.bench.recorded_runs import MS, a_run, an_open_cell, with_vitals


def claiming(
    change: float,
    *,
    metric: str = "time_to_first_token",
    mean: float = 200.0,
    copy: bool = False,
    kind: str = "better",
    p_value: float = 1e-6,
) -> Findings:
    """Findings that claim a change of one metric, of which the reference has `mean` milliseconds."""
    cell = CellFindings(
        cell="chat, 4 users",
        figures=(
            Figures(
                cell="chat, 4 users",
                arm="baseline",
                metric=metric,
                n=100,
                failed=0,
                mean=mean,
                deviation=20.0,
                minimum=150.0,
                maximum=300.0,
                quantiles={},
            ),
        ),
        comparisons=(
            ArmComparison(
                cell="chat, 4 users",
                arm="baseline-again" if copy else "fastlane",
                reference="baseline",
                metric=metric,
                pairs=100,
                typical=Interval(value=1 - change),
                p_value=p_value,
                verdict=ComparisonVerdict(kind=kind, sentence="faster by some"),  # type: ignore[arg-type]
                copy=copy,
            ),
        ),
        throughput={},
        requests={},
        errors={},
    )
    return Findings(cells=(cell,))


@pytest.mark.parametrize(("cpu_s", "expected"), [(6.9, "passed"), (7.1, "refused")])
def test_client_cpu_above_70_percent_is_refused(cpu_s: float, expected: str) -> None:
    run = with_vitals(a_run(), duration_s=10.0, cpu_s=cpu_s)

    assert level(check(run), "client saturated: CPU") == expected


def test_scheduler_process_lag_delays_no_timestamp() -> None:
    found = check(
        with_vitals(a_run(), arm=None, duration_s=10.0, cpu_s=9.0, loop_lag_p50_ms=50.0, loop_lag_p99_ms=900.0)
    )

    assert level(found, "client saturated: CPU", None) == "flagged"
    assert level(found, "client saturated: lag", None) == "flagged"
    assert found.refusals() == ()


@pytest.mark.parametrize(
    ("p50_ms", "p99_ms", "expected"),
    [
        (0.1, 1.9, "passed"),
        # Late once in a hundred: medians hold.
        (0.1, 5.0, "flagged"),
        # Late every other time.
        (2.5, 5.0, "refused"),
        # A tenth of the time to first token, which is 160 ms.
        (0.1, 30.0, "refused"),
    ],
)
def test_lag_is_graded_by_what_it_does_to_the_figures(p50_ms: float, p99_ms: float, expected: str) -> None:
    run = with_vitals(a_run(), loop_lag_p50_ms=p50_ms, loop_lag_p99_ms=p99_ms)

    assert level(check(run), "client saturated: lag") == expected


def test_small_effect_wants_a_smaller_lag() -> None:
    run = with_vitals(a_run(), loop_lag_p99_ms=1.0)

    assert level(check(run), "client saturated: lag") == "passed"
    # 10 % of 4 % of 200 ms.
    (finding,) = about(check(run, claiming(0.04)), "client saturated: lag")
    assert finding.level == "flagged"
    assert "where 0.8 ms are allowed" in finding.sentence


def test_effect_on_each_token_is_one_of_the_whole_answer() -> None:
    run = with_vitals(a_run(tokens=101), loop_lag_p99_ms=1.0)
    found = check(run, claiming(0.05, metric="time_per_output_token", mean=10.0))

    # 10 % of 5 % of 100 gaps of 10 ms are 5 ms; one gap alone would want 0.05 ms.
    assert "where 2 ms are allowed" in about(found, "client saturated: lag")[0].sentence


def test_lag_without_a_claimed_effect_passes() -> None:
    run = with_vitals(a_run(), loop_lag_p99_ms=1.0)

    assert level(check(run, claiming(0.04, kind="no difference shown")), "client saturated: lag") == "passed"
    assert level(check(run, claiming(0.04, copy=True)), "client saturated: lag") == "passed"


@pytest.mark.parametrize(
    ("gap_ms", "expected"), [(None, "not checked"), (1.0, "passed"), (5.0, "flagged"), (50.0, "refused")]
)
def test_late_chunk_delivery_is_flagged_or_refused(gap_ms: float | None, expected: str) -> None:
    found = check(a_run(change=lambda each: replace(each, delivery_gap_ms=gap_ms)))

    assert level(found, "client saturated: delivery") == expected


@pytest.mark.parametrize(("late_ms", "expected"), [(0, "passed"), (5, "refused"), (100, "refused")])
def test_late_dispatch_in_open_load_is_refused(late_ms: int, expected: str) -> None:
    def late(sample: Sample) -> Sample:
        return replace(sample, issued_ns=sample.issued_ns + late_ms * MS)

    assert level(check(a_run(cells=(an_open_cell(),), change=late)), "dispatch delay") == expected


def test_one_late_request_in_twenty_is_flagged() -> None:
    def late(sample: Sample) -> Sample:
        return replace(sample, issued_ns=sample.issued_ns + (5 * MS if sample.block % 20 == 1 else 0))

    found = check(a_run(cells=(an_open_cell(),), pairs=100, change=late))

    assert level(found, "dispatch delay") == "flagged"


def test_closed_load_has_no_time_to_be_late_by() -> None:
    assert about(check(a_run()), "dispatch delay") == []


def test_lag_that_was_not_probed_is_not_checked() -> None:
    assert level(check(with_vitals(a_run(), loop_lag_p99_ms=None)), "client saturated: lag") == "not checked"


def test_every_shard_is_looked_at() -> None:
    run = a_run()
    busy = replace(run.vitals[1], shard=1, cpu_s=100.0)
    found = check(replace(run, vitals=(*run.vitals, busy)))

    assert [each.check for each in found.refusals()] == ["client saturated: CPU"]


@pytest.mark.parametrize(
    ("p_value", "kind", "expected"),
    [(0.5, "no difference shown", "passed"), (0.03, "better", "flagged"), (0.0001, "worse", "refused")],
)
def test_aa_copy_difference_is_flagged_or_refused(p_value: float, kind: str, expected: str) -> None:
    found = check(a_run(), claiming(0.05, copy=True, kind=kind, p_value=p_value))

    assert level(found, "A/A copy", None) == expected
