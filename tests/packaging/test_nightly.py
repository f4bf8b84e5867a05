from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.nightly import WHOLE, ages

TODAY = date(2026, 3, 20)
GOOD = {"date": "2026-03-06", "commit": "abc", "command": "make soak", "seconds": 9, "passed": True}


@pytest.mark.parametrize(
    ("changed", "expected", "good"),
    [
        ({}, "passed 14 days ago", True),
        ({"date": "2026-03-05"}, "passed 15 days ago", False),
        ({"passed": False}, "FAILED 14 days ago", False),
    ],
)
def test_age_of_last_run_is_judged(changed: dict[str, Any], expected: str, good: bool) -> None:
    lines = dict(ages({"soak": {**GOOD, **changed}}, TODAY))

    ((line, verdict),) = [(line, verdict) for line, verdict in lines.items() if line.startswith("soak: ")]
    assert line.startswith(f"soak: {expected}")
    assert verdict is good


@pytest.mark.parametrize(("command", "good"), [("make soak", True), ("make soak ARGS=--minutes 5", False)])
def test_release_needs_every_part_whole(command: str, good: bool) -> None:
    results = {part: {**GOOD, "command": " ".join(whole)} for part, whole in WHOLE.items()}
    results["soak"] = {**GOOD, "command": command}

    assert all(verdict for _, verdict in ages(results, TODAY, release=True)) is good
    del results["soak"]
    assert all(verdict for _, verdict in ages(results, TODAY))
    assert not all(verdict for _, verdict in ages(results, TODAY, release=True))


def test_part_does_not_get_the_arguments_of_make_nightly(tmp_path: Path) -> None:
    makefile, program = tmp_path / "Makefile", tmp_path / "program.py"
    part = ("make", "-f", str(makefile), "part")
    program.write_text(f"from tests import nightly\nnightly.passes({part})\n")
    makefile.write_text(f"nightly:\n\tPYTHONPATH=. '{sys.executable}' {program}\npart:\n\t@echo '[$(ARGS)]'\n")

    command = ("make", "-f", makefile, "nightly", "ARGS=--only soak")
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "[]" in printed.splitlines()
