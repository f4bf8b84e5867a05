"""The server that Celery's example needs, and a provider that is left as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fastlane.emulator import Emulator
from tests.knowledge.redis_servers import redis_server as redis_server


@pytest.fixture
def provider(provider: Emulator) -> Iterator[Emulator]:
    yield provider
    provider.reset()
