"""What an impatient experimenter sees who looks at the result every ten pairs and stops at the first verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from fastlane.bench.progress import MeanSequence

EVERY: Final = 10
_FIRST_LOOK: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """At which number of pairs each rule first said that there is a difference; None: at none."""

    pairs: int
    sequence: int | None
    """The confidence sequence excludes no change."""
    naive: int | None
    """An interval made for a single look excludes no change."""
    low: float | None = None
    """Bounds of the confidence sequence where it was stopped, in logarithms."""
    high: float | None = None

    def covers(self, truth: float) -> bool:
        """Whether the confidence sequence held the truth where it was stopped."""
        return self.low is None or self.high is None or self.low <= truth <= self.high


def look(log_ratios: Sequence[float]) -> Looked:
    """Let each rule look at a series every ten pairs."""
    sequence = MeanSequence()
    found: dict[str, int] = {}
    stopped: tuple[float, float] | None = None
    mean = squares = 0.0
    for count, value in enumerate(log_ratios, start=1):
        sequence.add(value)
        before = value - mean
        mean += before / count
        squares += before * (value - mean)
        if count % EVERY or count < _FIRST_LOOK:
            continue
        interval = sequence.interval()
        if "sequence" not in found:
            stopped = interval
            if interval is not None and not interval[0] <= 0 <= interval[1]:
                found["sequence"] = count
        if abs(mean) > 1.959964 * math.sqrt(squares / (count - 1) / count):
            found.setdefault("naive", count)
    low, high = stopped or (None, None)
    return Looked(
        pairs=len(log_ratios),
        sequence=found.get("sequence"),
        naive=found.get("naive"),
        low=low,
        high=high,
    )


def one_after_the_other(log_ratios: Sequence[float], most: int) -> Iterator[Looked]:
    """Cut a long series into experiments: each ends with the sequence's verdict, or after `most` pairs without one.

    What is left at the end and led to no verdict was no whole experiment, and is left out.
    """
    start = 0
    while start < len(log_ratios):
        series = log_ratios[start : start + most]
        looked = look(series)
        if looked.sequence is None:
            if len(series) == most:
                yield looked
            start += most
        else:
            yield look(series[: looked.sequence])
            start += looked.sequence
