"""The forms in which a report is shown: each says the same, and none has a figure of a cell that may not be used."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from fastlane.bench.checks import Checked
from fastlane.bench.recorded import RecordedRun
from fastlane.bench.reports import (
    KINDS,
    Entry,
    RunReport,
    Section,
    Table,
    csv_rows,
    document,
    markdown,
    print_terminal,
    report,
    write_csv,
)
from tests.bench.recorded_runs import a_run, an_arm
from tests.bench.reports.made import a_sweep, checks_with, findings_of

NUMBER = re.compile(r"(?<![\w.])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e-\d+)?")
REFUSED_FROM = 8_000
"""No figure of a sound cell is above it, and every duration of the refused one is (in ms)."""


def made(kind: str, run: RecordedRun, checked: Checked) -> RunReport:
    return report(kind, run, findings_of(run), checked)


def printed(found: RunReport, width: int = 120) -> str:
    file = io.StringIO()
    print_terminal(found, Console(file=file, width=width))
    return file.getvalue()


def a_run_with_a_slow_cell() -> RecordedRun:
    # 60 times as long as the others: a second to the first token becomes a minute, some ms per token half a second.
    return a_sweep(arms=("baseline", "baseline-again", "fastlane"), slower="chat, 4", time_to_first_token_s=0.5)


def figures_in(text: str) -> set[str]:
    return set(NUMBER.findall(text))


@pytest.mark.parametrize("kind", KINDS)
def test_refused_cell_has_no_figure_in_any_form(kind: str, tmp_path: Path) -> None:
    run = a_run_with_a_slow_cell()
    checked = checks_with("chat, 4")
    findings = findings_of(run)
    found = made(kind, run, checked)

    write_csv(tmp_path / "figures.csv", run, findings, checked)
    forms = {
        "markdown": markdown(found),
        "terminal": printed(found),
        "json": json.dumps(document(run, findings, checked)),
        "csv": (tmp_path / "figures.csv").read_text().replace(",", ";"),
    }
    for form, text in forms.items():
        large = {figure for figure in figures_in(text) if float(figure.replace(",", "")) > REFUSED_FROM}
        assert not large, form
        assert "invalid: client saturated" in text, form


def test_slow_cell_figures_appear_when_not_refused() -> None:
    text = markdown(made("sweep", a_run_with_a_slow_cell(), checks_with()))

    assert any(float(figure.replace(",", "")) > REFUSED_FROM for figure in figures_in(text))


@pytest.mark.parametrize("kind", KINDS)
def test_refused_run_has_no_table_with_figures(kind: str) -> None:
    run = a_run(pairs=10)
    checked = checks_with()
    refusal = checks_with("any").results[1]
    checked = Checked(results=(*checked.results, refusal.__class__(check="clock", level="refused", sentence="No.")))

    found = made(kind, run, checked)

    assert found.verdicts[0].text == "Refused: no figure of this run may be used. clock: No. See Checks."
    assert [table.title for table in found.tables()] == ["Metrics"]
    data = document(run, findings_of(run), checked)
    assert not any("figures" in cell for cell in data["cells"])
    assert data["problems"] == ["No."]


def tables_of(text: str) -> Iterator[list[str]]:
    for block in text.split("\n\n"):
        lines = block.splitlines()
        if lines and all(line.startswith("|") for line in lines):
            yield lines


@pytest.mark.parametrize("kind", KINDS)
def test_markdown_tables_have_as_many_cells_in_every_row(kind: str) -> None:
    text = markdown(made(kind, a_sweep(), checks_with("agent, 4")))

    found = list(tables_of(text))
    assert len(found) > 5
    for lines in found:
        counts = {len(re.split(r"(?<!\\)\|", line)) for line in lines}
        assert len(counts) == 1, lines


def test_markdown_shows_text_as_it_is() -> None:
    table = Table(title="T", columns=("x",), rows=((Entry("a|b <c> *d* `e`"),),))
    sections = (Section(title="S", parts=(table,)),)

    text = markdown(RunReport(kind="ab", title="T", question="Q", verdicts=(), facts=(), sections=sections))

    assert r"| a\|b \<c\> \*d\* \`e\` |" in text


@pytest.mark.parametrize("kind", KINDS)
def test_terminal_shows_every_table_and_verdict(kind: str) -> None:
    found = made(kind, a_sweep(), checks_with("agent, 4", flagged=("chat, 1",)))

    text = " ".join(printed(found).split())

    for table in found.tables():
        assert table.title in text
    for line in found.verdicts:
        assert line.text in text
    assert "flagged cache hits chat, 1: Some hits." in text
    assert "Passed: answers cut off" in text
    assert "Definitions" in text


@pytest.mark.parametrize("width", [60, 120])
def test_narrow_terminal_cuts_nothing_off(width: int) -> None:
    found = made("ab", a_run(arms=("baseline", "baseline-again", "an-arm-with-a-very-long-name")), checks_with())

    text = printed(found, width)

    assert text.count("…") == markdown(found).count("…")
    assert all(cell_len(line) <= width for line in text.splitlines())


def test_csv_has_one_row_per_cell_arm_and_metric() -> None:
    run = a_run(pairs=20)
    rows = list(csv_rows(run, findings_of(run), checks_with()))

    keys = [(row["cell"], row["arm"], row["metric"]) for row in rows]
    assert len(set(keys)) == len(keys)
    first = next(row for row in rows if row["arm"] == "fastlane" and row["metric"] == "time_to_first_token")
    assert (first["unit"], first["n"], first["verdict"], first["pairs"]) == ("ms", 20, "faster", 20)
    assert first["p50_low"] < first["p50"] < first["p50_high"]
    assert first["p95"] is None


def test_row_of_csv_names_the_reference_it_is_compared_with() -> None:
    arms = (
        "baseline",
        "fastlane",
        an_arm("baseline-async", role="reference"),
        an_arm("fastlane-async", reference="baseline-async"),
    )
    run = a_run(arms=arms)

    rows = csv_rows(run, findings_of(run), checks_with())
    assert {row["arm"]: row["compared_with"] for row in rows if row["compared_with"]} == {
        "fastlane": "baseline",
        "fastlane-async": "baseline-async",
    }


def test_document_has_every_figure_by_its_name() -> None:
    run = a_run(pairs=20)
    data = document(run, findings_of(run), checks_with())

    assert (data["schema"], data["ended"], data["blocks"]) == (3, "finished", 20)
    arm = data["arms"][2]
    assert (arm["name"], arm["requests"], arm["failed"], arm["errors"]) == ("fastlane", 20, 0, {})
    comparison = next(each for each in data["comparisons"] if not each["copy"])
    assert (comparison["reference"], comparison["word"], comparison["verdict"]["kind"]) == (
        "baseline", "faster", "better",
    )  # fmt: skip
    assert set(comparison["quantiles"]) == {"p50"}
    figures = data["cells"][0]["figures"][0]
    assert figures["quantiles"]["p95"]["wanted"] == 72
