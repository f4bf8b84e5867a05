"""A refusal that is of one arm voids that arm's figures and leaves those of the others."""

from __future__ import annotations

import json

from fastlane.bench.checks import Checked, check
from fastlane.bench.findings import Findings, find
from fastlane.bench.recorded import RecordedRun
from fastlane.bench.reports import document, judge, markdown, parse_fail_if, report
from fastlane.bench.reports._figures import csv_rows
from fastlane.bench.reports._material import Material
from fastlane.bench.reports._page import draw
from tests.bench.recorded_runs import a_run, with_vitals

ARMS = ("baseline", "baseline-again", "bad", "good")
BAD = "client saturated: CPU"


def a_bad_run(arm: str = "bad") -> RecordedRun:
    """The process of one arm used a whole core."""
    run = a_run(arms=ARMS, pairs=100, ratio={"bad": 0.6, "good": 0.8}, with_log=True)
    return with_vitals(run, arm=arm, duration_s=10.0, cpu_s=9.9)


def made(run: RecordedRun) -> tuple[RecordedRun, Findings, Checked]:
    findings = find(run)
    return run, findings, check(run, findings)


def test_report_of_a_run_with_a_bad_arm_shows_the_others() -> None:
    run, findings, checked = made(a_bad_run())
    shown = report("ab", run, findings, checked)
    sentences = [line.text for line in shown.verdicts]

    assert f"chat, 4 users, bad: invalid: {BAD}; see Checks." in sentences
    assert any(line.startswith("good: time to first token faster by ") for line in sentences)
    assert not any(line.startswith("bad: ") for line in sentences)
    for table in shown.tables():
        if table.title.startswith(("The very first request", "Metrics")):
            continue  # They came before the cell, and are in no other figure.
        for row in table.rows:
            assert any(entry.text == f"invalid: {BAD}" for entry in row) == (row[0].text == "bad"), (table.title, row)
    assert "bad was" not in markdown(shown)


def test_figures_of_a_bad_arm_are_in_no_chart() -> None:
    run, findings, checked = made(a_bad_run())
    material = Material(recorded=run, findings=findings, checked=checked)

    for name in ("time_to_first_token_distribution", "waterfall"):
        data = json.dumps([view.spec for view in draw(name, material)])
        assert '"good' in data, name
        assert '"bad' not in data, name


def test_csv_and_json_of_a_run_with_a_bad_arm_keep_the_others() -> None:
    run, findings, checked = made(a_bad_run())

    for row in csv_rows(run, findings, checked):
        assert (row["invalid"] is not None) == (row["arm"] == "bad")
        assert not row["typical_ratio"] or row["arm"] in ("good", "baseline-again")
    data = document(run, findings, checked)
    assert {each["arm"] for each in data["comparisons"] if "invalid" in each} == {"bad"}
    (cell,) = data["cells"]
    assert "invalid" not in cell
    assert {each["arm"] for each in cell["figures"]} == {"baseline", "baseline-again", "good"}
    assert {each["name"] for each in data["arms"] if "invalid" in each} == {"bad"}


def test_rule_is_judged_for_the_arms_that_are_sound() -> None:
    results = {each.arm: each.result for each in judge(*made(a_bad_run()), [parse_fail_if("ttft > +5%")])}

    assert results == {"bad": "invalid", "good": "passed"}


def test_bad_reference_voids_the_whole_cell() -> None:
    run, findings, checked = made(a_bad_run("baseline"))

    assert not checked.valid("chat, 4 users", "good")
    assert {each.result for each in judge(run, findings, checked, [parse_fail_if("ttft > +5%")])} == {"invalid"}
