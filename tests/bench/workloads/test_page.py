"""docs/workloads.md names every preset."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fastlane.bench.workloads import presets

PAGE = Path(__file__).parents[3] / "docs/workloads.md"


@pytest.mark.parametrize("name", presets())
def test_every_preset_is_in_the_page(name: str) -> None:
    rows = [line for line in PAGE.read_text().splitlines() if re.match(rf"\| (`[a-z0-9-]+`, )*`{name}`", line)]

    assert len(rows) == 1


@pytest.mark.parametrize("name", presets())
def test_page_says_how_many_users_a_preset_has(name: str) -> None:
    users, repeated = ", ".join(map(str, presets()[name].users)), ""
    for line in PAGE.read_text().splitlines():
        if not line.startswith("| `"):
            continue
        columns = [column.strip() for column in line.strip("|").split("|")]
        # "the same" as in the row before.
        repeated = repeated if columns[2] == "the same" else columns[2]
        if f"`{name}`" in columns[0]:
            assert repeated == users
            return
    pytest.fail(f"no row for {name}")
