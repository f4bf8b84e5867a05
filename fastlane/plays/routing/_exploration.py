"""Whether a call goes to a model that only may be the fastest, to see whether it is."""

from __future__ import annotations

from collections.abc import Sequence
from math import erf, exp, hypot, pi, sqrt

from ._choosing import Entrant, Ranked
from ._question import Question

# For how long, and for how many calls at most, others profit from what one call has found out.
_USEFUL_S = 15.0
_MOST_CALLS = 50.0
_REMEMBERED = 20.0
# Decisions until it is looked again whether something is worth a try.
_NEXT_LOOK = 5
# Which part of the share is kept for looking back at those that are not worth a try by what is known of them.
_LOOKING_BACK = 0.3
# After so many decisions, having been the fastest counts for e times less.
_FAME = 1_000.0
_LEAST_FAME = 0.03
# A look back may cost this share of a usual call's time at first, and twice as much after each so many decisions.
_CHEAP, _DEARER = 0.05, 8.0
# One that cannot be had for any call of so many is given up for another.
_PATIENCE = 60
_ENOUGH = 1.0 - 1e-9


class Exploration:
    """Two credits for exploring, each of which saves up one call at most: together they earn `share` by each decision.

    One is for what is worth a try by what is known of it. The other, which also gets what the first has left over, is
    for looking back at those that are not: what was slow, and is asked by nobody any more, would never be found to have
    recovered. A look back goes to who was the fastest often, or would be if it were as usual again, and was not asked
    for long; and it waits for a call that it costs little.
    """

    __slots__ = (
        "_back", "_back_at", "_credit", "_last_ns", "_number", "_pause_s", "_share", "_target", "_usual_s",
    )  # fmt: skip

    def __init__(self, share: float) -> None:
        self._share = share
        self._credit = self._back = 0.0
        self._number = 0
        self._last_ns: int | None = None
        self._pause_s = 1.0
        self._usual_s = 0.0
        self._target: Entrant | None = None
        self._back_at = 0

    def pick(self, ranked: Sequence[Ranked], question: Question, now_ns: int) -> int:
        """Count a decision between those that are ranked, the fastest first; which to try instead, or 0 for none."""
        self._number = number = self._number + 1
        if self._last_ns is not None:
            self._pause_s += ((now_ns - self._last_ns) * 1e-9 - self._pause_s) / _REMEMBERED
        self._last_ns = now_ns
        best_s, _, _, best = ranked[0]
        self._usual_s += (best_s - self._usual_s) / min(number, 50)
        best.fame = best.fame * exp((best.fame_at - number) / _FAME) + 1.0
        best.fame_at = number
        self._earn()
        found = self._chosen(ranked, question, now_ns) if self._share else 0
        ranked[found][3].asked_at = number
        return found

    def _earn(self) -> None:
        earned = self._share * (1.0 - _LOOKING_BACK)
        over = max(0.0, self._credit + earned - 1.0)
        self._credit += earned - over
        self._back = min(1.0, self._back + self._share * _LOOKING_BACK + over)

    def _chosen(self, ranked: Sequence[Ranked], question: Question, now_ns: int) -> int:
        # What is added up in fiftieths is 1 but for rounding.
        if self._back >= _ENOUGH and (found := self._look_back(ranked)):
            self._back -= 1.0
            ranked[found][3].looked_at = True
            return found
        if self._credit >= _ENOUGH and self._number % _NEXT_LOOK == 0:
            if found := self._worth_a_try(ranked, question, now_ns):
                self._credit -= 1.0
            return found
        return 0

    def _look_back(self, ranked: Sequence[Ranked]) -> int:
        target = self._target
        if target is None:
            if self._number < self._back_at:
                return 0
            target = self._target = self._forgotten(ranked)
            self._back_at = self._number
        waited = self._number - self._back_at
        found = _place(ranked, target)
        loss_s = ranked[found][0] - ranked[0][0]
        if found and loss_s <= self._usual_s * _CHEAP * 2.0 ** (waited / _DEARER):
            self._target = None
            return found
        if waited >= _PATIENCE:
            self._target = None
        return 0

    def _forgotten(self, ranked: Sequence[Ranked]) -> Entrant:
        """Who was not asked for longest, for how good it was and may be."""
        best_s, number = ranked[0][0], self._number
        fames = [one[3].fame * exp((one[3].fame_at - number) / _FAME) for one in ranked]
        total = sum(fames)

        def wanted(at: int) -> float:
            _, _, candidate, entrant = ranked[at]
            assert candidate.prediction is not None
            usual_s = usual_total(entrant, candidate.prediction.first_token_s, candidate.prediction.decode_s)
            hope = min(1.0, best_s / max(1e-9, usual_s)) ** 3
            return (number - entrant.asked_at) * (_LEAST_FAME * hope + fames[at] / total)

        return ranked[max(range(1, len(ranked)), key=wanted)][3]

    def _worth_a_try(self, ranked: Sequence[Ranked], question: Question, now_ns: int) -> int:
        """Which of them is worth a try instead of the first; 0 where none is."""
        best, calls = ranked[0][0], max(1.0, min(_MOST_CALLS, _USEFUL_S / max(1e-3, self._pause_s)))
        found, most = 0, 0.0
        for at in range(1, len(ranked)):
            total, _, candidate, entrant = ranked[at]
            if candidate.prediction is None or not entrant.well:
                continue
            speed = entrant.speed
            uncached = max(0.0, question.input_tokens - question.cached_tokens.get(entrant.upstream, 0.0))
            first = candidate.prediction.first_token_s * speed.first.spread(speed.share(uncached), now_ns)
            decode = candidate.prediction.decode_s * speed.pace.spread(0.0, now_ns)
            if (worth := worth_of_trying(best, total, hypot(first, decode), calls)) > most:
                found, most = at, worth
        return found


def _place(ranked: Sequence[Ranked], entrant: Entrant) -> int:
    return next((at for at, one in enumerate(ranked) if one[3] is entrant), 0)


def usual_total(entrant: Entrant, first_s: float, decode_s: float) -> float:
    """Seconds, if it were as usual again: without what is now the regime."""
    first, pace = entrant.speed.first.state, entrant.speed.pace.state
    return first_s * exp(-max(0.0, first.regime + first.passing)) + decode_s * exp(min(0.0, pace.regime + pace.passing))


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
