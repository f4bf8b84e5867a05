"""What may be said of a comparison, and in which words."""

from __future__ import annotations

import math
from typing import Final

from ..recorded import Metric
from ..statistics import (
    ENOUGH_PAIRS,
    Interval,
    pairs_for_effect,
    pairs_for_equivalence,
    smallest_effect,
)
from ._types import Kind, Verdict

ALPHA: Final = 0.05
"""How often a difference may be said where there is none, over all metrics and arms of a cell; and an equivalence."""


def judge(
    *,
    logs: Interval | None,
    pairs: int,
    p_adjusted: float | None,
    equivalence_p: float | None,
    family: int,
    metric: Metric,
    margin: float,
) -> Verdict:
    """Return what one comparison shows.

    `logs` is the typical log-ratio, `family` how many comparisons its p value was adjusted for. Arms that are shown to
    be within the margin are equivalent, though a difference may be shown too: so much is what the margin means.
    """
    if logs is None or p_adjusted is None or equivalence_p is None or pairs < ENOUGH_PAIRS:
        return Verdict(
            kind="too few pairs",
            sentence=f"{_counted(ENOUGH_PAIRS - pairs)} needed: {pairs} of at least {ENOUGH_PAIRS}",
            more_pairs=ENOUGH_PAIRS - pairs,
        )
    smallest = smallest_effect(logs, ALPHA / family, pairs=pairs)
    differs = p_adjusted <= ALPHA and logs.value != 0
    kind: Kind = "better" if (logs.value < 0) == metric.lower_is_better else "worse"
    change = f"{metric.words[kind == 'worse']} by {_size(logs)}"
    if equivalence_p <= ALPHA:
        said = f"though {change}" if differs else f"typical change {_signed_change(logs)}"
        return Verdict(
            kind="equivalent", sentence=f"equivalent within {_percent(margin)}, {said}", smallest_effect=smallest
        )
    if differs:
        return Verdict(kind=kind, sentence=change, smallest_effect=smallest)
    more, purpose = _more(logs, pairs, family, margin)
    sentence = "no difference shown"
    if smallest is not None:
        sentence += f"; this run could have shown {_percent(smallest)}"
    if more is not None:
        sentence += f"; {_counted(more)} needed to show {purpose}"
    return Verdict(kind="no difference shown", sentence=sentence, smallest_effect=smallest, more_pairs=more)


def not_comparable(sentence: str) -> Verdict:
    """Return the verdict where one arm gave no figure at all."""
    return Verdict(kind="not comparable", sentence=sentence)


def _more(logs: Interval, pairs: int, family: int, margin: float) -> tuple[int | None, str]:
    """Return how many more pairs would show what takes fewer: the change seen, or equivalence."""
    by_effect = pairs_for_effect(logs, pairs, ALPHA / family)
    by_equivalence = pairs_for_equivalence(logs, pairs, margin)
    if by_equivalence is not None and (by_effect is None or by_equivalence < by_effect):
        return max(1, by_equivalence - pairs), f"equivalence within {_percent(margin)}"
    if by_effect is None:
        return None, ""
    return max(1, by_effect - pairs), f"a change of the {_percent(abs(math.expm1(logs.value)))} seen"


def _counted(count: int) -> str:
    return f"{count:,} more pair{'' if count == 1 else 's'}"


def _size(logs: Interval) -> str:
    """Return a change without its sign, its interval in the same direction: "31 % [27, 35]"."""
    bounds = [] if logs.low is None or logs.high is None else [math.expm1(logs.low), math.expm1(logs.high)]
    turned = -1 if logs.value < 0 else 1
    inside = sorted(turned * bound for bound in bounds)
    return _percent(turned * math.expm1(logs.value)) + _bracketed([_figure(bound) for bound in inside])


def _signed_change(logs: Interval) -> str:
    bounds = [] if logs.low is None or logs.high is None else [math.expm1(logs.low), math.expm1(logs.high)]
    return f"{_signed(math.expm1(logs.value))} %{_bracketed([_signed(bound) for bound in bounds])}"


def _bracketed(bounds: list[str]) -> str:
    return f" [{', '.join(bounds)}]" if bounds else ""


def _percent(share: float) -> str:
    return f"{_figure(share)} %"


def _figure(share: float) -> str:
    percent = share * 100
    text = f"{percent:,.0f}" if abs(percent) >= 9.95 else f"{percent:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def _signed(share: float) -> str:
    text = _figure(share)
    return text if text == "0" or share < 0 else f"+{text}"
