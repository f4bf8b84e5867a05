from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from tests.nightly import WHOLE, ages

TODAY = date(2026, 3, 20)
GOOD = {"date": "2026-03-06", "commit": "abc", "command": "make soak", "seconds": 9, "passed": True}


@pytest.mark.parametrize(
    ("soak", "expected"),
    [
        (GOOD, "passed 14 days ago"),
        ({**GOOD, "date": "2026-03-05"}, "passed 15 days ago"),
        ({**GOOD, "passed": False}, "FAILED 14 days ago"),
        (None, "has never run"),
    ],
)
def test_age_of_last_run_is_judged(soak: dict[str, Any] | None, expected: str) -> None:
    results: dict[str, dict[str, Any]] = {part: GOOD for part in WHOLE if part != "soak"}
    if soak is not None:
        results["soak"] = soak

    lines = dict(ages(results, TODAY))

    bad = [line for line, good in lines.items() if not good]
    assert bad == ([] if soak is GOOD else [line for line in lines if line.startswith("soak: ")])
    assert any(line.startswith(f"soak: {expected}") for line in lines)
