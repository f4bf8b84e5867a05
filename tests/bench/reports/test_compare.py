from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fastlane.bench import RecordedRun
from tests.bench.recorded_runs import a_run, saturated
from tests.bench.reports.made import SATURATED, bench, save

UNPAIRED = "Unpaired: drift between the runs is not controlled."


@pytest.fixture
def compared(tmp_path: Path) -> Any:
    def compare(first: RecordedRun, second: RecordedRun) -> dict[str, Any]:
        folders = save(first, tmp_path / "monday"), save(second, tmp_path / "tuesday")
        report: dict[str, Any] = json.loads(bench("compare", *folders, "--json").stdout)
        return report

    return compare


def sentences(report: dict[str, Any]) -> str:
    return " ".join(part["text"] for part in report["sections"][0]["parts"] if "text" in part)


def tables(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [part for part in report["sections"][0]["parts"] if "rows" in part]


def test_comparison_row_has_both_runs_and_no_verdict(compared: Any) -> None:
    report = compared(a_run(pairs=20, spread=0.0), a_run(pairs=30, time_to_first_token_s=0.1, spread=0.0))

    assert report["verdicts"][0]["text"] == UNPAIRED
    table = next(table for table in tables(report) if table["title"].startswith("Time to first token"))
    assert table["columns"][:4] == ["cell", "arm", "n, monday", "n, tuesday"]
    row = [entry["text"] for entry in table["rows"][0]]
    assert row[1:4] == ["baseline", "20", "30"]
    assert row[6] == "-100"
    assert UNPAIRED in table["notes"]
    words = str(report["sections"][:-1]).lower()
    assert "faster" not in words
    assert "slower" not in words


def test_differing_run_settings_are_listed(compared: Any) -> None:
    report = compared(a_run(pairs=8), a_run(pairs=8, model="other", machine={"cores": 64}))

    assert "model (monday: bench, tuesday: other); machine's cores" in sentences(report)


def test_cell_that_one_run_may_not_use_has_no_figures(compared: Any) -> None:
    report = compared(a_run(pairs=8), saturated(a_run(pairs=8)))

    assert {row[2]["text"] for table in tables(report) for row in table["rows"]} == {f"tuesday: {SATURATED}"}


def test_runs_without_common_cell_compare_no_metrics(compared: Any) -> None:
    report = compared(a_run(pairs=8, arms=("baseline",)), a_run(pairs=8, arms=("fastlane",)))

    assert "They have no cell and arm in common" in sentences(report)
    assert tables(report) == []
