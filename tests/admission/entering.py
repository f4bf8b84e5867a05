"""Slots of a gate, acquired as the flow of a call acquires them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from fastlane.engine.drivers import async_run, run
from fastlane.engine.effects import Flow
from fastlane.plays.urgency.admission import AdmissionSettings, Gate, Slot
from fastlane.records.urgency import Level

OPEN: Any = SimpleNamespace(is_closed=False)
"""An HTTP client that nobody closes."""


def acquired(slot: Slot, http: Any = OPEN) -> Flow:
    """Acquire a slot; release it where that fails. Returns the slot."""
    try:
        yield from slot.acquire(http)
    except BaseException:
        slot.release()
        raise
    return slot


def entered(
    gate: Gate, settings: AdmissionSettings, level: Level = "interactive", *, max_wait_s: float | None = 60
) -> Slot:
    """A slot, acquired by this thread."""
    slot: Slot = run(acquired(gate.slot(level, settings, tokens=10, max_wait_s=max_wait_s)))
    return slot


async def async_entered(
    gate: Gate, settings: AdmissionSettings, level: Level = "interactive", *, max_wait_s: float | None = 60
) -> Slot:
    """A slot, acquired by this task."""
    slot: Slot = await async_run(acquired(gate.slot(level, settings, tokens=10, max_wait_s=max_wait_s)))
    return slot


def free_slot(gate: Gate, settings: AdmissionSettings, level: Level = "interactive") -> Slot | None:
    """A slot, if one is free now."""
    slot = gate.slot(level, settings, tokens=10)
    slot.start(bool)
    if slot.is_granted:
        return slot
    slot.release()
    return None
