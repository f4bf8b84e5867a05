"""How far a shard is with a cell, and why it ends it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from ..._clock import now_ns
from ..load import RunCost, exhausted
from ..recorded import Sample
from ._messages import CellPlan, EndCell
from ._pacing import Due, Pacing

GRACE_NS: Final = 1_000_000_000
"""How long requests may take that are under way at Ctrl-C."""


class CellState:
    """How far a cell is, and why it ends."""

    def __init__(self, plan: CellPlan, arms: int) -> None:
        self._name = plan.cell.name
        self._budget = plan.budget
        self._arms = arms
        self._spent = RunCost()
        self._answers: dict[tuple[int, int], int] = {}
        self.in_flight: dict[str, Due | None] = {}
        self.unrecorded: dict[str, Due | None] = {}
        """Requests that are over, whose records have not come yet."""
        self.committed = 0
        self.began_ns = self.ended_ns = now_ns()
        self.why: str | None = None
        self.until_ns: int | None = None
        """When requests under way are given up, after Ctrl-C."""

    @property
    def duration_s(self) -> float:
        return (self.ended_ns - self.began_ns) / 1e9

    def check(self, pacing: Pacing, now: int) -> None:
        """See whether a further block may start."""
        if self.why is None:
            arrives_s = pacing.arrives_s()
            seconds = (now - self.began_ns) / 1e9 if arrives_s is None else arrives_s
            spent = replace(self._spent, seconds=seconds, calls=self.committed)
            self.why = exhausted(self._budget, spent, calls_of_next=self._arms)

    def stop(self, why: Any) -> None:
        """Start no further block; after Ctrl-C, wait only a moment for what is under way."""
        if why == "interrupted":
            self.until_ns = self.until_ns or now_ns() + GRACE_NS
            self.why = why
        elif why == EndCell(self._name):
            self.why = self.why or "ended early"

    def took(self, sample: Sample, *, counts: bool = True) -> None:
        """Take note of what a request has cost."""
        self._spent = self._spent.with_sample(sample)
        if counts:
            self.ended_ns = max(self.ended_ns, sample.ended_ns)

    def is_done(self, lane: int, number: int) -> bool:
        """Take note of an arm's answer, and say whether it was the block's last."""
        answers = self._answers.pop((lane, number), 0) + 1
        if answers < self._arms:
            self._answers[lane, number] = answers
        return answers == self._arms


def block_s(samples: Sequence[Sample]) -> float:
    """Return about how long a block takes, by requests that were sent one after the other."""
    return min((sample.ended_ns - sample.issued_ns) / 1e9 for sample in samples) * len({each.arm for each in samples})


def until(now: int, *moments: int | None) -> float | None:
    """Return the seconds until the first of some moments; None where there is none."""
    known = [moment for moment in moments if moment is not None]
    return max(0, min(known) - now) / 1e9 if known else None
