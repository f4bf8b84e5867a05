from __future__ import annotations

from fastlane.bench.checks import Checked
from fastlane.bench.reports import Entry, Line, RunReport, Section, Table
from fastlane.bench.reports._page import page
from tests.bench.recorded_runs import a_run
from tests.bench.reports.made import checks_with, findings_of


def test_every_part_of_a_section_is_shown() -> None:
    run = a_run(pairs=4)
    checked = checks_with("chat, 4 users")
    table = Table(
        title="A table",
        columns=("arm", "p50 (ms)", "p95 (ms)"),
        rows=(
            (Entry("fastlane"), Entry("12 [10, 14]"), Entry("-", "muted")),
            (Entry("baseline"), Entry("invalid: client saturated", "bad"), Entry("")),
        ),
        notes=("A note.",),
    )
    made = RunReport(
        kind="ab",
        title="All of them",
        question="What is shown?",
        verdicts=(Line("fastlane: faster", "good"),),
        facts=(("Provider", "embedded"),),
        sections=(
            Section(title="Twice", parts=(Line("A sentence.", "warning"), table)),
            Section(title="Twice", checks=checked.results),
        ),
    )

    written = page(made, run, findings_of(run), checked)

    assert '<p class="warning">A sentence.</p>' in written
    assert written.count("<h2>Twice</h2></summary>") == 2
    assert ">12 [10, 14]</td>" in written
    assert ">invalid: client saturated</td>" in written
    assert '<p class="note">A note.</p>' in written
    assert "<dt>Provider</dt><dd>embedded</dd>" in written
    assert "1 refused" in written
    assert "<figure" not in page(made, run, findings_of(run), Checked(results=checked.results))
