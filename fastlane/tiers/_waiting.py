"""Wait for a place on an event loop: as the gate does on asyncio's, and in a thread for any other."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..admission import Gate, Permit
    from ._plan import UrgencyPlan


async def async_enter(gate: Gate, plan: UrgencyPlan, *, tokens: int, most_wait_s: float | None) -> Permit:
    """A place. Raises QueueFullError and QueueTimeoutError."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # trio's loop
        return await _in_a_thread(gate, plan, tokens, most_wait_s)
    return await gate.async_enter(plan.urgency, plan.admission, tokens=tokens, most_wait_s=most_wait_s)


async def _in_a_thread(gate: Gate, plan: UrgencyPlan, tokens: int, most_wait_s: float | None) -> Permit:
    permit = gate.try_enter(plan.urgency, plan.admission, tokens=tokens)
    if permit is not None:
        return permit
    from anyio import to_thread

    waiting = _Waiting()

    def wait() -> Permit:
        return waiting.got(gate.enter(plan.urgency, plan.admission, tokens=tokens, most_wait_s=most_wait_s))

    try:
        return await to_thread.run_sync(wait, abandon_on_cancel=True)
    except BaseException:
        waiting.give_up()
        raise


class _Waiting:
    """A place that a thread waits for, until somebody takes it or gives up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._permit: Permit | None = None
        self._is_given_up = False

    def got(self, permit: Permit) -> Permit:
        with self._lock:
            self._permit = permit
            is_given_up = self._is_given_up
        if is_given_up:
            permit.leave()
        return permit

    def give_up(self) -> None:
        with self._lock:
            self._is_given_up = True
            permit = self._permit
        if permit is not None:
            permit.leave()
