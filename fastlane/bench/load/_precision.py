"""How well each arm's ratio to the reference is known so far, however often one looks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastlane.bench.statistics.sequence import MeanSequence

from ..recorded import Sample, metric_named
from ._types import Precision

# Where the sequences are tightest; a look at any other number of pairs is as valid, and the interval a little wider.
_OPTIMISED_FOR = 100
_ALPHA = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRatio:
    """One arm's metric over the reference's in one cell, by the pairs so far; it may be looked at after each."""

    cell: str
    arm: str
    metric: str
    pairs: int
    ratio: float
    """Geometric middle of the interval."""
    low: float
    high: float
    """Bounds of a confidence sequence: with a probability of 95 % those of a whole cell hold together at every look."""


class Watch:
    """Follows one cell's pairs: a confidence sequence for each metric of each arm beside its reference.

    Each of n sequences is given 5 % / n of the chance to err (the union bound).

    `references` has the reference of each arm, by name; a reference's is its own.
    """

    def __init__(self, cell: str, references: Mapping[str, str], metrics: Sequence[str]) -> None:
        self._cell = cell
        self._references = references
        self._metrics = {name: metric_named(name).value for name in metrics}
        followed = [(arm, metric) for arm, reference in references.items() if arm != reference for metric in metrics]
        self._sequences = {
            key: MeanSequence(optimised_for=_OPTIMISED_FOR, alpha=_ALPHA / len(followed)) for key in followed
        }

    def pair(self, block: Mapping[str, Sample]) -> None:
        """Take one block's samples, by their arms' names."""
        for (arm, metric), sequence in self._sequences.items():
            here, there = block.get(arm), block.get(self._references[arm])
            if here is None or there is None or here.error is not None or there.error is not None:
                continue
            value, base = self._metrics[metric](here), self._metrics[metric](there)
            if value is not None and base is not None and value > 0 and base > 0:
                sequence.add(math.log(value / base))

    def ratios(self) -> tuple[RunningRatio, ...]:
        """Return what is known so far: nothing of those of which too little is."""
        found = []
        for (arm, metric), sequence in self._sequences.items():
            interval = sequence.interval()
            if interval is not None and all(map(math.isfinite, interval)):
                low, high = interval
                found.append(
                    RunningRatio(
                        cell=self._cell,
                        arm=arm,
                        metric=metric,
                        pairs=sequence.count,
                        ratio=math.exp((low + high) / 2),
                        low=math.exp(low),
                        high=math.exp(high),
                    )
                )
        return tuple(found)

    def reached(self, precision: Precision) -> bool:
        """Whether every arm's ratio is known as well as is asked."""
        wanted = [key for key in self._sequences if key[1] == precision.metric]
        known = [each for each in self.ratios() if each.metric == precision.metric]
        return (
            bool(wanted)
            and len(known) == len(wanted)
            and all((each.high - each.low) / 2 <= precision.half_width for each in known)
        )
