"""Whether a call goes to a model that only may be the fastest, to see whether it is."""

from __future__ import annotations

from math import erf, exp, pi, sqrt

# For how long, and for how many calls at most, others profit from what one call has found out.
_USEFUL_S = 15.0
_MOST_CALLS = 50.0
_REMEMBERED = 20.0
# Decisions until it is looked again whether something is worth a try.
_NEXT_LOOK = 5
# Standard deviations below what is expected that a model which nobody tries any more is given the benefit of.
_OPTIMISM = 2.5


class Exploration:
    """Credit for exploring: every decision earns `share`, and an exploring one costs 1; at most one is saved up."""

    __slots__ = ("_credit", "_idle", "_last_ns", "_pause_s", "share")

    def __init__(self, share: float) -> None:
        self.share = share
        self._credit = 0.0
        self._idle = 0.0
        self._last_ns: int | None = None
        self._pause_s = 1.0

    @property
    def calls(self) -> float:
        """How many calls are likely to come while what is found out now still holds."""
        return max(1.0, min(_MOST_CALLS, _USEFUL_S / max(1e-3, self._pause_s)))

    def may(self, now_ns: int) -> bool:
        """Count a decision, and say whether it may explore."""
        if self._last_ns is not None:
            self._pause_s += ((now_ns - self._last_ns) * 1e-9 - self._pause_s) / _REMEMBERED
        self._last_ns = now_ns
        self._credit = min(1.0, self._credit + self.share)
        # What is added up in fiftieths is 1 but for rounding.
        return self._credit > 1.0 - 1e-9

    def spend(self) -> None:
        """It did."""
        self._credit = max(0.0, self._credit - 1.0)
        self._idle = 0.0

    def overdue(self) -> bool:
        """Nothing was worth a try: whether that has been so for as many decisions again as earn one.

        Then even what seems not worth it is tried, if only it may be the fastest: else a model that was once slow,
        and that nobody asks any more, would never be found to have recovered.
        """
        self._idle += _NEXT_LOOK * self.share
        # Looking costs half as much as deciding: what is not worth it now is not worth it at the next call either.
        self._credit -= _NEXT_LOOK * self.share
        return self._idle >= 1.0


def chance(best_s: float, expected_s: float, spread_s: float) -> float:
    """How far a model may be ahead of the best, at the most that can be hoped for: above 0 where it may be at all."""
    return best_s / max(1e-9, expected_s) * exp(_OPTIMISM * spread_s / max(1e-9, expected_s)) - 1.0


def worth_of_trying(best_s: float, expected_s: float, spread_s: float, calls: float) -> float:
    """Seconds that `calls` later calls should gain by trying a model now, less what this one should lose by it.

    The gain of a call is the expected improvement, E[max(0, best - time)], of a normal time: P. Frazier, W. Powell,
    S. Dayanik, "A Knowledge-Gradient Policy for Sequential Information Collection", SIAM Journal on Control and
    Optimization 47 (2008).
    """
    if spread_s <= 0.0:
        return 0.0
    u = (best_s - expected_s) / spread_s
    gain = spread_s * (exp(-0.5 * u * u) / sqrt(2.0 * pi) + 0.5 * u * (1.0 + erf(u / sqrt(2.0))))
    return calls * gain - (expected_s - best_s)
