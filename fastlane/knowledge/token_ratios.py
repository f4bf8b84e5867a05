"""Ratios of a provider's token counts to the size of a prompt in bytes, characters or estimated tokens."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from .table import Table

_SAMPLES = 15


class TokenRatio(NamedTuple):
    """The median of the latest 15 ratios, so that one prompt with an image has no effect."""

    samples: tuple[float, ...] = ()
    median: float | None = None

    def learned(self, size: float, tokens: float, *, least: float, most: float) -> TokenRatio:
        """Return the ratio with another prompt added. `size` and `tokens` must be above 0."""
        samples = (*self.samples[1 - _SAMPLES :], min(max(tokens / size, least), most))
        return TokenRatio(samples, sorted(samples)[len(samples) // 2])


class TokenRatios:
    """Ratios by key, such as (origin, model). Thread-safe."""

    def __init__(self, name: str, *, least: float, most: float, max_entries: int = 1_024) -> None:
        """Ratios are clamped to the range from `least` to `most`."""
        self._least = least
        self._most = most
        self._known: Table[Hashable, TokenRatio] = Table(name, max_entries=max_entries)

    def of(self, key: Hashable) -> float | None:
        """Return the median of the latest ratios; None if nothing was learned."""
        known = self._known.get(key)
        return None if known is None else known.median

    def learn(self, key: Hashable, size: float, tokens: float) -> None:
        """Add the size and the token count of a prompt. Values not above 0 are ignored."""
        if not (size > 0 and tokens > 0):
            return
        least, most = self._least, self._most
        self._known.update(key, lambda known: (known or TokenRatio()).learned(size, tokens, least=least, most=most))

    def clear(self) -> None:
        """Forget all ratios."""
        self._known.clear()
