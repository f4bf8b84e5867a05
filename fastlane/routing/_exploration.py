"""How often a call goes to a model that only may be the fastest, to see whether it is."""

from __future__ import annotations

from random import Random

_MOST_CREDIT = 1.0


class Exploration:
    """Credit for exploring: every decision earns `share`, and an exploring one costs 1; at most one is saved up."""

    def __init__(self, share: float, random: Random) -> None:
        self.share = share
        self.random = random
        self._credit = 0.0

    def may(self) -> bool:
        """Count a decision, and say whether it may explore."""
        self._credit = min(_MOST_CREDIT, self._credit + self.share)
        return self._credit >= 1.0

    def spend(self) -> None:
        """It did."""
        self._credit -= 1.0
