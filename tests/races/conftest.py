"""Queues are kept by address."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fastlane.plays.urgency.slots import queues
from tests.attempts.scripted import Upstream
from tests.call_peer import trusted


@pytest.fixture(autouse=True)
def no_queue_is_known() -> Iterator[None]:
    queues.clear()
    yield
    queues.clear()


@pytest.fixture
def trusting_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Have the clients of this test, and of its child processes, trust the scripted servers."""
    with trusted(tmp_path) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return environment


@pytest.fixture
def upstream(trusting_clients: dict[str, str]) -> Iterator[Upstream]:
    """A server that answers as a test says."""
    with Upstream("upstream") as running:
        yield running
