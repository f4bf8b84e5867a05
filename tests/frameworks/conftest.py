"""The provider that every framework talks to, the clients that it is handed, and no access to other hosts."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

# Before a framework is imported: none of them is to call home, or to fetch what it could do without.
os.environ |= {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "DSPY_CACHEDIR": "",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OTEL_SDK_DISABLED": "true",
}
for name in [
    name for name in os.environ if name.startswith(("OPENAI_BASE", "OPENAI_API", "AZURE_OPENAI_", "FASTLANE_"))
]:
    del os.environ[name]
for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
    os.environ.pop(name, None)

from fastlane.emulator import Emulator, preset  # noqa: E402
from tests.frameworks.lanes import KINDS, STOCK, Lane  # noqa: E402


def _only_loopback(look_up: Any) -> Any:
    def looked_up(host: Any, *arguments: Any, **options: Any) -> Any:
        if host not in (None, "", "127.0.0.1", "::1", "localhost", b"127.0.0.1", b"localhost"):
            raise socket.gaierror(socket.EAI_NONAME, f"tests ask for no address but this machine's: {host!r}")
        return look_up(host, *arguments, **options)

    return looked_up


socket.getaddrinfo = _only_loopback(socket.getaddrinfo)


@pytest.fixture(scope="session")
def running_emulator() -> Iterator[Emulator]:
    """A model that calls the tools it is given, and otherwise repeats the last message."""
    with Emulator(model=dataclasses.replace(preset("instant"), manner="tools,echo"), seed=0) as emulator:
        yield emulator


@pytest.fixture
def emulator(running_emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    for name, value in running_emulator.environment.items():
        monkeypatch.setenv(name, value)
    running_emulator.clear()
    yield running_emulator
    running_emulator.set_faults()
    running_emulator.change(manner="tools,echo")


@pytest.fixture(params=KINDS)
def lane(request: pytest.FixtureRequest, emulator: Emulator) -> Iterator[Lane]:
    """openai's own clients, fastlane's as they come, and fastlane's with every play: a test has to pass with each."""
    made = Lane(request.param, emulator, options={"api_key": "sk-test", "base_url": emulator.base_url})
    yield made
    # Not `made.client`, which would make one.
    if "client" in vars(made):
        made.client.close()
    # Outside of the loop that it was used in the stock client cannot be closed.
    if made.kind != STOCK and "async_client" in vars(made):
        asyncio.run(made.async_client.close())
