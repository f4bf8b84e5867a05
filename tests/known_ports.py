"""What this process has learned of servers by their address, forgotten."""

from __future__ import annotations

from fastlane.knowledge.table import Table
from fastlane.providers import registry


def forget() -> None:
    """Forget it: after thousands of servers a new one has an old one's port."""
    Table.clear_all()
    registry._found.clear()
    registry._identified.clear()
