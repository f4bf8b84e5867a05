"""How far a run is, for whoever watches it."""

from __future__ import annotations

from dataclasses import dataclass

from .load._precision import RunningRatio


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is after a block, or at a cell's beginning. Its ratios may be watched without harm.

    They come with confidence sequences, which hold at every look: to stop a run because one of them has excluded 1 is
    sound, which it is not with an ordinary interval.
    """

    cell: str
    """The cell that is running."""
    cells_done: int
    cells: int
    blocks_done: int
    """Of all cells."""
    blocks_planned: int | None
    """None where only the budget, or the precision that is asked, ends the run."""
    requests: int
    failed: int
    share: float
    """How much of the run is over, from 0.0 to 1.0, by whatever will end it first."""
    elapsed_s: float
    ratios: tuple[RunningRatio, ...] = ()
    """Of the running cell: one for each arm beside the reference, and each metric."""
