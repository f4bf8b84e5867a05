"""docs/bench_reports.md has every check."""

from __future__ import annotations

from pathlib import Path

from fastlane.bench.checks import CHECKS

PAGE = Path(__file__).parents[3] / "docs/bench_reports.md"


def test_the_page_has_every_check_and_no_other() -> None:
    table = PAGE.read_text().partition("| check | looks for | refuses when |\n|---|---|---|\n")[2].partition("\n\n")[0]

    named = [row.split(" | ")[0].removeprefix("| ") for row in table.splitlines()]
    assert sorted(named) == sorted(check.name for check in CHECKS)
