from __future__ import annotations

from collections.abc import Iterator

import pytest

from fastlane import CallRecord
from fastlane.emulator import Emulator, preset
from fastlane.plays.urgency.slots import queues
from fastlane.providers import facts_named, registered


@pytest.fixture(autouse=True)
def no_queue_is_known() -> Iterator[None]:
    """Queues are kept by address."""
    queues.clear()
    yield
    queues.clear()


@pytest.fixture(scope="package")
def tiered_provider() -> Iterator[Emulator]:
    """One provider with OpenAI's tiers for all tests here, in a process of its own."""
    with Emulator(model=preset("instant"), seed=0) as provider:
        yield provider


@pytest.fixture
def tiered(tiered_provider: Emulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """That, with an empty log and every tier as usual, and OpenAI's facts holding there."""
    for name, value in tiered_provider.environment.items():
        monkeypatch.setenv(name, value)
    tiered_provider.reset()
    origin = tiered_provider.base_url.removesuffix("/v1")
    with registered(facts_named("openai"), origins=[origin]):
        yield tiered_provider


def statuses(record: CallRecord) -> list[tuple[str, int | None]]:
    """Why each attempt was made, and what came."""
    return [(attempt.kind, attempt.status_code) for attempt in record.attempts]
