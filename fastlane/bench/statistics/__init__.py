"""Estimates, intervals and tests: pure functions on numbers."""

from ._bootstrap import mean_changes as mean_changes, quantile_ratio as quantile_ratio
from ._pairs import log_ratios as log_ratios
from ._power import (
    POWER as POWER,
    pairs_for_effect as pairs_for_effect,
    pairs_for_equivalence as pairs_for_equivalence,
    pairs_for_interval as pairs_for_interval,
    smallest_effect as smallest_effect,
)
from ._quantiles import percentile as percentile, quantile as quantile, wanted as wanted
from ._signed_rank import ENOUGH_PAIRS as ENOUGH_PAIRS, hodges_lehmann as hodges_lehmann, signed_rank_p as signed_rank_p
from ._types import Floats as Floats, Interval as Interval, Quantile as Quantile
