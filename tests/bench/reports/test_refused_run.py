"""A refused run says once why and what to do, and no caption says what is not so."""

from __future__ import annotations

import dataclasses
import re

import pytest

from fastlane.bench.checks import Checked, check
from fastlane.bench.findings import Findings, find
from fastlane.bench.recorded import RecordedRun
from fastlane.bench.reports import markdown, report
from fastlane.bench.reports._page import page
from tests.bench.recorded_runs import a_cell, a_run

LAG = "client saturated: lag"
FALSE = ("No pair of requests succeeded", "No arm has enough requests", "There is nothing to compare", "too few to see")


def a_refused_run(**fields: object) -> tuple[RecordedRun, Findings, Checked]:
    """Sixty blocks of which every request succeeded, sent by clients that were late all the time."""
    run = a_run(pairs=60, with_log=True, **fields)  # type: ignore[arg-type]
    late = tuple(dataclasses.replace(each, loop_lag_p50_ms=50.0, loop_lag_p99_ms=90.0) for each in run.vitals)
    run = dataclasses.replace(run, vitals=late)
    findings = find(run)
    return run, findings, check(run, findings)


def test_refused_run_says_once_why_and_what_to_do() -> None:
    run, findings, checked = a_refused_run()
    shown = report("ab", run, findings, checked)

    (refusal,) = [line.text for line in shown.verdicts if line.text.startswith("Refused")]
    assert LAG in refusal
    assert "spread the lanes over more processes (--processes) or ask for less" in refusal
    # The check has it again, with its figures, and nothing else does.
    body = markdown(shown)
    assert body.count(f"invalid: {LAG}") == 0
    assert body.count(LAG) < 8


@pytest.mark.parametrize("kind", ["ab", "sweep"])
def test_refused_run_has_no_captions_of_missing_charts(kind: str) -> None:
    run, findings, checked = a_refused_run(cells=(a_cell(1), a_cell(4)))
    shown = report(kind, run, findings, checked)
    text = page(shown, run, findings, checked)

    for sentence in FALSE:
        assert sentence not in text
    assert not re.search(r'<p class="note">\.?</p>', text)
    assert text.count(f"invalid: {LAG}") == 0
    assert "<figure" not in text
    assert [table.title for table in shown.tables()] == ["Metrics"]


def test_closed_load_reports_users_shared_by_arms() -> None:
    run = a_run(pairs=20)
    findings = find(run)
    checked = check(run, findings)
    (load,) = [text for label, text in report("ab", run, findings, checked).facts if label == "Load"]

    assert "4 users shared by 3 arms: an arm has 1.3 requests in flight in the mean" in load
    alone = a_run(arms=("baseline",), pairs=20)
    (load,) = [text for label, text in report("ab", alone, find(alone), check(alone)).facts if label == "Load"]
    assert "4 users," in load
