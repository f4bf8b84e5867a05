"""Several tests at once, and a test for no difference that matters."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ..._exceptions import ConfigurationError
from ._pairs import finite
from ._signed_rank import signed_rank_p


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values adjusted so that any false one among them has the chance that a single one would have.

    Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6, 1979: the
    smallest times their number, the next times one fewer, and none below the one before it.
    Raises ConfigurationError for what is no probability.
    """
    if any(not 0 <= p <= 1 for p in p_values):
        raise ConfigurationError(f"expected p values from 0 to 1, got {list(p_values)}")
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for done, at in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, p_values[at] * (len(p_values) - done)))
        adjusted[at] = highest
    return adjusted


def equivalence_p(log_ratios: ArrayLike, margin: float = 0.03) -> float:
    """Return the p value of "these differ by `margin` or more": small where two arms are equivalent. 1 without pairs.

    Two one-sided tests (Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15, 1987), of ratios of
    1 + margin and 1 / (1 + margin), each by Wilcoxon's signed-rank test as Wellek has it ("Testing Statistical
    Hypotheses of Equivalence and Noninferiority", 2010, chapter 5.4), and the larger of their p values. It is below
    5 % exactly where the Hodges-Lehmann interval at 90 % lies within the margin: a t test would say otherwise than
    the interval beside it, and be at the mercy of a few slow answers. The margin is even in logarithms, as that of
    bioequivalence (80 to 125 %), so that swapping the arms changes nothing.
    Raises ConfigurationError for a margin that is not above 0.
    """
    if not margin > 0:
        raise ConfigurationError(f"expected a margin above 0, such as 0.03 for 3 %, got {margin}")
    logs = finite(log_ratios, "log-ratios")
    if not logs.size:
        return 1.0
    bound = math.log1p(margin)
    return max(signed_rank_p(np.subtract(logs, bound), "less"), signed_rank_p(np.add(logs, bound), "greater"))
