"""What is known of a run's cells while they run: their whole blocks, and why they ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ._failures import FAILED_ALIKE
from .load._precision import Watch
from .recorded import Sample
from .recorded._folder import StoredRun
from .running import BlockDone, CellEnded


class Follow:
    """One cell's blocks as they become whole."""

    def __init__(self, watch: Watch, *, blocks: int, planned: int | None) -> None:
        self.watch = watch
        self.planned = planned
        self.enough = False
        self.blocks_open: dict[tuple[str, int, int, int], dict[str, Sample]] = defaultdict(dict)
        self._blocks = blocks

    @property
    def share(self) -> float:
        """How much of the planned blocks is done; 0.0 where none are planned."""
        return min(1.0, self._blocks / self.planned) if self.planned else 0.0

    def block_done(self, event: BlockDone, cell: str) -> None:
        """Take a block of which every arm's request is there."""
        self._blocks += 1
        self.watch.pair(self.blocks_open.pop((cell, event.shard, event.lane, event.block)))


def earlier_blocks(kept: StoredRun | None, cell: str, arms: int) -> Iterator[Mapping[str, Sample]]:
    """Return the whole blocks of earlier sessions of a run."""
    blocks: dict[Any, dict[str, Sample]] = defaultdict(dict)
    for sample in kept.recorded.measured(cell) if kept is not None else ():
        blocks[sample.key][sample.arm] = sample
    return (block for block in blocks.values() if len(block) == arms)


def why_ended(ended: Sequence[CellEnded]) -> str:
    """Return why a cell ended whose shards ended so."""
    reasons = [each.why for each in ended]
    if "interrupted" in reasons:
        return "interrupted"
    spent = [why for why in reasons if why.endswith(" spent")]
    if "ended early" in reasons:
        return "precision reached"
    return spent[0] if spent else "finished"


def run_ended(reasons: Sequence[str]) -> str:
    """Return why a run ended whose cells ended so: what kept any of them from its end counts most."""
    for why in (
        *(each for each in reasons if each in ("interrupted", FAILED_ALIKE)),
        *(each for each in reasons if each.endswith(" spent")),
        *(each for each in reasons if each == "precision reached"),
    ):
        return why
    return "finished"
