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
def test_missing_or_zero_cached_tokens_do_not_exclude_a_cache(cached: int | None, words: str) -> None:
    finding = judge(reading(cached), reading(cached), 1.0)

    assert words in finding.seen
    assert finding.state == "notable"
    assert finding.facts == ()


def test_cached_first_request_gives_no_cache_verdict() -> None:
    finding = judge(reading(1_920), reading(1_920), 1.0)

    assert finding.facts == ()
    assert "although it was new" in finding.seen


def test_probe_prompt_exceeds_documented_cache_minimum() -> None:
    minimum = Fact(value=4_096, source="https://a.example", checked=date(2026, 11, 22), evidence="documented")
    known = ProviderFacts.model_validate({"slug": "other", "cache": {"minimum_tokens": minimum}})

    assert tokens_wanted(known) > 4_096 > tokens_wanted(None) > 1_024
