"""How a call that waits in the queue is called back out of it by somebody else."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._gate import Gate
    from ._waiters import TaskWaiter, ThreadWaiter, TrioWaiter


class Recalled(Exception):  # noqa: N818 - no error
    """The call was called back before it had its place: it waits no longer, and has none."""


class Recall:
    """Calls one call back, before it waits or while it does; one that has its place by then keeps it. Thread-safe."""

    __slots__ = ("__weakref__", "_waits", "was_made")

    def __init__(self) -> None:
        self.was_made = False
        self._waits: tuple[Gate, ThreadWaiter | TaskWaiter | TrioWaiter] | None = None

    def call_off(self) -> None:
        """The call is to wait no longer. Takes the gate's lock."""
        self.was_made = True
        self._tell()

    def waits(self, gate: Gate, waiter: ThreadWaiter | TaskWaiter | TrioWaiter) -> None:
        """The call waits there from now on."""
        self._waits = gate, waiter
        if self.was_made:
            self._tell()

    def _tell(self) -> None:
        waits = self._waits
        if waits is not None:
            gate, waiter = waits
            gate.recall(waiter)
