"""docs/bench_reports.md has every check, in the words that the checks use of themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastlane.bench.checks import catalogue

PAGE = Path(__file__).parents[3] / "docs/bench_reports.md"


@pytest.mark.parametrize("name", catalogue())
def test_every_check_is_in_the_page(name: str) -> None:
    assert f"| {name} | {catalogue()[name]} |" in PAGE.read_text()


def test_the_page_has_no_check_that_does_not_exist() -> None:
    table = PAGE.read_text().partition("| check | looks for | refuses when |\n|---|---|---|\n")[2].partition("\n\n")[0]

    assert [row.split(" | ")[0].removeprefix("| ") for row in table.splitlines()] == list(catalogue())
