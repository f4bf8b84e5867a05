from __future__ import annotations

from fastlane.bench.checks import Checked
from fastlane.bench.recorded import RecordedRun
from fastlane.bench.reports import Line, RunReport, compare
from tests.bench.recorded_runs import a_run
from tests.bench.reports.made import checks_with, findings_of


def compared(first: RecordedRun, second: RecordedRun, checked: tuple[Checked, Checked] | None = None) -> RunReport:
    return compare(
        first,
        second,
        findings=(findings_of(first), findings_of(second)),
        checked=checked or (checks_with(), checks_with()),
        names=("monday", "tuesday"),
    )


def summary_of(found: RunReport) -> str:
    return " ".join(part.text for part in found.sections[0].parts if isinstance(part, Line))


def test_two_runs_beside_each_other_get_no_verdict() -> None:
    found = compared(a_run(pairs=20), a_run(pairs=30, time_to_first_token_s=0.1, seed=1))

    assert found.verdicts[0].text == "Unpaired: drift between the runs is not controlled."
    words = str(found.sections[:-1]).lower()
    assert "faster" not in words
    assert "slower" not in words


def test_comparison_row_has_both_runs_and_difference() -> None:
    found = compared(a_run(pairs=20, spread=0.0), a_run(pairs=30, time_to_first_token_s=0.1, spread=0.0))

    table = next(table for table in found.tables() if table.title.startswith("Time to first token"))
    assert table.columns[:4] == ("cell", "arm", "n, monday", "n, tuesday")
    row = [entry.text for entry in table.rows[0]]
    assert row[1:4] == ["baseline", "20", "30"]
    assert row[6] == "-100"
    assert "Unpaired: drift between the runs is not controlled." in table.notes


def test_differing_run_settings_are_listed() -> None:
    found = compared(a_run(pairs=8), a_run(pairs=8, model="other", machine={"cores": 64}))

    assert "model (monday: bench, tuesday: other); machine's cores" in summary_of(found)


def test_cell_that_one_run_may_not_use_has_no_figures() -> None:
    found = compared(a_run(pairs=8), a_run(pairs=8), (checks_with(), checks_with("chat, 4 users")))

    tables = list(found.tables())[:-1]
    assert {row[2].text for table in tables for row in table.rows} == {"tuesday: invalid: client saturated"}


def test_runs_without_common_cell_compare_no_metrics() -> None:
    found = compared(a_run(pairs=8, arms=("baseline",)), a_run(pairs=8, arms=("fastlane",)))

    assert "They have no cell and arm in common" in summary_of(found)
    assert [table.title for table in found.tables()] == ["Metrics"]
