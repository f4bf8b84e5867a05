"""From raw records to what they show."""

from ._find import find as find
from ._types import (
    Attribution as Attribution,
    CellFindings as CellFindings,
    Cold as Cold,
    Comparison as Comparison,
    Figures as Figures,
    Findings as Findings,
    Interval as Interval,
    Kind as Kind,
    Quantile as Quantile,
    Share as Share,
    Verdict as Verdict,
)
