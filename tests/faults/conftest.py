"""Both protocols and both forms of the client, against the embedded provider."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from fastlane import Connection
from tests.transport.callers import CALLERS

PLAYS = {"HTTP/2": Connection(), "HTTP/1.1": Connection(http2="never")}


@pytest.fixture(params=PLAYS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=CALLERS)
def make_caller(request: pytest.FixtureRequest) -> Any:
    """The synchronous caller, and the asynchronous one."""
    return CALLERS[request.param]


@pytest.fixture
def caller(make_caller: Any, arguments: dict[str, Any], protocol: str) -> Iterator[Any]:
    """A caller of the embedded provider that retries twice, at once."""
    with make_caller(**arguments, max_retries=2, timeout=40, only_plays=[PLAYS[protocol]]) as caller:
        yield caller


@pytest.fixture
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stock client tries again without waiting in between."""
    monkeypatch.setattr(openai._base_client.BaseClient, "_calculate_retry_timeout", lambda *args, **kwargs: 0.01)
