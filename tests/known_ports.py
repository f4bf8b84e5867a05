"""What this process has learned of servers by their address, forgotten."""

from __future__ import annotations

from fastlane.engine.refused_fields import refusals
from fastlane.plays.request_encoding._shares import shares
from fastlane.plays.request_encoding._verdicts import verdicts
from fastlane.plays.urgency.admission import _registry as gates
from fastlane.plays.urgency.single_flight import forget as forget_flights
from fastlane.providers import _registry


def forget() -> None:
    """Forget it: after thousands of servers a new one has an old one's port."""
    _registry._heard.clear()
    _registry._found.clear()
    verdicts.clear()
    shares._known.clear()
    shares._passed.clear()
    gates.clear()
    forget_flights()
    refusals.clear()
