"""What the tests of promises share: telemetry that is read back, and code that runs watched in a process of its own."""

from __future__ import annotations

from tests.knowledge.redis_servers import redis_server
from tests.security.watched import watch
from tests.telemetry.conftest import listening

__all__ = ["listening", "redis_server", "watch"]
