"""The figures of savings: of one call, and added up over many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Basis = Literal["measured", "reported", "estimated", "predicted"]
"""How a figure is known.

- measured: stamped or counted here
- reported: the provider's own word, or worked out of it with the catalog's prices
- estimated: counted here in place of the provider, such as tokens that never came
- predicted: what a model of the network says of what did not happen
"""


class Figure(NamedTuple):
    """What a figure of a call's savings is, and how a report shows its total."""

    unit: str
    """"s", "By", "{token}", "{call}", "{attempt}", "currency", or "" for a word or a yes and no, which is not added."""
    basis: Basis
    label: str | None = None
    """The words of its row in a report; None where it has none."""
    is_spent: bool = False
    """Whether it was spent and not saved."""
    only_with: str | None = None
    """Another figure: the total is of the calls of which that one is known too."""


class Entry(NamedTuple):
    """One figure of a call's savings."""

    name: str
    value: bool | int | float | str
    unit: str
    """As `Figure.unit`."""
    basis: Basis


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """One figure, added up over the calls of which it is known."""

    name: str
    """As `Savings` has it."""
    value: int | float
    unit: str
    basis: Basis
    calls: int
    """How many calls it is of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What was saved over some calls and what was spent for that, however the calls ended."""

    calls: int
    totals: tuple[Total, ...]
    """What is known of any call, in the order of `Savings`. What was expected from caches is of the calls of which the
    provider said what it read."""
    counts: Mapping[str, Mapping[str, int]]
    """Of each figure that is a word or a yes or no: calls by its value, the most frequent first."""
    connections_saved_s: float | None
    """Seconds that opening a connection for each call that found it open would have taken: for each origin, the median
    of what the client's own calls took for it. None where no call opened one at any of their origins; estimated."""
    connections_unpriced: int
    """Calls that found their connection open at origins where no call opened one: their seconds are in no sum."""
    prompt_tokens_said: int
    """Prompt tokens of the calls of which the provider said what it read from its cache."""

    @property
    def connections_known(self) -> int:
        """Calls of which it is known whether they found their connection open."""
        return sum(self.counts.get("connection_reused", {}).values())

    @property
    def connections_reused(self) -> int:
        """Calls that found their connection open."""
        return self.count("connection_reused", True)

    @property
    def hit_ratio(self) -> float | None:
        """The share of the prompts' tokens read from the cache, of the calls that said; None where none did."""
        read = self.total("cache_read_tokens")
        if read is None or self.prompt_tokens_said <= 0:
            return None
        return min(1.0, read.value / self.prompt_tokens_said)

    def total(self, name: str) -> Total | None:
        """The total of this name; None where it is known of no call."""
        return next((total for total in self.totals if total.name == name), None)

    def count(self, name: str, value: bool | str) -> int:
        """The number of calls of which a figure has this value."""
        return self.counts.get(name, {}).get(_word(value), 0)

    def to_dict(self) -> dict[str, Any]:
        """The ledger as plain JSON data."""
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
    """Count calls by the values of each figure that is a word or a yes or no."""
    found: dict[str, Counter[str]] = {}
    for entry in entries:
        if isinstance(entry.value, bool | str):
            found.setdefault(entry.name, Counter())[_word(entry.value)] += 1
    return {name: dict(counts.most_common()) for name, counts in found.items()}


def sum_of_known(counts: Iterable[int | None]) -> int | None:
    """Add up what is known; None where nothing is."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def seconds_shown(value: float) -> str:
    """Seconds with their unit."""
    if value < 0.01:
        return f"{value * 1e3:.2f} ms"
    if value < 0.9995:
        return f"{value * 1e3:.0f} ms"
    return f"{value:,.2f} s" if value < 1_000 else f"{value:,.0f} s"
