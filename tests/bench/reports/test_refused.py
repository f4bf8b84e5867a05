"""What may not be used is in no form of a report, and is said once with what to do."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
from typing import Any

import pytest

from fastlane.bench import RecordedRun
from tests.bench.recorded_runs import a_cell, a_run, saturated, with_vitals
from tests.bench.reports.made import SATURATED, a_sweep, document, forms, parsed, reported, written

NUMBER = re.compile(r"(?<![\w.])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e-\d+)?")
REFUSED_FROM = 8_000
"""No figure of a sound cell is above it, and every duration of the refused one is (in ms)."""
KINDS = pytest.mark.parametrize("kind", ["ab", "sweep"])
CELL = "chat, 4 users"


def large_figures(text: str) -> set[str]:
    return {figure for figure in NUMBER.findall(text) if float(figure.replace(",", "")) > REFUSED_FROM}


@KINDS
def test_refused_cell_has_no_figure_in_any_form(kind: str) -> None:
    # 60 times as long as the others: a second to the first token becomes a minute, some ms per token half a second.
    run = a_sweep(arms=("baseline", "fastlane"), slower="chat, 4", time_to_first_token_s=0.5, pairs=8)
    texts = forms(saturated(run, "chat, 4"), "--kind", kind)
    data = json.loads(texts.pop(".json"))
    texts[".html"] = re.sub(r"(?s)<(script|style)>.*?</\1>", "", texts[".html"])
    texts |= {".csv": texts[".csv"].replace(",", ";"), ".json": json.dumps([data["cells"], data["comparisons"]])}

    for form, text in texts.items():
        assert not large_figures(text), form
        assert SATURATED in text, form
    assert large_figures(written(run, ".md", "--kind", kind))


@KINDS
def test_refused_run_says_why_and_has_no_figures(kind: str) -> None:
    """Sixty blocks of which every request succeeded, sent by clients that were late all the time."""
    run = a_run(pairs=20, with_log=True, cells=(a_cell(1), a_cell(4)))
    late = tuple(dataclasses.replace(each, loop_lag_p50_ms=50.0, loop_lag_p99_ms=90.0) for each in run.vitals)
    run = dataclasses.replace(run, vitals=late)
    texts = forms(run, "--kind", kind)
    text, page, found = texts[".md"], texts[".html"], parsed(texts[".md"])

    (refusal,) = [line for line in found.verdicts if line.startswith("Refused: no figure of this run may be used. ")]
    assert "client saturated: lag" in refusal
    assert "spread the lanes over more processes (--processes) or ask for less" in refusal
    # The check has it again, with its figures, and nothing else does.
    assert text.count("invalid: client saturated: lag") == page.count("invalid: client saturated: lag") == 0
    assert text.count("client saturated: lag") < 8
    assert list(found.tables)[1:] == ["Metrics"]
    assert "<figure" not in page
    assert not re.search(r'<p class="note">\.?</p>', page)
    for sentence in ("No pair of requests succeeded", "No arm has enough requests", "There is nothing to compare"):
        assert sentence not in page
    data = json.loads(texts[".json"])
    assert not any("figures" in cell for cell in data["cells"])
    assert data["problems"]


def a_bad_run(arm: str = "bad") -> RecordedRun:
    """The process of one arm used a whole core."""
    run = a_run(
        arms=("baseline", "baseline-again", "bad", "good"),
        pairs=40,
        ratio={"bad": 0.6, "good": 0.8},
        with_log=True,
        metrics=("time_to_first_token",),
    )
    return saturated(run, arm=arm)


def test_report_of_a_run_with_a_bad_arm_shows_the_others() -> None:
    found = reported(a_bad_run())

    assert f"{CELL}, bad: {SATURATED}; see Checks." in found.verdicts
    assert any(line.startswith("good: time to first token faster by ") for line in found.verdicts)
    assert not any(line.startswith("bad: ") for line in found.verdicts)
    for title, table in list(found.tables.items())[1:]:
        if title.startswith(("The very first request", "Metrics")):
            continue  # They came before the cell, and are in no other figure.
        for row in table.rows:
            assert (SATURATED in row) == (row[0] == "bad"), (title, row)
    page = written(a_bad_run(), ".html")
    charts = re.findall(r'<script type="application/json" class="spec">(.*?)</script>', page)
    assert len(charts) > 1
    assert all('"good' in spec and '"bad' not in spec for spec in charts)


def test_csv_and_json_of_a_run_with_a_bad_arm_keep_the_others() -> None:
    run = a_bad_run()

    for row in csv.DictReader(io.StringIO(written(run, ".csv"))):
        assert bool(row["invalid"]) == (row["arm"] == "bad")
        assert not row["typical_ratio"] or row["arm"] in ("good", "baseline-again")
    data = document(run)
    assert {each["arm"] for each in data["comparisons"] if "invalid" in each} == {"bad"}
    (cell,) = data["cells"]
    assert "invalid" not in cell
    assert {each["arm"] for each in cell["figures"]} == {"baseline", "baseline-again", "good"}
    assert {each["name"] for each in data["arms"] if "invalid" in each} == {"bad"}


@pytest.mark.parametrize(
    ("arm", "results"),
    [("bad", {"bad": "invalid", "good": "passed"}), ("baseline", {"bad": "invalid", "good": "invalid"})],
)
def test_rule_is_judged_for_the_arms_that_are_sound(arm: str, results: dict[str, str]) -> None:
    found = reported(a_bad_run(arm), "--fail-if", "ttft > +5%")

    assert dict(found.table("What must not be").by_column("arm", "result")) == results


def late(*, cpu_share: float, p50_ms: float = 0.2) -> RecordedRun:
    """A run of which one arm's process was late now and then."""
    run = a_run(pairs=80, metrics=("time_to_first_token",))
    vitals: dict[str, Any] = {
        "duration_s": 10.0,
        "cpu_s": 10.0 * cpu_share,
        "loop_lag_p50_ms": p50_ms,
        "loop_lag_p99_ms": 90.0,
    }
    return with_vitals(run, **vitals)


def test_arm_delayed_by_the_machine_keeps_only_medians() -> None:
    lag = "client saturated: lag"
    sound, data = document(a_run(pairs=80, metrics=("time_to_first_token",))), document(late(cpu_share=0.1))

    assert data["problems"] == []
    figures, before = (
        {each["arm"]: each for each in found["cells"][0]["figures"] if each["metric"] == "time_to_first_token"}
        for found in (data, sound)
    )
    assert figures["baseline"] == before["baseline"]
    kept, whole = figures["fastlane"], before["fastlane"]
    assert kept["quantiles"]["p50"] == whole["quantiles"]["p50"]
    for name in ("p90", "p95"):
        assert whole["quantiles"][name]["value"] is not None
        assert (kept["quantiles"][name]["value"], kept["quantiles"][name]["withheld"]) == (None, lag)
    assert (kept["mean"], kept["deviation"], kept["maximum"]) == (None, None, None)
    for each in data["comparisons"]:
        assert (set(each["quantiles"]) <= {"p25", "p50", "p75"}) == (each["arm"] == "fastlane")
    assert "invalid: lag" in written(late(cpu_share=0.1), ".md")


@pytest.mark.parametrize("vitals", [{"cpu_share": 0.6}, {"cpu_share": 0.1, "p50_ms": 30.0}])
def test_process_late_by_its_own_load_is_refused(vitals: dict[str, float]) -> None:
    data = document(late(**vitals))

    assert [each["name"] for each in data["arms"] if "invalid" in each] == ["fastlane"]
