"""Where a quantity stands that is seen with noise, drifts slowly, jumps now and then and has passing fits."""

from __future__ import annotations

from math import exp, log, sqrt
from typing import NamedTuple

# All variances are of natural logarithms: a standard deviation of 0.3 means "within a third, mostly".
_PASSING_S = 60.0
_DRIFT_PER_S = 3e-4
_SLOW_VARIANCE = 0.25
_SHARED = 0.7
_MOST_VARIANCE = 1.0
_PASSING_VARIANCE = 0.09
_FIRST_NOISE = 0.35
_LEAST_NOISE, _MOST_NOISE = 0.05, 1.0
_SURPRISE = 2.5
_DEGREES = 4.0
_JUMP_VARIANCE = 1.0


class State(NamedTuple):
    """What is known at a moment; immutable, so that it is read without a lock."""

    at_ns: int
    base: float
    slope: float
    passing: float


class Level:
    """Follows `base` and `slope` (what scales the two parts of a size-dependent time) and `passing` (what will be over soon).

    An extended Kalman filter of three states in natural logarithms: log y = log((1 - z) e^base + z e^slope) + passing +
    noise, where z is the share of the second part in what was expected at first. `base` and `slope` walk at random,
    slowly; `passing` reverts to 0 with a time constant of a minute (an Ornstein-Uhlenbeck process), so that a fit
    is forgotten and a new regime is not. Residuals count as Student's t with 4 degrees of freedom would have them;
    the second surprise in a row on the same side is taken for a new regime.
    """

    __slots__ = ("_aa", "_ab", "_ad", "_bb", "_bd", "_dd", "_surprise", "count", "noise", "state")

    def __init__(self) -> None:
        self.state = State(0, 0.0, 0.0, 0.0)
        self._aa = self._bb = _SLOW_VARIANCE
        self._ab = _SHARED * _SLOW_VARIANCE
        self._ad = self._bd = 0.0
        self._dd = _PASSING_VARIANCE
        self._surprise = 0.0
        self.count = 0
        self.noise = _FIRST_NOISE

    def passing_at(self, now_ns: int) -> float:
        """What is left of the passing part."""
        state = self.state
        return state.passing * exp(min(0.0, (state.at_ns - now_ns) / (_PASSING_S * 1e9)))

    def variance(self, z: float, now_ns: int) -> float:
        """Of the level's logarithm at a share z: what is not known, without the noise of the next value."""
        aa, ab, bb, ad, bd, dd = self._covariance(now_ns)
        w = 1.0 - z
        return w * w * aa + 2 * w * z * ab + z * z * bb + 2 * (w * ad + z * bd) + dd

    def note(self, ratio_log: float, z: float, now_ns: int, doubt: float = 1.0) -> None:
        """Learn from one value: the logarithm of what it was over what was expected at first, and its share z.

        `doubt` is how many times as noisy as others it is.
        """
        at_ns = max(now_ns, self.state.at_ns)
        aa, ab, bb, ad, bd, dd = self._covariance(at_ns)
        a, b, d = self.state.base, self.state.slope, self.passing_at(at_ns)
        low, high = (1.0 - z) * exp(a), z * exp(b)
        residual = ratio_log - log(low + high) - d
        share = high / (low + high)
        rest = 1.0 - share
        # Products of the covariance with the direction (rest, share, 1) in which the value moves the state.
        pa, pb, pd = rest * aa + share * ab + ad, rest * ab + share * bb + bd, rest * ad + share * bd + dd
        known = rest * pa + share * pb + pd
        noise = (self.noise * doubt) ** 2
        surprise = residual / sqrt(known + noise)
        if abs(surprise) > _SURPRISE:
            if surprise * self._surprise > 0:
                dd += _JUMP_VARIANCE / 2
                aa, ab, bb = aa + _JUMP_VARIANCE / 2, ab + _JUMP_VARIANCE / 2, bb + _JUMP_VARIANCE / 2
                pa, pb, pd = rest * aa + share * ab + ad, rest * ab + share * bb + bd, rest * ad + share * bd + dd
                known = rest * pa + share * pb + pd
                surprise = residual / sqrt(known + noise)
            self._surprise = surprise
        else:
            self._surprise = 0.0
        noise *= (_DEGREES + surprise * surprise) / (_DEGREES + 1) if abs(surprise) > 1 else 1.0
        gain = 1.0 / (known + noise)
        ka, kb, kd = pa * gain, pb * gain, pd * gain
        self.state = State(at_ns, a + ka * residual, b + kb * residual, d + kd * residual)
        self._aa, self._ab, self._bb = aa - ka * pa, ab - ka * pb, bb - kb * pb
        self._ad, self._bd, self._dd = ad - ka * pd, bd - kb * pd, dd - kd * pd
        self.count += 1
        self._learn_noise(abs(residual))

    def _learn_noise(self, size: float) -> None:
        """The median of the sizes, followed in steps, so that a share of outliers does not move it much."""
        step = self.noise * max(0.05, 0.5 / (self.count + 1))
        self.noise += step if size > 0.6745 * self.noise else -step
        self.noise = min(_MOST_NOISE, max(_LEAST_NOISE, self.noise))

    def _covariance(self, now_ns: int) -> tuple[float, float, float, float, float, float]:
        if not self.count:
            return self._aa, self._ab, self._bb, self._ad, self._bd, self._dd
        passed_s = max(0, now_ns - self.state.at_ns) / 1e9
        left = exp(-passed_s / _PASSING_S)
        drift = _DRIFT_PER_S * passed_s
        return (
            min(_MOST_VARIANCE, self._aa + drift),
            self._ab + _SHARED * drift if self._ab + _SHARED * drift < _MOST_VARIANCE else self._ab,
            min(_MOST_VARIANCE, self._bb + drift),
            self._ad * left,
            self._bd * left,
            self._dd * left * left + _PASSING_VARIANCE * (1 - left * left),
        )
