"""How many tokens providers count for each unit of a prompt's size: a byte, a character, an estimated token."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from .table import Table

# Of the latest ratios the middle one holds: one prompt with a picture does not move it.
_SAMPLES = 15


class _Ratio(NamedTuple):
    samples: tuple[float, ...]
    middle: float


class TokenRatios:
    """Ratios by key, such as (origin, model). Thread-safe."""

    def __init__(self, name: str, *, least: float, most: float, max_entries: int = 1_024) -> None:
        """Ratios below `least` or above `most` are taken for these."""
        self._least = least
        self._most = most
        self._known: Table[Hashable, _Ratio] = Table(name, max_entries=max_entries)

    def of(self, key: Hashable) -> float | None:
        """Return the middle one of the latest ratios; None where nothing was learned."""
        known = self._known.get(key)
        return None if known is None else known.middle

    def learn(self, key: Hashable, size: float, tokens: float) -> None:
        """Learn that a prompt of a size was so many tokens. Nothing is learned from what is not above 0."""
        if not (size > 0 and tokens > 0):
            return
        ratio = min(max(tokens / size, self._least), self._most)

        def change(known: _Ratio | None) -> _Ratio:
            samples = (*(known.samples if known is not None else ())[1 - _SAMPLES :], ratio)
            return _Ratio(samples, sorted(samples)[len(samples) // 2])

        self._known.update(key, change)

    def clear(self) -> None:
        """Forget all ratios."""
        self._known.clear()
