"""How fast one upstream is: seconds to its first token by the prompt's size, and tokens per second after it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import erfc, exp, isfinite, log, pi, sqrt
from statistics import NormalDist
from typing import NamedTuple

from ._lengths import LENGTHS_SQUARE
from ._level import Level
from ._sighting import Sighting

# What reading a token of a prompt takes where the catalog has one size alone; beyond that, half of it is taken for it.
_USUAL_TOKEN_S = 2e-5
_CENSORED_DOUBT = 1.5
# A prompt whose size is not known, or not possible, is taken for one of these tokens.
_USUAL_TOKENS = 1_000.0
_deviations = lru_cache(64)(NormalDist().inv_cdf)


class Outlook(NamedTuple):
    """All that a median depends on, put together when something was noted, because decisions are made more often."""

    first_at_ns: int
    base_s: float
    """As is usual, without regime and fits; so the next, and `token_taken_s`."""
    read_token_s: float
    first_regime: float
    first_passing: float
    first_mean: float
    """How many times the median the mean is."""
    first_square: float
    """Variance, in squares of the median."""
    pace_at_ns: int
    token_taken_s: float
    pace_regime: float
    pace_passing: float
    decode_square: float
    """Variance, in squares of the median: of the pace's noise and of an answer's length."""


class Speed:
    """What is known of one upstream's pace; what the catalog says counts until something was seen.

    The first token takes a constant time and one that grows with the prompt, as tokens that are not in a cache have to
    be read; both are learned (`Level`). Not thread-safe by itself: one thread notes at a time, any may read meanwhile.
    """

    def __init__(self, *, first_token_s: Sequence[tuple[int, float]], tokens_per_s: float) -> None:
        self._base, self._slope = _line(first_token_s)
        self._rate = tokens_per_s
        self.first = Level()
        self.pace = Level()
        self.outlook = self._look()

    @property
    def count(self) -> int:
        """First tokens seen."""
        return self.first.count

    def note(self, sighting: Sighting, now_ns: int) -> None:
        """Learn from one attempt; what makes no sense is left out."""
        size = sighting.uncached_tokens
        size = size if size is not None and 0.0 <= size < 1e9 else _USUAL_TOKENS
        seconds, tokens = _sensible(sighting.first_token_s), sighting.output_tokens or 0
        taken, whole, late = _sensible(sighting.decode_s), _sensible(sighting.whole_s), _sensible(sighting.late_s)
        if seconds is not None:
            share, ratio = self.share(size), log(seconds / self._expected(size))
            self.first.note(ratio, share, now_ns - round((taken or 0.0) * 1e9), taken_s=seconds)
        elif late is not None:
            self._note_late(late, size, now_ns)
        elif whole is not None and tokens > 0:
            self._note_whole(whole, size, tokens, now_ns)
        if taken is not None and tokens > 1:
            self.pace.note(log((tokens - 1) / taken / self._rate), 0.0, now_ns, taken_s=taken)
        self.outlook = self._look()

    def _look(self) -> Outlook:
        first, pace = self.first, self.pace
        usual, square = exp(first.state.usual), exp(first.noise**2)
        return Outlook(
            first.state.at_ns, self._base * usual, self._slope * usual * exp(first.state.tilt), first.state.regime,
            first.state.passing, sqrt(square), square * (square - 1.0), pace.state.at_ns,
            exp(-pace.state.usual) / self._rate, pace.state.regime, pace.state.passing,
            exp(pace.noise**2) * LENGTHS_SQUARE - 1.0,
        )  # fmt: skip

    def _note_late(self, late: float, size: float, now_ns: int) -> None:
        """It would have taken longer: as long as is to be expected of those that take longer than this."""
        spread = sqrt(self.first.variance(self.share(size), now_ns) + self.first.noise**2)
        beyond = log(late / self.first_token(size, now_ns)) / spread
        if beyond < -1.0:
            return
        # The mean of a normal value beyond a bound (the inverse of Mills's ratio), and nearly the bound far out.
        tail = 0.5 * erfc(beyond / sqrt(2.0))
        mean = exp(-0.5 * beyond * beyond) / sqrt(2.0 * pi) / tail if tail > 1e-12 else beyond
        ratio = log(late / self._expected(size)) + (mean - beyond) * spread
        self.first.note(ratio, self.share(size), now_ns, _CENSORED_DOUBT, late)

    def _note_whole(self, whole: float, size: float, tokens: int, now_ns: int) -> None:
        """Only the sum of both parts was seen: each is taken to be off as much, the smaller with less trust."""
        first, decode = self.first_token(size, now_ns), tokens / self.rate(now_ns)
        off, share = log(whole / (first + decode)), first / (first + decode)
        if share > 0.05:
            tilted = self.share(size)
            ratio = log(first / self._expected(size)) + off
            self.first.note(ratio, tilted, now_ns, 1.0 / share, whole)
        if share < 0.95:
            self.pace.note(log(self.rate(now_ns) / self._rate) - off, 0.0, now_ns, 1.0 / (1.0 - share), whole)

    def first_token(self, uncached_tokens: float, now_ns: int, quantile: float = 0.5) -> float:
        """Seconds to the first token of a prompt of which so many tokens have to be read."""
        level = self.first
        grown = self._slope * uncached_tokens * exp(level.state.tilt)
        median = (self._base + grown) * exp(level.shift(now_ns))
        if quantile == 0.5:
            return median
        spread = sqrt(level.spread(self.share(uncached_tokens), now_ns) ** 2 + level.noise**2)
        return median * exp(_deviations(quantile) * spread)

    def rate(self, now_ns: int, quantile: float = 0.5) -> float:
        """Tokens per second after the first; a high quantile is one of the time they take, and thus a low rate."""
        median = self._rate * exp(self.pace.shift(now_ns))
        if quantile == 0.5:
            return median
        return median * exp(-_deviations(quantile) * sqrt(self.pace.spread(0.0, now_ns) ** 2 + self.pace.noise**2))

    def doubt(self) -> None:
        """Take the regime for uncertain: it was seen too long ago, or too many calls."""
        self.first.doubt()
        self.pace.doubt()

    def share(self, size: float) -> float:
        """Which share of a first token's time reading the prompt was expected to take, by what the catalog says."""
        return self._slope * size / (self._base + self._slope * size)

    def _expected(self, size: float) -> float:
        return self._base + self._slope * size


