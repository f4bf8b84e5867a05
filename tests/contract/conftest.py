"""Clients of the embedded provider, ours and the stock one, closed when their test is over."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
import pytest_asyncio

import fastlane
from fastlane.emulator import Emulator

API_VERSION = "2024-10-21"


@pytest.fixture
def reported() -> list[fastlane.CallRecord]:
    """What the client of a test reports."""
    return []


@pytest.fixture
def client(arguments: dict[str, Any]) -> Iterator[fastlane.OpenAI]:
    with fastlane.OpenAI(**arguments) as made:
        yield made


@pytest.fixture
def stock(arguments: dict[str, Any]) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(**arguments) as made:
        yield made


@pytest_asyncio.fixture
async def async_client(arguments: dict[str, Any]) -> AsyncIterator[fastlane.AsyncOpenAI]:
    async with fastlane.AsyncOpenAI(**arguments) as made:
        yield made


@pytest.fixture
def azure_arguments(provider: Emulator) -> dict[str, Any]:
    """What every Azure client of the provider is made with."""
    return {
        "api_key": "azure-test",
        "api_version": API_VERSION,
        "azure_endpoint": provider.base_url.removesuffix("/v1"),
    }
