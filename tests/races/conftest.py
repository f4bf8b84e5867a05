from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attempts.scripted import Upstream


@pytest.fixture
def upstream(trusting_peers: None) -> Iterator[Upstream]:
    """A server that answers as a test says."""
    with Upstream("upstream") as running:
        yield running
