"""That one call goes to an arm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..records.experiment import ExperimentRecord, Why

if TYPE_CHECKING:
    from ..engine.observation import Observation
    from ._ledger import Ledger


class Assigned:
    """Which arm a call goes to, and who counts it when it is over."""

    __slots__ = ("_ledger", "arm", "drawn", "is_lone", "stage", "unit_id_hash", "why")

    def __init__(
        self, ledger: Ledger, arm: str, unit_id_hash: str, *, stage: int, is_lone: bool, drawn: str, why: Why | None
    ) -> None:
        self._ledger = ledger
        self.arm = arm
        self.unit_id_hash = unit_id_hash
        self.stage = stage
        self.is_lone = is_lone
        """The call is a unit of its own."""
        self.drawn = drawn
        self.why: Why | None = why

    def over(self, call: Observation) -> None:
        """The call is over. Neither waits nor raises: a finaliser may call this in the middle of anything."""
        if self.why is None:
            self._ledger.over(call, self)

    @property
    def record(self) -> ExperimentRecord:
        """What the call's record says."""
        return ExperimentRecord(
            name=self._ledger.name,
            arm=self.arm,
            unit_id_hash=self.unit_id_hash,
            stage=self.stage,
            drawn=self.drawn,
            why=self.why,
        )
