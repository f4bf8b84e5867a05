"""What came of one check."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
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

    def to_dict(self) -> dict[str, str]:
        """Return it as it is written with `--json`."""
        return {"part": self.part, "what": self.what, "outcome": self.outcome, "said": self.said}


def judged(part: str, what: str, wrong: Iterable[str], right: str = "") -> Finding:
    """Return a finding that holds where nothing is wrong, and else names what is: `right` is said where it holds."""
    problems = list(wrong)
    if not problems:
        return Finding(part, what, "holds", right)
    more = f", and {len(problems) - 8} more" if len(problems) > 8 else ""
    return Finding(part, what, "broken", "; ".join(problems[:8]) + more)


def timed(work: Callable[[], Sequence[Finding]]) -> tuple[Sequence[Finding], float]:
    """Return what a part has found, and the seconds that it took."""
    started = time.monotonic()
    return work(), time.monotonic() - started
