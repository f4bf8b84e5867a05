"""Add up the savings of many calls."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from ..records.ledger import Entry, Figure, Ledger, Total
from ..records.savings import figures
from ._phases import opening_of

if TYPE_CHECKING:
    from ..records.record import CallRecord


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
        totals=_totals([own.entries for own in savings]),
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


def _totals(entries: Iterable[Sequence[Entry]]) -> tuple[Total, ...]:
    """Add up the figures that are numbers, in the order of `Savings`."""
    found: dict[str, list[Entry]] = {}
    table = figures()
    for own in entries:
        names = {entry.name for entry in own}
        for entry in own:
            figure = table[entry.name]
            if figure.unit and (figure.only_with is None or figure.only_with in names):
                found.setdefault(entry.name, []).append(entry)
    return tuple([_total(name, table[name], found[name]) for name in table if name in found])


def _total(name: str, figure: Figure, entries: Sequence[Entry]) -> Total:
    values: list[float] = [entry.value for entry in entries]  # type: ignore[misc] # what has a unit is a number
    basis = "estimated" if any(entry.basis == "estimated" for entry in entries) else figure.basis
    # Exact, in whatever order the calls come.
    value = math.fsum(values) if any(isinstance(one, float) for one in values) else sum(values)
    return Total(name=name, value=value, unit=figure.unit, basis=basis, calls=len(values))
