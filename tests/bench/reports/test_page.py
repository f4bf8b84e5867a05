from __future__ import annotations

from fastlane.bench.reports import (
    Chart,
    Checks,
    Column,
    Definitions,
    Heading,
    Paragraph,
    ReportTable,
    RunReport,
    TableCell,
    TableRow,
)
from fastlane.bench.reports._page import page
from tests.bench.recorded_runs import a_run
from tests.bench.reports.made import checks_with, findings_of


def test_every_kind_of_block_is_shown() -> None:
    run = a_run(pairs=4)
    found, checked = findings_of(run), checks_with("chat, 4 users")
    table = ReportTable(
        title="A table",
        columns=(Column(title="arm", alignment="left"), Column(title="p50", unit="ms"), Column(title="p95", unit="ms")),
        rows=(
            TableRow(
                entries=(
                    TableCell(text="fastlane"),
                    TableCell(text="12 [10, 14]", value=12.0, low=10, high=14),
                    TableCell(text="-"),
                )
            ),
            TableRow(entries=(TableCell(text="baseline"),), refused="invalid: client saturated"),
        ),
        notes=("A note.",),
    )
    made = RunReport(
        kind="ab",
        title="All of them",
        question="What is shown?",
        verdicts=(Paragraph(text="fastlane: faster", tone="good"),),
        blocks=(
            Paragraph(text="Before any heading.", tone="warning"),
            Heading(text="Twice"),
            Heading(text="Below", level=3),
            table,
            Chart(name="attribution", title="Nothing", caption="A caption."),
            Heading(text="Twice"),
            Checks(results=checked.results),
            Definitions(entries=(("TTFT", "Time to first token."),)),
        ),
    )

    written = page(made, run, found, checked)

    assert '<p class="warning">Before any heading.</p>' in written
    assert written.count("<summary><h2>Twice</h2></summary>") == 2
    assert 'data-value="12.0">12 [10, 14]</td>' in written
    assert '<td class="refused" colspan="2">invalid: client saturated</td>' in written
    assert "<dt>TTFT</dt><dd>Time to first token.</dd>" in written
    assert "<figure" not in written
    assert "vegaEmbed=" not in written
