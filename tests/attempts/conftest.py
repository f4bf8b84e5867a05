"""Two upstreams, and both kinds of clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attempts.scripted import KINDS, Upstream


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Whether a client is synchronous or asynchronous."""
    found: str = request.param
    return found


@pytest.fixture
def near(trusting_peers: None) -> Iterator[Upstream]:
    """The upstream of the client."""
    with Upstream("near") as upstream:
        yield upstream


@pytest.fixture
def far(trusting_peers: None) -> Iterator[Upstream]:
    """Another upstream."""
    with Upstream("far") as upstream:
        yield upstream
