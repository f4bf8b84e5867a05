"""docs/bench_reports.md has every check."""

from __future__ import annotations

from pathlib import Path

from fastlane.bench.checks import CHECKS

PAGE = Path(__file__).parents[3] / "docs/bench_reports.md"


def test_page_lists_every_check() -> None:
    table = PAGE.read_text().partition("| check | looks for | refuses when |\n|---|---|---|\n")[2].partition("\n\n")[0]

    named = [row.split(" | ")[0].removeprefix("| ") for row in table.splitlines()]
    assert sorted(named) == sorted(check.name for check in CHECKS)
