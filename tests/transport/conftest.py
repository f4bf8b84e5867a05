"""Both protocols and both forms of the client, against the embedded provider."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fastlane import Connection
from tests.transport.callers import CALLERS

# Settings of its own: clients with equal ones share connections, and another test may have left one open.
PLAYS = {"HTTP/2": Connection(idle_s=299), "HTTP/1.1": Connection(idle_s=299, http2="never")}


@pytest.fixture(params=PLAYS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a body may come as late after `[DONE]` as a busy machine makes it."""
    monkeypatch.setattr("fastlane.transport.drivers.engines._DRAIN_NS", 20_000_000_000)


@pytest.fixture(params=CALLERS)
def make_caller(request: pytest.FixtureRequest) -> Any:
    """The synchronous caller, and the asynchronous one."""
    return CALLERS[request.param]


@pytest.fixture
def caller(make_caller: Any, arguments: dict[str, Any], protocol: str) -> Iterator[Any]:
    """A caller of the embedded provider that does not retry."""
    with make_caller(**arguments, max_retries=0, only_plays=[PLAYS[protocol]]) as caller:
        yield caller
