"""A provider whose bodies' forms a test decides about."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fastlane.emulator import Emulator, preset


@pytest.fixture(scope="module", params=["HTTP/2", "HTTP/1.1"])
def running_negotiator(request: pytest.FixtureRequest) -> Iterator[Emulator]:
    with Emulator(model=preset("instant"), http2=request.param == "HTTP/2") as provider:
        yield provider


@pytest.fixture
def negotiator(running_negotiator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """A provider that takes every form, until a fault says otherwise."""
    for name, value in running_negotiator.environment.items():
        monkeypatch.setenv(name, value)
    running_negotiator.clear()
    yield running_negotiator
    running_negotiator.set_faults()
