"""The figures of savings: of one call, and added up over many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Basis = Literal["measured", "reported", "estimated"]
"""How a figure is known.

- measured: timed or counted by fastlane
- reported: reported by the provider, or calculated from that with the catalog's prices
- estimated: estimated by fastlane, such as tokens that were never sent
"""


class Figure(NamedTuple):
    """The definition of a figure of savings, and how a report shows its total."""

    unit: str
    """"s", "By", "{token}", "{call}", "{attempt}", "currency", or "" for a word or a yes and no, which is not added."""
    basis: Basis
    label: str | None = None
    """The label of its row in a report; None for no row."""
    is_spent: bool = False
    """Whether it is a cost, not a saving."""
    only_with: str | None = None
    """Another figure: the total counts only calls for which that one is known as well."""


class Entry(NamedTuple):
    """One figure of a call's savings."""

    name: str
    value: bool | int | float | str
    unit: str
    """As `Figure.unit`."""
    basis: Basis


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """One figure, added up over the calls for which it is known."""

    name: str
    """The figure's."""
    value: int | float
    unit: str
    basis: Basis
    calls: int
    """The number of these calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Savings and costs of some calls, whatever their outcome."""

    calls: int
    totals: tuple[Total, ...]
    """The totals of all known figures. Expected cache hits are counted only for calls whose cached tokens the provider
    reported."""
    counts: Mapping[str, Mapping[str, int]]
    """For each figure that is a string or a boolean: the number of calls by value, the most frequent first."""
    connections_saved_s: float | None
    """Seconds that opening a connection for each call that found it open would have taken: for each origin, the median
    of what the client's own calls took for it. None if no call opened one at any of their origins; estimated."""
    connections_unpriced: int
    """Calls on a reused connection whose saving is unknown, because no call opened a connection to their origin."""
    prompt_tokens_said: int
    """Prompt tokens of the calls whose cached tokens the provider reported."""

    @property
    def connections_known(self) -> int:
        """Calls for which it is known whether their connection was reused."""
        return sum(self.counts.get("connection_reused", {}).values())

    @property
    def connections_reused(self) -> int:
        """Calls on a reused connection."""
        return self.count("connection_reused", True)

    @property
    def hit_ratio(self) -> float | None:
        """The share of prompt tokens read from the cache, over calls that reported it; None if none did."""
        read = self.total("cache_read_tokens")
        if read is None or self.prompt_tokens_said <= 0:
            return None
        return min(1.0, read.value / self.prompt_tokens_said)

    def total(self, name: str) -> Total | None:
        """Return the total of this name; None if it is unknown for all calls."""
        return next((total for total in self.totals if total.name == name), None)

    def count(self, name: str, value: bool | str) -> int:
        """Return the number of calls whose figure has this value."""
        return self.counts.get(name, {}).get(_word(value), 0)

    def to_dict(self) -> dict[str, Any]:
        """Return the ledger as plain JSON data."""
        return {
            "calls": self.calls,
            "totals": {
                total.name: {
                    "value": total.value, "unit": total.unit, "basis": total.basis, "calls": total.calls
                }
                for total in self.totals
            },
            "counts": {name: dict(counts) for name, counts in self.counts.items()},
            "connections": {
                "known": self.connections_known,
                "reused": self.connections_reused,
                "saved_s": self.connections_saved_s,
                "unpriced": self.connections_unpriced,
            },
            "prompt_tokens_said": self.prompt_tokens_said,
            "hit_ratio": self.hit_ratio,
        }  # fmt: skip


def _word(value: bool | str) -> str:
    return value if isinstance(value, str) else str(value).lower()


def counts_of(entries: Iterable[Entry]) -> dict[str, dict[str, int]]:
    """Count calls by the value of each figure that is a string or a boolean."""
    found: dict[str, Counter[str]] = {}
    for entry in entries:
        if isinstance(entry.value, bool | str):
            found.setdefault(entry.name, Counter())[_word(entry.value)] += 1
    return {name: dict(counts.most_common()) for name, counts in found.items()}


def sum_of_known(counts: Iterable[int | None]) -> int | None:
    """Add up the known counts; None if all are unknown."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
