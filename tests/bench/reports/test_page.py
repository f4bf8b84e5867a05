from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import re
import sys

import pytest

from fastlane.bench.reports import (
    Chart,
    Checks,
    Column,
    Definition,
    Definitions,
    Heading,
    Paragraph,
    ReportTable,
    RunReport,
    TableCell,
    TableRow,
    VerdictLine,
    report,
)
from fastlane.bench.reports._page import page
from fastlane.bench.reports._page_blocks import anchor_of
from fastlane.errors import MissingExtraError
from tests.bench.recorded_runs import a_run, an_arm
from tests.bench.reports.made import checks_with, findings_of

NASTY = "</script><img src=x onerror=alert(1)>&quot;@@style@@\u2028"


@pytest.fixture(scope="module")
def written() -> str:
    run = a_run(arms=("baseline", "baseline-again", an_arm("fast", description=NASTY), NASTY), pairs=30, name=NASTY)
    checked = checks_with(flagged=["chat, 4 users"])
    failed = dataclasses.replace(checked.results[-1], sentence=NASTY, check=NASTY)
    found = findings_of(run, sentence=NASTY)
    checked = dataclasses.replace(checked, results=(*checked.results, failed))
    return page(report("ab", run, found, checked), run, found, checked)


def test_nothing_of_a_record_becomes_markup(written: str) -> None:
    assert "<img" not in written
    assert written.count("</script>") == 1
    assert html.escape(NASTY) in written


def test_the_page_may_load_nothing_and_run_nothing_but_its_own_script(written: str) -> None:
    policy = re.search(r'http-equiv="Content-Security-Policy" content="(.*?)"', written)
    script = re.search(r"<script>(.*?)</script>", written, re.DOTALL)
    style = re.search(r"<style>(.*?)</style>", written, re.DOTALL)
    assert policy is not None
    assert script is not None
    assert style is not None

    def digest(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    assert html.unescape(policy[1]) == (
        f"default-src 'none'; script-src 'sha256-{digest(script[1])}'; style-src 'sha256-{digest(style[1])}'; "
        "base-uri 'none'; form-action 'none'"
    )
    tags = " ".join(re.sub(r'"[^"]*"', '""', tag) for tag in re.findall(r"<[^>]+>", written))
    assert not re.search(r"\s(?:src|srcset|style|on\w+)=", tags)
    assert not re.search(r"https?:|url\((?!#)|@import", script[1] + style[1])


def test_every_identifier_is_given_once(written: str) -> None:
    given = re.findall(r'\sid="([^"]+)"', written)
    assert len(given) == len(set(given))
    assert set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', written))
    for pair in re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', written):
        assert next(filter(None, pair)) in given


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
        verdicts=(VerdictLine(text="fastlane: faster", tone="good"),),
        blocks=(
            Paragraph(text="Before any heading.", tone="warning"),
            Heading(text="Twice"),
            Heading(text="Below", level=3),
            table,
            Chart(name="forest", title="Nothing", caption="A caption.", refused="invalid: client saturated"),
            Chart(name="no_such_chart", title="Unknown", caption="Its caption alone."),
            Heading(text="Twice"),
            Checks(results=checked.results),
            Definitions(entries=(Definition(term="TTFT", text="Time to first token."),)),
        ),
    )

    written = page(made, run, found, checked)

    assert '<p class="warning">Before any heading.</p>' in written
    assert 'id="part-twice"' in written
    assert 'id="part-twice-2"' in written
    assert 'data-value="12.0">12<span class="bounds"> [10, 14]</span></td>' in written
    assert '<td class="refused" colspan="2">invalid: client saturated</td>' in written
    assert '<div class="invalid">invalid: client saturated</div>' in written
    assert "Its caption alone." in written
    assert "<dt>TTFT</dt><dd>Time to first token.</dd>" in written
    assert written.count("<section") == written.count("</section>") == 4
    assert "<svg" not in written


def test_anchors_are_names_that_a_link_can_hold() -> None:
    taken: set[str] = set()
    assert [anchor_of(text, taken) for text in ("A & B", "a b", "\N{SNOWMAN}", "x" * 99)] == [
        "part-a-b",
        "part-a-b-2",
        "part-x",
        "part-" + "x" * 60,
    ]


def test_a_page_names_the_extra_that_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_run(pairs=4)
    found, checked = findings_of(run), checks_with()
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(MissingExtraError, match=r"fastlane-llm\[charts\]"):
        page(report("ab", run, found, checked), run, found, checked)
