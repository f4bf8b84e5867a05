"""What ends an arm by itself."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, log

from ..errors import ConfigurationError
from ._metrics import BY_NAME, METRICS, SLOW
from ._sums import Sums
from ._verdicts import limits_of, mean_of

_P95 = METRICS[SLOW].name


@dataclass(frozen=True, slots=True)
class Guard:
    """Ends an arm that is shown to be worse: `Guard("error_rate")`, `Guard("quality", below=0.8)`.

    `metric` is one of those of a report. Without anything else, an arm ends once it is shown to be worse than the
    reference; with `worse_by`, once it is shown to be worse by more than that (of times and prices a ratio: 0.1 is
    10 %; of shares their difference). `above` and `below` are limits of the arm's own mean, whatever the reference
    does: seconds (of the geometric mean), shares, or the catalog's currency a call. "time_to_first_token_p95" takes
    `above` alone. Shown is what an interval shows that holds at any time: all guards of an experiment together end an
    arm that is not worse in one of 20 experiments at most, however long these run. Raises ConfigurationError.
    """

    metric: str
    above: float | None = None
    below: float | None = None
    worse_by: float | None = None

    def __post_init__(self) -> None:
        if self.metric not in BY_NAME:
            raise ConfigurationError(f"Guard() takes a metric, one of {', '.join(BY_NAME)}; got {self.metric!r:.60}")
        for name in ("above", "below", "worse_by"):
            value = getattr(self, name)
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0
            ):
                raise ConfigurationError(f"Guard({name}=...) takes a number of at least 0, got {value!r:.60}")
        given = [name for name in ("above", "below", "worse_by") if getattr(self, name) is not None]
        metric = METRICS[BY_NAME[self.metric]]
        if len(given) > 1:
            raise ConfigurationError(f"Guard({self.metric!r}) takes one limit, got {' and '.join(given)}")
        if self.metric == _P95 and given != ["above"]:
            raise ConfigurationError(
                f'Guard("{_P95}") takes above=, in seconds: a quantile is guarded by a limit alone'
            )
        if given == (["below"] if metric.lower_is_better else ["above"]):
            worse = "above" if metric.lower_is_better else "below"
            raise ConfigurationError(
                f"Guard({self.metric!r}, {given[0]}=...) would end an arm for being good: did you mean {worse}=?"
            )
        if metric.scale == "share" and self.metric != _P95 and given and getattr(self, given[0]) > 1:
            got = f"got {getattr(self, given[0])!r}"
            raise ConfigurationError(f"Guard({self.metric!r}, {given[0]}=...) takes a share, 0 to 1, {got}")
        if metric.scale == "log" and self.above == 0:
            raise ConfigurationError(f"Guard({self.metric!r}, above=...) takes seconds above 0, got 0")

    def broken(self, arm: Sums, reference: Sums, alpha: float) -> str | None:
        """Why an arm ends, in words; None where it does not."""
        number = BY_NAME[self.metric]
        metric = METRICS[number]
        if self.above is None and self.below is None:
            limits = limits_of(number, arm, reference, alpha)
            if limits is None:
                return None
            _, low, high = limits
            by = self.worse_by or 0.0
            if not (low > by if metric.lower_is_better else high < -by):
                return None
            least = low if metric.lower_is_better else -high
            more = f"at least {100 * least:.2g} {'%' if metric.scale != 'share' else 'percentage points'}"
            return f"{self.metric} is worse than the reference's by {more}"
        mean = mean_of(arm, number)
        if mean is None or not mean.is_of_enough:
            return None
        if self.metric == _P95:
            share = mean.low(alpha)
            told = f"at least {100 * share:.2g} % of the first tokens came after {self.above:g} s"
            return told if share > 0.05 else None
        if self.above is not None:
            limit = log(self.above) if metric.scale == "log" else self.above
            low = mean.low(alpha)
            return f"{self.metric} is at least {metric.shown(low):.3g}, above {self.above:g}" if low > limit else None
        high = mean.high(alpha)
        assert self.below is not None
        return f"{self.metric} is at most {metric.shown(high):.3g}, below {self.below:g}" if high < self.below else None


def alpha_of_guards(guards: int, arms: int, stage_alpha: float) -> float:
    """The error that one guard of one arm may make."""
    return stage_alpha / max(1, guards * arms)
