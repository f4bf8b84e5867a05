"""What came of one check."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["holds", "broken", "skipped"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one check."""

    part: str
    """What it belongs to: "advisories", "wheel", "import", "example"."""
    what: str
    """What is to hold, as a sentence."""
    outcome: Outcome
    said: str = ""
    """What was found; where it is skipped, why."""


def judged(part: str, what: str, wrong: Iterable[str], right: str = "") -> Finding:
    """Return a finding that holds where nothing is wrong, and else names what is: `right` is said where it holds."""
    problems = list(wrong)
    if not problems:
        return Finding(part, what, "holds", right)
    more = f", and {len(problems) - 8} more" if len(problems) > 8 else ""
    return Finding(part, what, "broken", "; ".join(problems[:8]) + more)
