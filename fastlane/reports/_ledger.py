"""The savings of many calls, added up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from ..records.savings import FIGURES, Basis
from ._phases import opening_of

if TYPE_CHECKING:
    from ..engine.call import CallRecord
    from ..records.savings import Savings

# Words and truths are counted, not added up.
_WORDS = frozenset({"connection_reused", "hedge", "tier", "tier_asked", "tier_downgraded"})


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
    connections_known: int
    """Calls of which it is known whether they found their connection open."""
    connections_reused: int
    connections_saved_s: float | None
    """Seconds that opening a connection for each of these would have taken: for each origin, the median of what the
    client's own calls took for it. None where no call opened one at any of their origins; estimated."""
    connections_unpriced: int
    """Of the reused, those at origins where no call opened a connection: their seconds are in no sum."""
    prompt_tokens_said: int
    """Prompt tokens of the calls of which the provider said what it read from its cache."""
    hedges_made: int
    hedges_won: int
    hedges_lost: int
    tiers: Mapping[str, int]
    """Calls by the tier that served them, where the provider said so."""
    downgrades: int = 0
    """Calls that a slower tier served than the one they asked for."""
    downgrades_known: int = 0
    """Calls of which it is known whether that is so."""

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
            "connections": {
                "known": self.connections_known,
                "reused": self.connections_reused,
                "saved_s": self.connections_saved_s,
                "unpriced": self.connections_unpriced,
            },
            "prompt_tokens_said": self.prompt_tokens_said,
            "hit_ratio": self.hit_ratio,
            "hedges": {"made": self.hedges_made, "won": self.hedges_won, "lost": self.hedges_lost},
            "tiers": dict(self.tiers),
            "downgrades": {"known": self.downgrades_known, "served": self.downgrades},
        }  # fmt: skip


def openings(records: Iterable[CallRecord]) -> dict[str, float]:
    """Of each origin, the median of the seconds for which calls waited for a connection to be opened."""
    found: dict[str, list[float]] = {}
    for record in records:
        for origin, took in opening_of(record):
            found.setdefault(origin, []).append(took)
    return {origin: median(took) for origin, took in found.items()}


def ledger_of(records: Sequence[CallRecord], opening_s: Mapping[str, float]) -> Ledger:
    """Add up the savings of some calls; `opening_s` is what opening a connection takes at each origin."""
    savings = [record.savings for record in records]
    reused = [record for record, own in zip(records, savings, strict=True) if own.connection_reused]
    origins = [record.attempts[-1].origin or record.origin for record in reused]
    priced = [opening_s[origin] for origin in origins if origin in opening_s]
    hedges = Counter(own.hedge for own in savings if own.hedge is not None)
    return Ledger(
        calls=len(records),
        totals=tuple(total for name in FIGURES if name not in _WORDS and (total := _total(name, savings)) is not None),
        connections_known=sum(own.connection_reused is not None for own in savings),
        connections_reused=len(reused),
        connections_saved_s=math.fsum(priced) if priced else None,
        connections_unpriced=len(origins) - len(priced),
        prompt_tokens_said=sum(
            record.usage.input_tokens or 0
            for record, own in zip(records, savings, strict=True)
            if own.cache_read_tokens is not None
        ),
        hedges_made=sum(record.hedging is not None and record.hedging.hedged for record in records),
        hedges_won=hedges["won"],
        hedges_lost=hedges["lost"],
        tiers=dict(Counter(own.tier for own in savings if own.tier is not None).most_common()),
        downgrades=sum(own.tier_downgraded is True for own in savings),
        downgrades_known=sum(own.tier_downgraded is not None for own in savings),
    )


def _total(name: str, savings: Iterable[Savings]) -> Total | None:
    values = []
    estimated = False
    for own in savings:
        value = getattr(own, name)
        if value is None or (name == "cache_expected_tokens" and own.cache_read_tokens is None):
            continue
        values.append(value)
        estimated = estimated or (name == "rejected_tokens" and own.rejected_estimated)
    if not values:
        return None
    unit, basis = FIGURES[name]
    # Exact, in whatever order the calls come.
    value = math.fsum(values) if any(isinstance(one, float) for one in values) else sum(values)
    return Total(name=name, value=value, unit=unit, basis="estimated" if estimated else basis, calls=len(values))
