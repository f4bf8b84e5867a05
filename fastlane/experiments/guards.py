"""Guards: what ends an arm by itself."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from ..engine.settings import settings
from .comparison import ArmSums, compare
from .metrics import METRICS

MetricName: TypeAlias = Literal[
    "time_to_first_token", "time_per_output_token", "end_to_end", "error_rate", "parse_failures", "price", "quality"
]


@settings
class Guard:
    """Ends an arm that is shown to be worse than the reference: `Guard("error_rate")`, `Guard("price", worse_by=0.2)`.

    "Shown" means by an interval that holds at any time: all guards of an experiment together end an arm that is not
    worse in at most one of 20 experiments. Raises ConfigurationError.
    """

    metric: MetricName = dataclasses.field(kw_only=False)
    worse_by: Annotated[float, Field(ge=0)] = 0.0
    """The tolerated distance from the reference: of times and prices a ratio (0.1 is 10 %), of shares a difference."""

    def reason_to_end(self, arm: ArmSums, reference: ArmSums, alpha: float) -> str | None:
        """Return why an arm has to end, or None."""
        metric = METRICS[self.metric]
        comparison = compare(metric, arm, reference, alpha)
        if comparison is None or comparison.low is None or comparison.high is None:
            return None
        least = -comparison.high if metric.scale == "score" else comparison.low
        unit = "%" if metric.is_ratio else "percentage points"
        text = f"{self.metric} is worse than the reference's by at least {100 * least:.2g} {unit}"
        return text if least > self.worse_by else None
