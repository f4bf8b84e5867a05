"""How fast one upstream is: seconds to its first token by the prompt's size, and tokens per second after it."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, isfinite, log, sqrt
from statistics import NormalDist

from ._level import Level
from ._sighting import Sighting

_quantile = NormalDist().inv_cdf


class Speed:
    """What is known of one upstream's pace, starting from what the catalog says."""

    def __init__(self, *, first_token_s: Sequence[tuple[int, float]], tokens_per_s: float) -> None:
        points = sorted((float(tokens), max(1e-3, seconds)) for tokens, seconds in first_token_s) or [(1_000.0, 1.0)]
        self._base, self._slope = _line(points)
        self._rate = max(0.1, tokens_per_s)
        self.first = Level()
        self.pace = Level()

    @property
    def count(self) -> int:
        """First tokens seen."""
        return self.first.count

    def note(self, sighting: Sighting, now_ns: int) -> None:
        """Learn from one attempt; what makes no sense is left out."""
        size = _sensible(sighting.uncached_tokens) or 0.0
        seconds = _sensible(sighting.first_token_s)
        if seconds:
            self.first.note(log(seconds / self._expected(size)), self._share(size), now_ns)
        tokens, taken = sighting.output_tokens or 0, _sensible(sighting.decode_s)
        if taken and tokens > 1:
            self.pace.note(log((tokens - 1) / taken / self._rate), 0.0, now_ns)

    def first_token(self, uncached_tokens: float, now_ns: int, quantile: float = 0.5) -> float:
        """Seconds to the first token of a prompt of which so many tokens have to be read."""
        state = self.first.state
        level = exp(self.first.passing_at(now_ns))
        median = (self._base * exp(state.base) + self._slope * uncached_tokens * exp(state.slope)) * level
        if quantile == 0.5:
            return median
        spread = sqrt(self.first.variance(self._share(uncached_tokens), now_ns) + self.first.noise**2)
        return median * exp(_quantile(quantile) * spread)

    def rate(self, now_ns: int, quantile: float = 0.5) -> float:
        """Tokens per second after the first; at a high quantile those of its slow moments."""
        median = self._rate * exp(self.pace.state.base + self.pace.passing_at(now_ns))
        if quantile == 0.5:
            return median
        return median * exp(-_quantile(quantile) * sqrt(self.pace.variance(0.0, now_ns) + self.pace.noise**2))

    def late_after(self, uncached_tokens: float, now_ns: int, quantile: float) -> float:
        """Seconds after which a first token is late: a high quantile of the body of what was seen."""
        return self.first_token(uncached_tokens, now_ns, quantile)

    def _expected(self, size: float) -> float:
        return self._base + self._slope * size

    def _share(self, size: float) -> float:
        return self._slope * size / self._expected(size)


def _sensible(value: float | None) -> float | None:
    return value if value is not None and value > 0 and isfinite(value) else None


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Base and slope of what the catalog says."""
    if len(points) > 1:
        (first, low), (last, high) = points[0], points[-1]
        slope = max(1e-7, (high - low) / (last - first))
        return max(0.05 * low, low - slope * first), slope
    tokens, seconds = points[0]
    slope = min(2e-5, 0.5 * seconds / max(1.0, tokens))
    return seconds - slope * tokens, slope
