from __future__ import annotations

from datetime import date

import pytest

from fastlane.doctor._model import (
    CacheReading,
    cache_tokens as tokens_wanted,
    judge_cache as judge,
)
from fastlane.providers import Fact, ProviderFacts


def reading(cached: int | None, first_ms: int = 100) -> CacheReading:
    return CacheReading(input_tokens=2_000, cached_tokens=cached, first_ns=first_ms * 1_000_000)


@pytest.mark.parametrize(("cached", "words"), [(None, "do not say"), (0, "none of 2,000 tokens")])
def test_neither_silence_nor_zero_says_that_there_is_no_cache(cached: int | None, words: str) -> None:
    finding = judge(reading(cached), reading(cached), 1.0)

    assert words in finding.seen
    assert finding.state == "notable"
    assert finding.facts == ()


def test_a_first_request_that_was_cached_proves_nothing() -> None:
    finding = judge(reading(1_920), reading(1_920), 1.0)

    assert finding.facts == ()
    assert "although it was new" in finding.seen


def test_the_prompt_is_longer_than_the_minimum_that_is_written_down() -> None:
    minimum = Fact(value=4_096, source="https://a.example", checked=date(2026, 11, 22), evidence="documented")
    known = ProviderFacts.model_validate({"slug": "other", "cache": {"minimum_tokens": minimum}})

    assert tokens_wanted(known) > 4_096 > tokens_wanted(None) > 1_024
