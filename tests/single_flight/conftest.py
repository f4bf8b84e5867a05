from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fastlane.plays.urgency.coalescing import under_way
from tests.attempts.scripted import Upstream
from tests.call_peer import trusted
from tests.single_flight.callers import KINDS, Party, party_of, until


@pytest.fixture
def upstream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Upstream]:
    with trusted(tmp_path) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
    with Upstream("upstream") as running:
        yield running


@pytest.fixture(params=KINDS)
def party(request: pytest.FixtureRequest, upstream: Upstream) -> Iterator[Party]:
    with party_of(request.param, upstream) as made:
        yield made
    until(lambda: not under_way())
