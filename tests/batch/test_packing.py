"""What goes into a batch, when, and how its lines are written."""

from __future__ import annotations

from hypothesis import given, strategies as st

from fastlane.batch.batches import line_of_body, mode_of
from fastlane.batch.jobs import LINE_BYTES
from fastlane.batch.requests import ENDPOINTS
from fastlane.batch.settings import WorkerSettings
from fastlane.providers import facts_named, names
from tests.batch.conftest import packed

AUTO = WorkerSettings()
NUMBERS = st.integers(1, 10**18 - 1)


@given(NUMBERS, st.sampled_from(sorted(ENDPOINTS)), st.binary())
def test_line_is_never_longer_than_the_queue_reckons(number: int, endpoint: str, body: bytes) -> None:
    assert len(line_of_body(packed(number, endpoint=endpoint), body)) <= len(body) + LINE_BYTES


def test_batch_mode_is_known_for_openai_compatible_providers() -> None:
    with_batches = {name for name in names() if mode_of(facts_named(name), AUTO) is not None}

    assert with_batches == {"openai", "azure_openai", "cerebras", "groq"}
    mode = mode_of(facts_named("openai"), AUTO)
    assert mode is not None
    assert (mode.most_requests, mode.most_bytes, mode.window_s) == (50_000, 200_000_000, 86_400.0)
    assert mode.takes("/v1/responses")
    assert not mode.takes("/v1/audio/speech")
