"""The gates of the process: one for each origin, account and model."""

from __future__ import annotations

from fastlane.knowledge.table import Table
from fastlane.providers.facts import RateLimits

from ..pacing import Pacer
from ._gate import Gate
from ._settings import AdmissionSettings
from ._state import GateState

Key = tuple[str, bytes, str | None]

# Each has some ten kilobytes. A gate with calls is kept, however many there are.
gates: Table[Key, Gate] = Table("gates", max_entries=1_024, expires_s=1_800, in_use=lambda gate: not gate.idle)


def gate_of(
    origin: str,
    account: bytes,
    model: str | None,
    settings: AdmissionSettings,
    rate_limits: RateLimits | None = None,
) -> Gate:
    """Return the gate of the process for these, whichever client asks.

    `account` is a keyed digest of the API key, never the key. `rate_limits` are the provider's facts. Where clients
    differ in `max_concurrency` or in their limits per minute, the strictest of those given lately hold.
    """

    def make() -> Gate:
        gate = Gate(origin, model, Pacer(facts=rate_limits))
        gate.bound(settings)
        return gate

    return gates.fetch((origin, account, model), make)


def states() -> tuple[GateState, ...]:
    """Return what is going on at every gate of the process, the busiest first."""
    found = [gate.state() for _, gate in gates.items()]
    return tuple(sorted(found, key=lambda state: -sum(state.in_flight.values()) - sum(state.queued.values())))