def _sensible(value: float | None) -> float | None:
    return min(1e6, max(1e-6, value)) if value is not None and value >= 0 and isfinite(value) else None


def _line(first_token_s: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Seconds without a prompt, and seconds that each token adds, by what the catalog says: least squares.

    Relative errors count, so that a point at 100,000 tokens does not drown one at 1,000.
    """
    points = [(float(tokens), seconds) for tokens, seconds in first_token_s if seconds > 0]
    if not points:
        return 1.0, _USUAL_TOKEN_S
    least = min(seconds for _, seconds in points)
    if len(points) == 1:
        tokens, seconds = points[0]
        slope = min(_USUAL_TOKEN_S, 0.5 * seconds / max(1.0, tokens))
        return seconds - slope * tokens, slope
    weights = [1.0 / seconds**2 for _, seconds in points]
    total = sum(weights)
    mean_tokens = sum(w * tokens for w, (tokens, _) in zip(weights, points, strict=True)) / total
    mean_seconds = sum(w * seconds for w, (_, seconds) in zip(weights, points, strict=True)) / total
    up = sum(w * (t - mean_tokens) * (s - mean_seconds) for w, (t, s) in zip(weights, points, strict=True))
    along = sum(w * (t - mean_tokens) ** 2 for w, (t, _) in zip(weights, points, strict=True))
    slope = max(1e-8, up / along)
    return max(0.05 * least, mean_seconds - slope * mean_tokens), slope
