from __future__ import annotations

from typing import Any

import pytest

from fastlane.bench.checks import check, without_refused_tails
from fastlane.bench.findings import find
from fastlane.bench.reports import document, markdown, report
from tests.bench.recorded_runs import a_run, with_vitals

LAG = "client saturated: lag"


def late(*, cpu_share: float, p50_ms: float = 0.2) -> dict[str, Any]:
    return {"duration_s": 10.0, "cpu_s": 10.0 * cpu_share, "loop_lag_p50_ms": p50_ms, "loop_lag_p99_ms": 90.0}


def test_process_delayed_by_machine_keeps_only_medians() -> None:
    run = with_vitals(a_run(pairs=400), **late(cpu_share=0.1))
    found = find(run)
    checked = check(run, found)

    assert checked.refusals() == ()
    assert [each.check for each in checked.tail_refusals(run.header.cells[0].name, "fastlane")] == [LAG]
    kept = without_refused_tails(found, checked).cells[0]
    figures = kept.of("fastlane", "time_to_first_token")
    assert figures is not None
    assert figures.quantiles[0.5].value is not None
    assert [figures.quantiles[share].withheld for share in (0.9, 0.95, 0.99)] == [LAG] * 3
    assert all(figures.quantiles[share].value is None for share in (0.9, 0.95, 0.99))
    assert (figures.mean, figures.deviation, figures.maximum) == (None, None, None)
    for each in kept.comparisons:
        assert (set(each.quantiles) <= {0.25, 0.5, 0.75}) == (each.arm == "fastlane")
    assert kept.of("baseline", "time_to_first_token") == found.cells[0].of("baseline", "time_to_first_token")
    assert kept.comparisons[0].verdict == found.cells[0].comparisons[0].verdict


def test_withheld_figure_is_in_no_form_of_a_report() -> None:
    run = with_vitals(a_run(pairs=400), **late(cpu_share=0.1))
    found = find(run)
    checked = check(run, found)
    figures = found.cells[0].of("fastlane", "time_to_first_token")
    assert figures is not None
    value = figures.quantiles[0.95].value
    assert value is not None

    text = markdown(report("ab", run, found, checked))
    data = repr(document(run, found, checked))

    assert "invalid: lag" in text
    assert repr(value) not in data
    assert f"{value:.1f}" not in text


@pytest.mark.parametrize("vitals", [late(cpu_share=0.6), late(cpu_share=0.1, p50_ms=30.0)])
def test_process_late_by_its_own_load_is_refused(vitals: dict[str, Any]) -> None:
    run = with_vitals(a_run(pairs=400), **vitals)

    assert LAG in {each.check for each in check(run).refusals()}


def test_run_without_refusals_keeps_all_findings() -> None:
    run = a_run()
    found = find(run)

    assert without_refused_tails(found, check(run, found)) == found
