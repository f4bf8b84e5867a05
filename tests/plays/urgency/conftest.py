from __future__ import annotations

from collections.abc import Iterator

import pytest

from fastlane import CallRecord
from fastlane.emulator import Emulator
from fastlane.providers import facts_named, registered


@pytest.fixture
def tiered(provider: Emulator) -> Iterator[Emulator]:
    """The embedded provider with every tier as usual, where OpenAI's facts hold."""
    with registered(facts_named("openai"), origins=[provider.base_url.removesuffix("/v1")]):
        yield provider


def statuses(record: CallRecord) -> list[tuple[str, int | None]]:
    """Why each attempt was made, and what came."""
    return [(attempt.kind, attempt.status_code) for attempt in record.attempts]
