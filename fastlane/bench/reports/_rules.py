"""What a user asks of figures: "ttft_p50 < 2.5 s" as a target, "ttft_p50 > +5%" as what must not happen."""

from __future__ import annotations

import math
import operator
import re
from dataclasses import dataclass
from typing import Final, Literal, cast, get_args

from fastlane.errors import ConfigurationError

from .._formatting import lowered
from ..recorded import METRICS, RequestMetric

Statistic = Literal["typical", "mean", "min", "max", "deviation", "cv", "p25", "p50", "p75", "p90", "p95", "p99"]
Operator = Literal["<", "<=", ">", ">="]

STATISTICS: Final[tuple[Statistic, ...]] = get_args(Statistic)[1:]
"""Of a figure; "typical" is only of a change."""
SHORT_NAMES: Final = {
    "ttft": "time_to_first_token",
    "tpot": "time_per_output_token",
    "itl": "inter_token_latency",
    "e2e": "api_end_to_end",
    "throughput": "output_throughput",
    "bytes": "request_bytes",
}
_CHANGED: Final = ("p50", "p90", "p95", "p99")
"""The percentiles of which two arms' ratio is known."""
_RULE: Final = re.compile(
    r"\s*(?P<what>\w+)\s*(?:@\s*(?P<scope>.+?))?\s*(?P<operator><=|>=|<|>)\s*"
    r"(?P<sign>[+-]?)(?P<number>\d[\d,]*\.?\d*|\.\d+)\s*(?P<unit>%|ms|s|tokens/s|bytes|US\$|x)?\s*"
)
_HOW: Final = (
    "expected METRIC_STATISTIC < VALUE or METRIC_STATISTIC > VALUE, such as {example}; metrics: "
    f"{', '.join([*SHORT_NAMES, *METRICS])}; statistics: {', '.join(STATISTICS)}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One bound on one figure."""

    text: str
    """As it was written."""
    metric: str
    statistic: Statistic
    """"typical" for the typical change of a pair, which only a relative rule has."""
    operator: Operator
    value: float
    """In the metric's unit; a share for a relative rule (0.05 is +5 %) and for a "cv"."""
    relative: bool = False
    """Whether it bounds the change against the reference, not the figure itself."""
    scope: str | None = None
    """The scenario or cell that it is about; None for all."""

    @property
    def share(self) -> float | None:
        """The percentile's share; None for another statistic."""
        return int(self.statistic[1:]) / 100 if re.fullmatch(r"p\d\d", self.statistic) else None

    def holds(self, value: float) -> bool:
        """Whether the rule's sentence is true of a figure, or of a ratio where it bounds a change."""
        value -= self.relative
        compare = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}[self.operator]
        return bool(compare(value, self.value))


def parse_target(text: str) -> Rule:
    """Read a target such as "ttft_p50 < 2.5 s", "decode_speed_mean > 20" or "ttft_mean @ 128 in < 2500 ms".

    A metric without a statistic means its p50, a figure without a unit the metric's own. Raises ConfigurationError,
    which says what is expected.
    """
    rule = _parse(text, example='"ttft_p95 < 400 ms"')
    if rule.relative:
        raise ConfigurationError(
            f"target {text!r}: a target is a figure, not a change. Only a cv is in per cent (ttft_cv < 20%); "
            "changes against the reference are what --fail-if is for"
        )
    return rule


def parse_fail_if(text: str) -> Rule:
    """Read what must not happen, such as "ttft_p50 > +5%" (a change against the reference) or "e2e_p95 > 900 ms".

    A change of a metric without a statistic is the typical change of its pairs. Raises ConfigurationError, which says
    what is expected.
    """
    rule = _parse(text, example='"ttft_p50 > +5%"')
    if rule.relative and rule.share is None and rule.statistic != "typical":
        raise ConfigurationError(
            f"rule {text!r}: the change of a {rule.statistic} is not known with an interval. Use the metric alone "
            f"(its typical change) or one of its percentiles: {', '.join(_CHANGED)}"
        )
    if rule.relative and rule.share is not None and rule.statistic not in _CHANGED:
        raise ConfigurationError(f"rule {text!r}: the change is known of these percentiles: {', '.join(_CHANGED)}")
    return rule


def _parse(text: str, *, example: str) -> Rule:
    found = _RULE.fullmatch(text)
    how = _HOW.format(example=example)
    if found is None:
        raise ConfigurationError(f"cannot read the rule {text!r}: {how}")
    metric, statistic = _figure_named(found["what"], text, how)
    number = float(found["sign"] + found["number"].replace(",", ""))
    unit = found["unit"]
    relative = unit == "%" and statistic != "cv"
    if statistic == "cv" and unit != "%":
        raise ConfigurationError(f"rule {text!r}: a cv is a share, so give it in per cent, such as ttft_cv < 20%")
    return Rule(
        text=text.strip(),
        metric=metric.name,
        statistic=statistic or ("typical" if relative else "p50"),
        operator=cast("Operator", found["operator"]),
        value=number / 100 if unit == "%" else _in_unit(number, unit, metric, text),
        relative=relative,
        scope=found["scope"],
    )


def _figure_named(what: str, text: str, how: str) -> tuple[RequestMetric, Statistic | None]:
    statistic = next((each for each in STATISTICS if what.endswith(f"_{each}")), None)
    name = what.removesuffix(f"_{statistic}") if statistic else what
    name = SHORT_NAMES.get(name, name)
    if name not in METRICS:
        raise ConfigurationError(f"rule {text!r} names no figure that is known ({what!r}): {how}")
    return METRICS[name], statistic


def _in_unit(number: float, unit: str | None, metric: RequestMetric, text: str) -> float:
    if not math.isfinite(number):
        raise ConfigurationError(f"rule {text!r}: the value must be a finite number")
    if unit is None or unit == metric.unit:
        return number
    if unit == "s" and metric.unit == "ms":
        return number * 1e3
    also = " or s" if metric.unit == "ms" else ""
    raise ConfigurationError(f"rule {text!r}: {lowered(metric.title)} is in {metric.unit}{also}, not in {unit}")
