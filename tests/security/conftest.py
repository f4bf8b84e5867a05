"""What the tests of promises share: telemetry that is read back, and a Redis server."""

from __future__ import annotations

from tests.knowledge.redis_servers import redis_server
from tests.telemetry.conftest import listening

__all__ = ["listening", "redis_server"]
