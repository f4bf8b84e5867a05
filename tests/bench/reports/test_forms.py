"""The forms in which a report is shown: each says the same."""

from __future__ import annotations

import csv
import html
import io
from dataclasses import replace

import pytest
from rich.cells import cell_len

from tests.bench.recorded_runs import a_run, an_arm, saturated
from tests.bench.reports.made import a_sweep, document, forms, parsed, written


@pytest.mark.parametrize("kind", ["ab", "sweep"])
def test_every_form_shows_every_table_and_verdict(kind: str) -> None:
    run = saturated(a_sweep(arms=("baseline", "an-arm-with-a-very-long-name"), pairs=8), "agent, 4")
    # A request that came late now and then is flagged.
    run = replace(
        run, vitals=tuple(replace(each, loop_lag_p99_ms=5.0) if each.cell == "chat, 1" else each for each in run.vitals)
    )
    texts = forms(run, "--kind", kind)
    found, terminal, page = parsed(texts[".md"]), texts["full"], html.unescape(texts[".html"])

    words = " ".join(terminal.split())
    for expected in (*found.tables, *found.verdicts, "client saturated: CPU", "client saturated: lag", "Definitions"):
        assert expected in words
        assert expected in page
    assert "Passed: the same prompts" in words
    assert "refused</b>" in page
    assert all(cell_len(line) <= 120 for line in terminal.splitlines())
    assert terminal.count("…") == texts[".md"].count("…")


FOUR_ARMS = (
    "baseline",
    "fastlane",
    an_arm("baseline-async", role="reference"),
    an_arm("fastlane-async", reference="baseline-async"),
)


def test_csv_has_one_row_per_cell_arm_and_metric() -> None:
    rows = list(csv.DictReader(io.StringIO(written(a_run(pairs=20, arms=FOUR_ARMS), ".csv"))))

    keys = [(row["cell"], row["arm"], row["metric"]) for row in rows]
    assert len(set(keys)) == len(keys)
    first = next(row for row in rows if row["arm"] == "fastlane" and row["metric"] == "time_to_first_token")
    assert (first["unit"], first["n"], first["verdict"], first["pairs"]) == ("ms", "20", "faster", "20")
    assert float(first["p50_low"]) < float(first["p50"]) < float(first["p50_high"])
    assert first["p95"] == ""
    assert {row["arm"]: row["compared_with"] for row in rows if row["compared_with"]} == {
        "fastlane": "baseline",
        "fastlane-async": "baseline-async",
    }


def test_document_has_every_figure_by_its_name() -> None:
    data = document(a_run(pairs=20))

    assert (data["schema"], data["ended"], data["blocks"]) == (3, "finished", 20)
    arm = data["arms"][2]
    assert (arm["name"], arm["requests"], arm["failed"], arm["errors"]) == ("fastlane", 20, 0, {})
    comparison = next(each for each in data["comparisons"] if not each["copy"])
    assert (comparison["reference"], comparison["word"], comparison["verdict"]["kind"]) == (
        "baseline", "faster", "better",
    )  # fmt: skip
    assert set(comparison["quantiles"]) == {"p25", "p50", "p75"}
    figures = data["cells"][0]["figures"][0]
    assert figures["quantiles"]["p95"]["wanted"] == 72
