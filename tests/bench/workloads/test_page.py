"""docs/workloads.md names every preset."""

from __future__ import annotations

import re
from pathlib import Path

from fastlane.bench.workloads import presets

PAGE = Path(__file__).parents[3] / "docs/workloads.md"


def test_page_has_a_row_for_every_preset_with_its_users() -> None:
    found: dict[str, str] = {}
    users = ""
    for line in PAGE.read_text().splitlines():
        columns = [column.strip() for column in line.strip("|").split("|")]
        if re.match(r"\| `[a-z]", line) and set(re.findall(r"`([a-z0-9-]+)`", columns[0])) <= presets().keys():
            # "the same" as in the row before.
            users = users if columns[2] == "the same" else columns[2]
            found |= dict.fromkeys(re.findall(r"`([a-z0-9-]+)`", columns[0]), users)

    assert found == {name: ", ".join(map(str, preset.users)) for name, preset in presets().items()}
