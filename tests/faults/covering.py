"""Which cells stand for all: of each fault every pair of two dimensions' values, of a family every fault once."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from tests.faults.table import FAULTS, Cell, applicable

Pair = tuple[tuple[str, object], tuple[str, object]]
_WAYS = ("form", "stream", "protocol", "plays")


def family(cell: Cell) -> str:
    """The family of a cell's fault; a fault of its own is its own family."""
    return FAULTS[cell.fault].family or cell.fault


def pairs(cell: Cell) -> frozenset[Pair]:
    """The pairs of values that a cell has; faults of one family differ in a number alone, and share their pairs."""
    fault = ("fault", cell.fault)
    ways = [(name, getattr(cell, name)) for name in _WAYS]
    if FAULTS[cell.fault].family:
        return frozenset([*combinations(ways, 2), (fault, fault)])
    return frozenset(combinations([fault, *ways], 2))


def covering(cells: Iterable[Cell] | None = None) -> list[Cell]:
    """Of each family the cells that together have every pair which any of its cells has, found greedily.

    Of the cells that bring most pairs which are still missing, the first in the order of the table is taken.
    """
    families: dict[str, list[Cell]] = {}
    for cell in applicable() if cells is None else cells:
        families.setdefault(family(cell), []).append(cell)
    chosen = []
    for members in families.values():
        missing = {pair for cell in members for pair in pairs(cell)}
        while missing:
            best = max(members, key=lambda cell: len(pairs(cell) & missing))
            chosen.append(best)
            missing -= pairs(best)
    return chosen
