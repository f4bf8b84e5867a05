"""Where a quantity stands that is seen with noise, drifts slowly, changes its regime and has passing fits."""

from __future__ import annotations

from math import exp, log, sqrt
from typing import NamedTuple

# All variances are of natural logarithms: a standard deviation of 0.3 means "within a third, mostly".
_USUAL_VARIANCE = 0.25
_USUAL_PER_S = 2e-5
_MOST_USUAL_VARIANCE = 1.0
_TILT_VARIANCE = 0.15
_TILT_PER_S = 2e-5
REGIME_S = 300.0
_REGIME_VARIANCE = 0.15
PASSING_S = 20.0
_PASSING_VARIANCE = 0.1
_FIRST_NOISE = 0.35
_LEAST_NOISE, _MOST_NOISE = 0.05, 1.0
_SURPRISE = 2.5
_DEGREES = 4.0
# So many standard deviations off is an outlier, however little is known.
_GROSS = 6.0
_JUMP_VARIANCE = 1.0
_DOUBT_VARIANCE = 0.3
# Surprises on one side that end within a fifth of their own time of each other are one event: a stall, for instance.
_ONE_EVENT = 0.2
# A regime is ten times what is usual at most: more is a stall that has been seen often.
_MOST_REGIME = log(10.0)


class State(NamedTuple):
    """What is expected from a moment on; immutable, so that it is read without a lock."""

    at_ns: int
    usual: float
    tilt: float
    """By how much the part that grows with the size stands above the other."""
    regime: float
    passing: float


