"""What may be said of a comparison, and in which words."""

from __future__ import annotations

import math
from typing import Final

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
            sentence=f"{_counted(needed - pairs)} needed: {pairs} of at least {needed}",
            more_pairs=needed - pairs,
        )
    smallest = smallest_effect(logs, ALPHA / family, pairs=pairs)
    differs = typical.high < 1 or typical.low > 1
    kind: Kind = "better" if (typical.high < 1) == metric.lower_is_better else "worse"
    change = f"{metric.words[kind == 'worse']} by {_size(typical)}"
    if 1 / (1 + margin) <= typical.low and typical.high <= 1 + margin:
        said = f"though {change}" if differs else f"typical change {_signed_change(typical)}"
        return ComparisonVerdict(
            kind="equivalent", sentence=f"equivalent within {_percent(margin)}, {said}", smallest_effect=smallest
        )
    if differs:
        return ComparisonVerdict(kind=kind, sentence=change, smallest_effect=smallest)
    more, purpose = _more(logs, pairs, family, margin)
    sentence = "no difference shown"
    if smallest is not None:
        sentence += f"; this run could have shown {_percent(smallest)}"
    if more is not None:
        sentence += f"; {_counted(more)} needed to show {purpose}"
    return ComparisonVerdict(kind="no difference shown", sentence=sentence, smallest_effect=smallest, more_pairs=more)


def not_comparable(sentence: str) -> ComparisonVerdict:
    """Return the verdict where one arm gave no figure at all."""
    return ComparisonVerdict(kind="not comparable", sentence=sentence)


def _more(logs: Interval, pairs: int, family: int, margin: float) -> tuple[int | None, str]:
    """Return how many more pairs would show what takes fewer: the change seen, or equivalence."""
    by_effect = pairs_for_effect(logs, pairs, ALPHA / family)
    by_equivalence = pairs_for_equivalence(logs, pairs, margin, ALPHA / family)
    if by_equivalence is not None and (by_effect is None or by_equivalence < by_effect):
        return max(1, by_equivalence - pairs), f"equivalence within {_percent(margin)}"
    if by_effect is None:
        return None, ""
    return max(1, by_effect - pairs), f"a change of the {_percent(abs(math.expm1(logs.value)))} seen"


def _counted(count: int) -> str:
    return f"{count:,} more pair{'' if count == 1 else 's'}"


def _size(ratio: Interval) -> str:
    """Return a change without its sign, its interval in the same direction: "31 % [27, 35]"."""
    turned = -1 if ratio.value < 1 else 1
    inside = sorted(turned * (bound - 1) for bound in _bounds(ratio))
    return _percent(turned * (ratio.value - 1)) + _bracketed([_figure(bound) for bound in inside])


def _signed_change(ratio: Interval) -> str:
    return f"{_signed(ratio.value - 1)} %{_bracketed([_signed(bound - 1) for bound in _bounds(ratio)])}"


def _bounds(ratio: Interval) -> list[float]:
    return [] if ratio.low is None or ratio.high is None else [ratio.low, ratio.high]


def _bracketed(bounds: list[str]) -> str:
    return f" [{', '.join(bounds)}]" if bounds else ""


def _percent(share: float) -> str:
    return f"{_figure(share)} %"


def _figure(share: float) -> str:
    percent = share * 100
    text = f"{percent:,.0f}" if abs(percent) >= 9.95 else f"{percent:.1f}".removesuffix(".0")
    # A bound that is written as 0 would seem to allow for no change.
    if text in ("0", "-0"):
        return f"{percent:.1g}" if abs(percent) >= 0.0005 else "0"
    return text


def _signed(share: float) -> str:
    text = _figure(share)
    return text if text == "0" or share < 0 else f"+{text}"
