"""What may be said of a comparison, and in which words."""

from __future__ import annotations

import math
from typing import Final

from .._formatting import change_with_interval, counted, percent
from ..recorded import RequestMetric
from ..statistics import (
    Interval,
    pairs_for_effect,
    pairs_for_equivalence,
    pairs_for_interval,
    smallest_effect,
)
from ._types import ComparisonVerdict, Kind

ALPHA: Final = 0.05
"""How often any interval of a cell's typical changes may miss, over all its metrics and arms."""


def judge(
    *,
    typical: Interval | None,
    logs: Interval | None,
    pairs: int,
    family: int,
    metric: RequestMetric,
    margin: float,
) -> ComparisonVerdict:
    """Return what one comparison shows, read from the interval of its typical change alone.

    `typical` is the ratio with an interval that holds together with those of the `family`'s other comparisons, `logs`
    the log-ratio with a plain 95 % interval, from which the sizes of further runs are planned. A difference is shown
    where the interval excludes a ratio of 1, equivalence where it lies within `margin` and its inverse: even in
    logarithms, as the margin of bioequivalence is (80 to 125 %). Where both are shown, the arms are equivalent.
    """
    if typical is None or logs is None or typical.low is None or typical.high is None:
        needed = pairs_for_interval(ALPHA / family)
        return ComparisonVerdict(
            kind="too few pairs",
            sentence=f"{counted(needed - pairs, 'more pair')} needed: {pairs} of at least {needed}",
            more_pairs=needed - pairs,
        )
    smallest = smallest_effect(logs, ALPHA / family, pairs=pairs)
    differs = typical.high < 1 or typical.low > 1
    kind: Kind = "better" if (typical.high < 1) == metric.lower_is_better else "worse"
    change = f"{metric.words[kind == 'worse']} by {change_with_interval(typical, signed=False)}"
    if 1 / (1 + margin) <= typical.low and typical.high <= 1 + margin:
        said = f"though {change}" if differs else f"typical change {change_with_interval(typical)}"
        return ComparisonVerdict(
            kind="equivalent", sentence=f"equivalent within {percent(margin)}, {said}", smallest_effect=smallest
        )
    if differs:
        return ComparisonVerdict(kind=kind, sentence=change, smallest_effect=smallest)
    more, purpose = _more(logs, pairs, family, margin)
    sentence = "no difference shown"
    if smallest is not None:
        sentence += f"; this run could have shown {percent(smallest)}"
    if more is not None:
        sentence += f"; {counted(more, 'more pair')} needed to show {purpose}"
    return ComparisonVerdict(kind="no difference shown", sentence=sentence, smallest_effect=smallest, more_pairs=more)


def not_comparable(sentence: str) -> ComparisonVerdict:
    """Return the verdict where one arm gave no figure at all."""
    return ComparisonVerdict(kind="not comparable", sentence=sentence)


def _more(logs: Interval, pairs: int, family: int, margin: float) -> tuple[int | None, str]:
    """Return how many more pairs would show what takes fewer: the change seen, or equivalence."""
    by_effect = pairs_for_effect(logs, pairs, ALPHA / family)
    by_equivalence = pairs_for_equivalence(logs, pairs, margin, ALPHA / family)
    if by_equivalence is not None and (by_effect is None or by_equivalence < by_effect):
        return max(1, by_equivalence - pairs), f"equivalence within {percent(margin)}"
    if by_effect is None:
        return None, ""
    return max(1, by_effect - pairs), f"a change of the {percent(abs(math.expm1(logs.value)))} seen"
