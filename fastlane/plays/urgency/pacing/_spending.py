"""How much has left until when: what was sent at nearly the same time may be admitted in any order."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from fastlane.providers.facts import Counts

# Ways to a provider differ by about as much.
_NEARLY_S = 0.1
_SLOT_S = 0.01
# Answers that take longer to come than this tell little of now.
_KEPT_S = 120.0
_MOST_SLOTS = 16_384


class Mark(NamedTuple):
    """What was thought of a limit when a request left."""

    level: float
    """What was left after it."""
    corrected: float
    """The sum of all corrections until then."""


class Around(NamedTuple):
    """What was spent about when one request left, in the limit's own counting but for its scale.

    Requests that leave at nearly the same time may be admitted in another order.
    """

    spent: float
    """In all until then, itself included."""
    before: float
    """Just before, without itself."""
    after: float
    """Just after."""


class Spending:
    """The sums of what has left, by its time."""

    __slots__ = ("_at", "_requests", "_tokens", "requests", "tokens")

    def __init__(self) -> None:
        self.requests = self.tokens = 0.0
        self._at: list[float] = []
        self._requests: list[float] = []
        self._tokens: list[float] = []

    def count(self, now_s: float, requests: float, tokens: float) -> None:
        """Count what leaves now."""
        self.requests += requests
        self.tokens += tokens
        if self._at and now_s - self._at[-1] < _SLOT_S:
            self._requests[-1], self._tokens[-1] = self.requests, self.tokens
            return
        self._at.append(now_s)
        self._requests.append(self.requests)
        self._tokens.append(self.tokens)
        if len(self._at) > _MOST_SLOTS or (len(self._at) % 256 == 0 and self._at[0] < now_s - 2 * _KEPT_S):
            first = max(len(self._at) - _MOST_SLOTS // 2, bisect_right(self._at, now_s - _KEPT_S))
            del self._at[:first], self._requests[:first], self._tokens[:first]

    def around(self, at_s: float, counts: Counts, spent_before: float, own: float) -> Around:
        """What was spent about when a request of `own` left, before which there was `spent_before` in all."""
        sums = self._requests if counts == "requests" else self._tokens
        first, last = bisect_right(self._at, at_s - _NEARLY_S), bisect_right(self._at, at_s + _NEARLY_S)
        before = spent_before - sums[first - 1] if first else 0.0
        after = sums[last - 1] - spent_before - own if last else 0.0
        return Around(spent_before + own, max(0.0, before), max(0.0, after))
