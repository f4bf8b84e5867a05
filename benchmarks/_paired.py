"""Two arms measured in turn, so that what disturbs the machine disturbs both."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from fastlane._clock import cpu_ns

_Arm = TypeVar("_Arm")
_T = TypeVar("_T")


class Median(NamedTuple):
    """A median, and the 95 % confidence interval that its order statistics give without assuming a distribution."""

    value: float
    low: float
    high: float


def median(values: Sequence[float]) -> Median:
    """Return the median of independent values with its confidence interval."""
    ordered = sorted(values)
    count = len(ordered)
    # The normal approximation of the binomial ranks; below six values the interval is the whole range.
    reach = 0.98 * count**0.5
    low = max(0, int(count / 2 - reach))
    high = min(count - 1, int(count / 2 + reach))
    return Median(statistics.median(ordered), ordered[low], ordered[high])


def cpu_pairs(
    arms: Sequence[Callable[..., object]],
    pairs: int,
    *,
    warm_ups: int = 3,
    prepare: Sequence[Callable[[], object]] | None = None,
) -> list[list[int]]:
    """CPU nanoseconds of each arm, once per round, the order reversed in every other round.

    Inside: the process's CPU time, all threads, while the arm runs. Outside: garbage collection, which is off while an
    arm runs and done between rounds; and `prepare` of each arm, whose result the arm is called with.
    """

    def arguments(index: int) -> tuple[object, ...]:
        return () if prepare is None else (prepare[index](),)

    for _ in range(warm_ups):
        for index, arm in enumerate(arms):
            arm(*arguments(index))
    taken: list[list[int]] = [[] for _ in arms]
    indexes = range(len(arms))
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for round_number, index in turns(indexes, pairs):
            given = arguments(index)
            started = cpu_ns()
            arms[index](*given)
            taken[index].append(cpu_ns() - started)
            if round_number % 10 == 9 and min(map(len, taken)) > round_number:
                gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()
    return taken


def differences(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Ours minus theirs, pair by pair."""
    return [one - other for one, other in zip(ours, theirs, strict=True)]


def paired(name: str, over: Sequence[float], under: Sequence[float]) -> dict[str, float]:
    """Return the median of the ratios pair by pair, with its confidence interval, as figures."""
    ratio = median([one / other for one, other in zip(over, under, strict=True)])
    return {f"{name}_ratio": ratio.value, f"{name}_low_ratio": ratio.low, f"{name}_high_ratio": ratio.high}


def added(name: str, ours: Sequence[float], theirs: Sequence[float], unit: str = "us") -> dict[str, float]:
    """Return the median of the differences pair by pair, with its confidence interval, as figures."""
    difference = median(differences(ours, theirs))
    return {
        f"{name}_{unit}": difference.value,
        f"{name}_low_{unit}": difference.low,
        f"{name}_high_{unit}": difference.high,
    }


def sides(name: str, theirs: Sequence[float], ours: Sequence[float], unit: str) -> dict[str, float]:
    """Return `paired` of the stock client over ours, and the median of each, as figures."""
    return {
        **paired(name, theirs, ours),
        f"{name}_stock_{unit}": median(theirs).value,
        f"{name}_fastlane_{unit}": median(ours).value,
    }


def ttft(prefix: str, theirs: Sequence[float], ours: Sequence[float]) -> dict[str, float]:
    """Return the same of times to first token in milliseconds."""
    return {
        **paired(f"{prefix}ttft", theirs, ours),
        f"{prefix}stock_ttft_ms": median(theirs).value,
        f"{prefix}fastlane_ttft_ms": median(ours).value,
    }


def in_turns(measure: Callable[[_Arm], _T], arms: Iterable[_Arm], rounds: int) -> dict[_Arm, list[_T]]:
    """Measure each arm once per round, in reversed order every other round; what came of it, round by round."""
    order = list(arms)
    taken: dict[_Arm, list[_T]] = {arm: [] for arm in order}
    for _, arm in turns(order, rounds):
        taken[arm].append(measure(arm))
    return taken


def turns(arms: Iterable[_Arm], rounds: int, *, warm_ups: int = 0) -> Iterator[tuple[int, _Arm]]:
    """Give each arm its turn in every round, in reversed order every other round; warm-ups have negative numbers."""
    order = list(arms)
    for number in range(-warm_ups, rounds):
        for arm in reversed(order) if number % 2 else order:
            yield number, arm
