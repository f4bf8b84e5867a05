"""One gate for each origin, account and model of the process, until nobody has used it for long."""

from __future__ import annotations

import os
import threading

from fastlane._clock import now_ns
from fastlane.providers._limits import RateLimits

from ..pacing import Pacer
from ._gate import Gate
from ._settings import AdmissionSettings
from ._state import GateState

Key = tuple[str, bytes, str | None]

# Each keeps some ten kilobytes: what it has learned.
_MOST = 1_024
_UNUSED_NS = 1_800_000_000_000

_gates: dict[Key, Gate] = {}
_lock = threading.Lock()


def gate_of(
    origin: str,
    account: bytes,
    model: str | None,
    settings: AdmissionSettings,
    rate_limits: RateLimits | None = None,
) -> Gate:
    """The gate of the whole process for these, whichever client asks.

    `account` is a keyed digest of the API key, never the key. `rate_limits` are the provider's facts. Where clients
    differ in `max_concurrency` or in their limits per minute, the strictest of those given lately hold.
    """
    key = origin, account, model
    gate = _gates.get(key)
    if gate is None:
        with _lock:
            gate = _gates.get(key)
            if gate is None:
                _make_room(now_ns())
                gate = Gate(origin, model, Pacer(facts=rate_limits))
                gate.bound(settings)
                _gates[key] = gate
    gate.used_ns = now_ns()
    return gate


def states() -> tuple[GateState, ...]:
    """What is going on at every gate of the process, the busiest first."""
    found = [gate.state() for gate in list(_gates.values())]
    return tuple(sorted(found, key=lambda state: -sum(state.in_flight.values()) - sum(state.queued.values())))


def clear() -> None:
    """Forget every gate: for tests, in which a new server may have an old one's address."""
    with _lock:
        _gates.clear()


def _make_room(now: int) -> None:
    """Forget gates that nobody has used for long; of too many, those that were used the longest time ago."""
    idle = sorted((key for key, gate in _gates.items() if gate.idle), key=lambda key: _gates[key].used_ns)
    surplus = len(_gates) - _MOST + 1
    for number, key in enumerate(idle):
        if number < surplus or now - _gates[key].used_ns > _UNUSED_NS:
            del _gates[key]


def _after_fork() -> None:
    global _lock  # noqa: PLW0603 - a lock that another thread of the parent held would never be released here
    _lock = threading.Lock()
    for gate in _gates.values():
        gate._begin_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
