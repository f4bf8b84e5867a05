"""Arms that are measured in turns, so that what disturbs the machine disturbs all of them, and the figures of that."""

from __future__ import annotations

import gc
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from fastlane._clock import cpu_ns

_Arm = TypeVar("_Arm")
_T = TypeVar("_T")


def turns(arms: Iterable[_Arm], rounds: int, *, warm_ups: int = 0) -> Iterator[tuple[int, _Arm]]:
    """Give each arm its turn in every round, in reversed order every other round; warm-ups have negative numbers."""
    order = list(arms)
    for number in range(-warm_ups, rounds):
        for arm in reversed(order) if number % 2 else order:
            yield number, arm


def in_turns(
    measure: Callable[[_Arm], _T], arms: Iterable[_Arm], rounds: int, *, warm_ups: int = 0
) -> dict[_Arm, list[_T]]:
    """Measure each arm once per round; return what came of it, round by round."""
    order = list(arms)
    taken: dict[_Arm, list[_T]] = {arm: [] for arm in order}
    for number, arm in turns(order, rounds, warm_ups=warm_ups):
        found = measure(arm)
        if number >= 0:
            taken[arm].append(found)
    return taken


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Collect garbage, then none until the end of the block."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def cpu_pairs(
    arms: Sequence[Callable[..., object]],
    pairs: int,
    *,
    warm_ups: int = 3,
    prepare: Sequence[Callable[[], object]] | None = None,
) -> list[list[int]]:
    """Return the CPU nanoseconds of each arm, once per round, the order reversed in every other round.

    Inside: the process's CPU time, all threads, while the arm runs. Outside: garbage collection, which is off while an
    arm runs and done between rounds; and `prepare` of each arm, whose result the arm is called with.
    """
    taken: list[list[int]] = [[] for _ in arms]

    def one(index: int) -> int:
        given = () if prepare is None else (prepare[index](),)
        started = cpu_ns()
        arms[index](*given)
        return cpu_ns() - started

    with without_garbage_collection():
        for number, index in turns(range(len(arms)), pairs, warm_ups=warm_ups):
            nanoseconds = one(index)
            if number >= 0:
                taken[index].append(nanoseconds)
            if number % 10 == 9 and min(map(len, taken)) > number:
                gc.collect()
    return taken


# Figures


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
    low, high = max(0, int(count / 2 - reach)), min(count - 1, int(count / 2 + reach))
    return Median(statistics.median(ordered), ordered[low], ordered[high])


def middle(values: Sequence[float]) -> float:
    """Return the median alone."""
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def differences(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Return ours minus theirs, pair by pair."""
    return [one - other for one, other in zip(ours, theirs, strict=True)]


def _with_interval(name: str, unit: str, values: Sequence[float]) -> dict[str, float]:
    found = median(values)
    return {f"{name}_{unit}": found.value, f"{name}_low_{unit}": found.low, f"{name}_high_{unit}": found.high}


def paired(name: str, over: Sequence[float], under: Sequence[float]) -> dict[str, float]:
    """Return the median of the ratios pair by pair, with its confidence interval, as figures."""
    return _with_interval(name, "ratio", [one / other for one, other in zip(over, under, strict=True)])


def added(name: str, ours: Sequence[float], theirs: Sequence[float], unit: str = "us") -> dict[str, float]:
    """Return the median of the differences pair by pair, with its confidence interval, as figures."""
    return _with_interval(name, unit, differences(ours, theirs))


def ttft(prefix: str, theirs: Sequence[float], ours: Sequence[float]) -> dict[str, float]:
    """Return `paired` of times to first token in milliseconds, stock over ours, and the median of each."""
    return {
        **paired(f"{prefix}ttft", theirs, ours),
        f"{prefix}stock_ttft_ms": middle(theirs),
        f"{prefix}fastlane_ttft_ms": middle(ours),
    }
