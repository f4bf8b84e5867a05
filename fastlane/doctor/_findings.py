"""What was looked at and what was seen, as data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

Group = Literal[
    "the way there",
    "the connection",
    "the provider",
    "request bodies",
    "streaming",
    "prompt cache",
    "service tiers",
    "structured outputs",
    "timing and limits",
]

State = Literal["seen", "notable", "failed", "left out"]
"""What became of a look.

- seen: it was looked at; what was seen is as it should be, or just is so
- notable: it was looked at, and what was seen costs something or wants something done
- failed: it was looked at, and nothing can be said because of an error
- left out: it was not looked at; the finding says why
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFact:
    """One fact that was measured, as a place in a facts file and its value."""

    path: tuple[str, ...]
    """Keys of the facts file, such as ("encodings", "/chat/completions")."""
    value: Any
    """None where what was seen before of the same place turned out not to hold."""
    note: str = ""
    is_whole: bool = True
    """Whether a list holds all that there is; otherwise nothing is known of what it leaves out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFinding:
    """One thing that was looked at. Holds no text of a prompt or an answer, and no key."""

    group: Group
    looked_at: str
    seen: str
    state: State = "seen"
    advice: str = ""
    """What follows from it, or what to do; empty where nothing does."""
    value: Any = None
    """The figures behind `seen`, as JSON values."""
    facts: tuple[MeasuredFact, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "group": self.group,
            "looked_at": self.looked_at,
            "seen": self.seen,
            "state": self.state,
            "advice": self.advice,
            "value": self.value,
            "facts": [{"path": list(fact.path), "value": fact.value, "note": fact.note} for fact in self.facts],
        }


def lasting(findings: Iterable[ProviderFinding]) -> dict[tuple[str, ...], tuple[ProviderFinding, MeasuredFact]]:
    """The facts that hold in the end, by their places, each with the finding that it comes from."""
    last = {fact.path: (finding, fact) for finding in findings for fact in finding.facts}
    return {path: (finding, fact) for path, (finding, fact) in last.items() if fact.value is not None}


def milliseconds(duration_ns: float) -> str:
    """A duration in words, to two digits or to the millisecond."""
    value = duration_ns / 1e6
    if value < 1:
        return f"{value:.2f} ms"
    return f"{value:.1f} ms" if value < 10 else f"{value:,.0f} ms"


def in_ms(duration_ns: float | None) -> float | None:
    """A duration for JSON: milliseconds to the microsecond."""
    return None if duration_ns is None else round(duration_ns / 1e6, 3)
