"""Servers for the tests of what is shared, and quick exchanges."""

from __future__ import annotations

import pytest

from fastlane.knowledge import redis
from tests.knowledge.redis_servers import (
    guarded_redis as guarded_redis,
    redis_of_its_own as redis_of_its_own,
    redis_server as redis_server,
)


@pytest.fixture(autouse=True)
def quick_exchanges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis, "_EVERY_S", 0.02)
    monkeypatch.setattr(redis, "_FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(redis, "_LONGEST_PAUSE_S", 0.2)
