"""What this process has learned of servers by their address, forgotten."""

from __future__ import annotations

from fastlane.knowledge.table import TABLES
from fastlane.providers import registry


def forget() -> None:
    """Forget it: after thousands of servers a new one has an old one's port."""
    for table in list(TABLES):
        table.clear()
    registry._found.clear()
    registry._identified.clear()
