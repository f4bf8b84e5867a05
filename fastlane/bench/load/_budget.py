"""What a run has spent of its budget, and which part of the rest a cell may spend."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..recorded import Sample
from ._types import RunBudget


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCost:
    """What requests have cost so far."""

    seconds: float = 0.0
    calls: int = 0
    money: float = 0.0

    def with_sample(self, sample: Sample) -> RunCost:
        """Return this with one more request; its time is not counted here."""
        return replace(
            self,
            calls=self.calls + 1,
            money=self.money + (sample.price or 0.0),
        )

    def with_seconds(self, seconds: float) -> RunCost:
        """Return this with a cell's time."""
        return replace(self, seconds=self.seconds + seconds)


def share_of(budget: RunBudget, spent: RunCost, *, cells_left: int) -> RunBudget:
    """Return what the next of the cells that are left may spend: an equal part of what is left.

    What a cell does not use is there for those after it.
    """
    left = {name: max(0.0, limit - used) / cells_left for name, limit, used in _limits(budget, spent)}
    calls = left.get("calls")
    return RunBudget(
        seconds=left.get("seconds"), calls=None if calls is None else math.floor(calls), money=left.get("money")
    )


def exhausted(budget: RunBudget, spent: RunCost, *, calls_of_next: int = 0) -> str | None:
    """Return why no further block may start, such as "calls spent"; None while one may.

    Calls are known before they are made, so that they are never exceeded; the others are spent when they are seen to
    be.
    """
    for name, limit, used in _limits(budget, spent):
        if used + calls_of_next > limit if name == "calls" else used >= limit:
            return f"{name} spent"
    return None


def share_spent(budget: RunBudget, spent: RunCost) -> float:
    """Return the largest share of any limit that is spent, 1.0 at most; 0.0 where nothing is limited."""
    shares = [used / limit if limit else 1.0 for _, limit, used in _limits(budget, spent)]
    return min(1.0, max(shares, default=0.0))


def _limits(budget: RunBudget, spent: RunCost) -> Iterator[tuple[str, float, float]]:
    """Yield the name of each limit, the limit, and how much of it is spent."""
    for name in ("calls", "seconds", "money"):
        limit = getattr(budget, name)
        if limit is not None:
            yield name, limit, getattr(spent, name)
