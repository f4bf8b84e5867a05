"""From raw records to what they show."""

from ._find import find as find
from ._types import (
    ArmComparison as ArmComparison,
    Attribution as Attribution,
    CellFindings as CellFindings,
    Cold as Cold,
    ComparisonVerdict as ComparisonVerdict,
    Figures as Figures,
    Findings as Findings,
    Interval as Interval,
    Kind as Kind,
    Quantile as Quantile,
    Share as Share,
)
