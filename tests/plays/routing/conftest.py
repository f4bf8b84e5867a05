"""Two providers: that of the client, and another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attempts.scripted import Upstream, two_upstreams
from tests.call_peer import CallPeer

VARIABLE = "SECOND_KEY"


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Upstream, Upstream]]:
    with two_upstreams() as both:
        yield both


@pytest.fixture(scope="module")
def running_second() -> Iterator[CallPeer]:
    with CallPeer("HTTP/2") as peer:
        yield peer


@pytest.fixture
def first(one_peer: CallPeer) -> CallPeer:
    """The provider of the client, over HTTP/1.1."""
    return one_peer


@pytest.fixture
def second(running_second: CallPeer, trusting_peers: None, monkeypatch: pytest.MonkeyPatch) -> CallPeer:
    """Another provider, over HTTP/2, whose key is in the environment."""
    running_second.clear()
    monkeypatch.setenv(VARIABLE, "sk-second")
    return running_second
