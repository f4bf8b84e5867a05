from __future__ import annotations

import ssl
from collections.abc import Iterator

import httpx2
import openai
import pytest

from fastlane.emulator import Emulator, preset


@pytest.fixture(scope="session")
def running() -> Iterator[Emulator]:
    with Emulator(model=preset("instant"), seed=7) as emulator:
        yield emulator


@pytest.fixture
def emulator(running: Emulator) -> Emulator:
    """An emulator without delays, whose settings, log and faults are this test's alone."""
    running.reset()
    return running


@pytest.fixture(scope="session")
def trust(running: Emulator) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(running.certificate_authority))


@pytest.fixture(params=["HTTP/2", "HTTP/1.1"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def http(emulator: Emulator, trust: ssl.SSLContext, protocol: str) -> Iterator[httpx2.Client]:
    with httpx2.Client(
        base_url=emulator.base_url,
        http2=protocol == "HTTP/2",
        verify=trust,
        headers={"authorization": "Bearer secret-key"},
        timeout=40,
    ) as client:
        yield client


@pytest.fixture
def client(emulator: Emulator, trust: ssl.SSLContext, protocol: str) -> Iterator[openai.OpenAI]:
    """The stock client over each protocol."""
    http_client = httpx2.Client(http2=protocol == "HTTP/2", verify=trust, timeout=60)
    with openai.OpenAI(base_url=emulator.base_url, api_key="any", max_retries=0, http_client=http_client) as client:
        yield client