class Level:
    """Follows a positive quantity of two parts, the second of which grows with a size.

    An extended Kalman filter in natural logarithms, of four states: log y = usual + log(1 - z + z e^tilt) + regime +
    passing + noise, where z is the second part's share in what was expected at first. `usual` and `tilt` walk slowly
    and at random; `regime` and `passing` revert to 0 within minutes and within seconds (Ornstein-Uhlenbeck), so that
    what is silent is expected to be as usual again, sooner or later. Residuals count as Student's t with 4
    degrees of freedom has them; the second surprise in a row on the same side is taken for a new regime. What ends with
    a surprise as surprisingly and on the same side is one event with it, however many they are, and not learned of.
    """

    __slots__ = (
        "_covariance", "_event_ns", "_event_side", "_spread", "_square", "_surprise", "count", "noise", "state",
    )  # fmt: skip

    def __init__(self, width: float = 1.0) -> None:
        """`width` is how far it strays, in times of what a first token's level does."""
        self._square = width * width
        self.state = State(0, 0.0, 0.0, 0.0, 0.0)
        self._covariance = [[0.0] * 4 for _ in range(4)]
        for at, variance in enumerate((_USUAL_VARIANCE, _TILT_VARIANCE, _REGIME_VARIANCE, _PASSING_VARIANCE)):
            self._covariance[at][at] = variance * self._square
        self._spread = self._spread_from(0)
        self._surprise = 0.0
        self._event_ns = 0
        self._event_side = 0.0
        self.count = 0
        self.noise = _FIRST_NOISE

    def _spread_from(self, at_ns: int) -> tuple[int, float, float, float, float, float]:
        (aa, ab, ac, ad), (_, bb, bc, bd), (_, _, cc, cd), (_, _, _, dd) = self._covariance
        level = aa + cc + dd + 2.0 * (ac + ad + cd)
        square = self._square
        return at_ns, level, ab + bc + bd, bb, _REGIME_VARIANCE * square - cc, _PASSING_VARIANCE * square - dd

    def shift(self, now_ns: int) -> float:
        """The level's logarithm but for its tilt."""
        at_ns, usual, _, regime, passing = self.state
        passed_s = (now_ns - at_ns) * 1e-9
        if passed_s <= 0.0:
            return usual + regime + passing
        return usual + regime * exp(-passed_s / REGIME_S) + passing * exp(-passed_s / PASSING_S)

    def variance(self, z: float, now_ns: int) -> float:
        """Of the level's logarithm at a share z: what is not known, without the noise of the next value."""
        return max(0.0, _along(self._grown(now_ns), z)[1])

    def spread(self, z: float, now_ns: int) -> float:
        """The standard deviation of the level's logarithm, from what was worked out when the last value was noted."""
        at_ns, level, both, tilt, regime, passing = self._spread
        known = level + z * (2.0 * both + z * tilt)
        passed_s = (now_ns - at_ns) * 1e-9
        if passed_s > 0.0:
            known += regime * (1.0 - exp(-2.0 * passed_s / REGIME_S))
            known += passing * (1.0 - exp(-2.0 * passed_s / PASSING_S)) + _USUAL_PER_S * self._square * passed_s
        return sqrt(max(0.0, known))

    def note(self, ratio_log: float, z: float, now_ns: int, doubt: float = 1.0, taken_s: float = 0.0) -> None:
        """Learn from one value: the logarithm of what it was over what was expected at first, and its share z.

        `doubt` is how many times as noisy as others it is; it was measured for `taken_s` seconds until now.
        """
        at_ns = max(now_ns, self.state.at_ns)
        covariance = self._grown(at_ns)
        _, usual, tilt, regime, passing = self.state
        passed_s = (at_ns - self.state.at_ns) * 1e-9 if self.count else 0.0
        regime *= exp(-passed_s / REGIME_S)
        passing *= exp(-passed_s / PASSING_S)
        scaled = z * exp(tilt)
        residual = ratio_log - (usual + log(1.0 - z + scaled) + regime + passing)
        share = scaled / (1.0 - z + scaled)
        gain, known = _along(covariance, share)
        # What rounding has left of a variance of nearly nothing may be below it.
        known, noise = max(0.0, known), (self.noise * doubt) ** 2
        surprise = residual / sqrt(known + noise)
        if abs(surprise) > _SURPRISE:
            same = surprise * self._event_side > 0
            if same and abs(now_ns - self._event_ns) < _ONE_EVENT * 1e9 * taken_s:
                return
            self._event_ns, self._event_side = now_ns, surprise
        if abs(surprise) > _SURPRISE and surprise * self._surprise > 0:
            covariance[2][2] += _JUMP_VARIANCE * self._square
            gain, known = _along(covariance, share)
            known = max(0.0, known)
            self._surprise, surprise = surprise, residual / sqrt(known + noise)
        else:
            self._surprise = surprise if abs(surprise) > _SURPRISE else 0.0
        if abs(surprise) > 1.0:
            times = (_DEGREES + surprise * surprise) / (_DEGREES + 1.0)
            noise = noise * times if abs(surprise) < _GROSS else (known + noise) * times - known
        step = residual / (known + noise)
        regime = min(_MOST_REGIME, max(-_MOST_REGIME, regime + gain[2] * step))
        self.state = State(at_ns, usual + gain[0] * step, tilt + gain[1] * step, regime, passing + gain[3] * step)
        self._covariance = [
            [covariance[i][j] - gain[i] * gain[j] / (known + noise) for j in range(4)] for i in range(4)
        ]
        self._spread = self._spread_from(at_ns)
        self.count += 1
        self._learn_noise(abs(residual))

    def doubt(self) -> None:
        """Have the next value say more of the regime than what is known of it, as after a surprise."""
        self._covariance[2][2] += _DOUBT_VARIANCE * self._square

    def _learn_noise(self, size: float) -> None:
        """The median of the sizes, followed in steps, so that a share of outliers does not move it much."""
        step = self.noise * max(0.05, 0.5 / (self.count + 1))
        self.noise += step if size > 0.6745 * self.noise else -step
        self.noise = min(_MOST_NOISE, max(_LEAST_NOISE, self.noise))

    def _grown(self, now_ns: int) -> list[list[float]]:
        """The covariance by now."""
        passed_s = max(0, now_ns - self.state.at_ns) * 1e-9 if self.count else 0.0
        left = (1.0, 1.0, exp(-passed_s / REGIME_S), exp(-passed_s / PASSING_S))
        grown = [[self._covariance[i][j] * left[i] * left[j] for j in range(4)] for i in range(4)]
        square = self._square
        grown[0][0] += min(_USUAL_PER_S * square * passed_s, max(0.0, _MOST_USUAL_VARIANCE * square - grown[0][0]))
        grown[1][1] += min(_TILT_PER_S * square * passed_s, max(0.0, _TILT_VARIANCE * square - grown[1][1]))
        grown[2][2] += _REGIME_VARIANCE * square * (1.0 - left[2] * left[2])
        grown[3][3] += _PASSING_VARIANCE * square * (1.0 - left[3] * left[3])
        return grown


def _along(covariance: list[list[float]], share: float) -> tuple[tuple[float, float, float, float], float]:
    """The covariance times the direction in which a value moves the state, and its length in that direction."""
    a, b, c, d = (row[0] + share * row[1] + row[2] + row[3] for row in covariance)
    return (a, b, c, d), a + share * b + c + d
