"""How fast an upstream is: seconds to the first token by the size of the prompt, and tokens per second after it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from math import copysign, exp, hypot, isfinite, log
from statistics import NormalDist

from .sightings import Sighting

# A prompt whose size is not known, or cannot be, counts as one of so many tokens.
USUAL_TOKENS = 1_000.0
# Without a catalog: the first calls replace it.
_UNKNOWN_FIRST_TOKEN_S = ((1_000, 0.5), (10_000, 1.0))
_UNKNOWN_TOKENS_PER_S = 100.0
# What reading a token takes where a catalog has one point alone; half of that point at most.
_READ_TOKEN_S = 2e-5

# Weights of a value in the usual level and in the recent one, once many were seen.
_USUAL_WEIGHT, _RECENT_WEIGHT, _MOST_RECENT_WEIGHT = 0.05, 0.25, 0.8
# The catalog's figures weigh as much as so many values.
_PRIOR_WEIGHT = 3.0
# Seconds without a value after which it is expected to be as usual again, and after which a new value counts more.
_FORGOTTEN_S, _STALE_S = 180.0, 20.0
_FORGOTTEN_PER_NS = 1e-9 / _FORGOTTEN_S
# All deviations are of natural logarithms: 0.3 means "within a third, mostly".
_FIRST_DEVIATION, _LEAST_DEVIATION, _MOST_DEVIATION = 0.35, 0.05, 1.0
_OUTLIER, _MOST_SHIFT = 2.5, log(10.0)
# Where all take the same, one that is a few per cent late comes before a second attempt would.
_LEAST_LATE_DEVIATION = 0.15
# Standard deviation of the logarithm of an answer's length: two of three lie within a third of the mean.
_LENGTHS = 0.3
# By how much a first token that did not come in time is taken to have exceeded that time.
_LATER = 0.3
_WINDOW, _FEW = 128, 8
# The share below one standard deviation under the mean of a normal distribution.
_LOW = 0.15866

deviations_of = lru_cache(64)(NormalDist().inv_cdf)
"""How many standard deviations above the mean a quantile of the normal distribution lies."""


class Trend:
    """The level of a quantity and its scatter, of which the latest values count most. In logarithms.

    The mean with forgetting returns to the usual level within minutes without new values, so that an upstream that was
    slow is tried again. An outlier counts in it as a value 2.5 deviations off.
    """

    __slots__ = ("_values", "at_ns", "count", "deviation", "median", "shift")

    def __init__(self, usual: float) -> None:
        self._values: deque[float] = deque(maxlen=_WINDOW)
        self.median = usual
        """The middle one of the latest 128 values."""
        self.deviation = _FIRST_DEVIATION
        """The distance from there down to their 16th percentile: late ones do not move it much, however late."""
        self.count = 0
        self.shift = 0.0
        """How far the mean lay above the usual level at `at_ns`."""
        self.at_ns = 0

    def shift_at(self, now_ns: int) -> float:
        """Return how far above the usual level a value is expected now."""
        quiet_s = (now_ns - self.at_ns) * 1e-9
        return self.shift * exp(-quiet_s / _FORGOTTEN_S) if quiet_s > 0.0 else self.shift

    def note(self, value: float, usual: float, now_ns: int) -> float:
        """Learn from one value. Returns by how much the usual level moves."""
        quiet_s = max(0.0, (now_ns - self.at_ns) * 1e-9) if self.count else 0.0
        shift = self.shift_at(now_ns)
        bound = _OUTLIER * self.deviation
        residual = min(bound, max(-bound, value - usual - shift))
        self.count += 1
        step = residual * max(_USUAL_WEIGHT, 1.0 / (self.count + _PRIOR_WEIGHT))
        weight = min(_MOST_RECENT_WEIGHT, 1.0 - (1.0 - _RECENT_WEIGHT) * exp(-quiet_s / _STALE_S))
        self.shift = min(_MOST_SHIFT, max(-_MOST_SHIFT, shift + weight * (residual - step)))
        self.at_ns = max(now_ns, self.at_ns)
        self._values.append(value)
        ordered = sorted(self._values)
        self.median = ordered[len(ordered) // 2]
        if len(ordered) >= _FEW:
            deviation = self.median - ordered[int(_LOW * len(ordered))]
            self.deviation = min(_MOST_DEVIATION, max(_LEAST_DEVIATION, deviation))
        return step


class Speed:
    """What is known of one upstream's speed. The catalog's figures count until calls were seen.

    The first token takes a constant time, and one that grows with the tokens that the provider has to read. Not
    thread-safe: one thread notes at a time, any may read.
    """

    __slots__ = ("base_s", "first", "output_token_s", "pace", "read_token_s")

    def __init__(
        self,
        first_token_s: Sequence[tuple[int, float]] = _UNKNOWN_FIRST_TOKEN_S,
        tokens_per_s: float = _UNKNOWN_TOKENS_PER_S,
    ) -> None:
        """`first_token_s`: tokens of a prompt, and seconds to the first token of its answer."""
        self.base_s, self.read_token_s = _line(first_token_s)
        """Usual seconds to the first token of an empty prompt, and for each token that has to be read."""
        self.output_token_s = 1.0 / tokens_per_s
        """Usual seconds for each token after the first."""
        self.first = Trend(log(self.base_s + self.read_token_s * USUAL_TOKENS))
        """Of seconds to the first token of a prompt of 1,000 tokens."""
        self.pace = Trend(log(self.output_token_s))
        """Of seconds for each token after the first."""

    def note(self, sighting: Sighting, now_ns: int) -> None:
        """Learn from one attempt. What cannot be is left out."""
        size = sighting.uncached_tokens
        size = size if size is not None and 0.0 <= size < 1e9 else USUAL_TOKENS
        first_s, late_s = _sensible(sighting.first_token_s), _sensible(sighting.late_s)
        decode_s, whole_s = _sensible(sighting.decode_s), _sensible(sighting.whole_s)
        tokens = sighting.output_tokens or 0
        if first_s is not None:
            self._note_first(first_s, size, now_ns - round((decode_s or 0.0) * 1e9))
        elif late_s is not None:
            expected_s = self.first_token(size, now_ns)
            if late_s > expected_s * exp(-self.first.deviation):
                self._note_first(max(late_s, expected_s) * exp(_LATER), size, now_ns)
        elif whole_s is not None and tokens > 0:
            # Only the sum of both parts was seen: each is taken to be off as much.
            first_s, decode_s = self.first_token(size, now_ns), tokens / self.rate(now_ns)
            off = whole_s / (first_s + decode_s)
            self._note_first(first_s * off, size, now_ns)
            decode_s *= off
        if decode_s is not None and tokens > 1:
            taken_s = decode_s / (tokens - 1)
            self.output_token_s *= exp(self.pace.note(log(taken_s), log(self.output_token_s), now_ns))

    def _note_first(self, seconds: float, size: float, now_ns: int) -> None:
        expected_s = self.base_s + self.read_token_s * size
        usual_s = self.base_s + self.read_token_s * USUAL_TOKENS
        step = self.first.note(log(seconds / expected_s * usual_s), log(usual_s), now_ns)
        # Each part moves by its share of the time, and both together by the step.
        base = self.base_s / expected_s
        read = 1.0 - base
        step /= base * base + read * read
        self.base_s *= exp(step * base)
        self.read_token_s *= exp(step * read)

    def predict(
        self, uncached_tokens: float, output_tokens: float, deviations: float, now_ns: int, slowness: float = 1.0
    ) -> tuple[float, float, float]:
        """Return the seconds to the first token, from there to the last one, and of the whole answer.

        The parts are medians, and the first token takes `slowness` times as long. The whole lies `deviations` above the
        median; those of the parts count as independent of each other.
        """
        first, pace = self.first, self.pace
        first_shift, pace_shift = first.shift, pace.shift
        if now_ns > first.at_ns:
            left = exp((first.at_ns - now_ns) * _FORGOTTEN_PER_NS)
            first_shift *= left
            if pace.at_ns == first.at_ns:  # as after most answers
                pace_shift *= left
        if now_ns > pace.at_ns != first.at_ns:
            pace_shift *= exp((pace.at_ns - now_ns) * _FORGOTTEN_PER_NS)
        first_s = slowness * (self.base_s + self.read_token_s * uncached_tokens) * exp(first_shift)
        decode_s = output_tokens * self.output_token_s * exp(pace_shift)
        if not deviations:
            return first_s, decode_s, first_s + decode_s
        first_off_s = first_s * (exp(deviations * first.deviation) - 1.0)
        decode_off_s = decode_s * (exp(deviations * hypot(pace.deviation, _LENGTHS)) - 1.0)
        return first_s, decode_s, first_s + decode_s + copysign(hypot(first_off_s, decode_off_s), deviations)

    def first_token(self, uncached_tokens: float, now_ns: int, quantile: float = 0.5) -> float:
        """Return the seconds to the first token of a prompt of which so many tokens have to be read."""
        median_s = (self.base_s + self.read_token_s * uncached_tokens) * exp(self.first.shift_at(now_ns))
        return median_s if quantile == 0.5 else median_s * exp(deviations_of(quantile) * self.first.deviation)

    def late_after(self, uncached_tokens: float, quantile: float) -> float:
        """Return the seconds to the first token that a share `quantile` of the latest prompts would have needed.

        A log-normal body is taken for them: with 30 % of late ones the 95th percentile comes to the 99.7th of the
        others, and not among the late ones.
        """
        size = (self.base_s + self.read_token_s * uncached_tokens) / (self.base_s + self.read_token_s * USUAL_TOKENS)
        deviation = max(_LEAST_LATE_DEVIATION, self.first.deviation)
        return size * exp(self.first.median + deviations_of(quantile) * deviation)

    def rate(self, now_ns: int) -> float:
        """Return the tokens per second after the first."""
        return exp(-self.pace.shift_at(now_ns)) / self.output_token_s


def _sensible(seconds: float | None) -> float | None:
    return min(1e6, max(1e-6, seconds)) if seconds is not None and seconds >= 0 and isfinite(seconds) else None


def _line(first_token_s: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Return the seconds of an empty prompt, and those that each token adds, from the smallest and the largest one."""
    points = sorted((float(tokens), seconds) for tokens, seconds in first_token_s if seconds > 0)
    if not points:
        return 1.0, _READ_TOKEN_S
    if len(points) == 1:
        tokens, seconds = points[0]
        slope = min(_READ_TOKEN_S, 0.5 * seconds / max(1.0, tokens))
        return seconds - slope * tokens, slope
    (few, few_s), (many, many_s) = points[0], points[-1]
    slope = max(1e-8, (many_s - few_s) / (many - few))
    return max(0.05 * min(few_s, many_s), few_s - slope * few), slope
