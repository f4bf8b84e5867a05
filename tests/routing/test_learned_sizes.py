"""What answers have said of sizes and caches: the usual counts, and no more is kept than is of use."""

from __future__ import annotations

from typing import Any

import pytest

from fastlane.knowledge.prediction._sighting import Sighting
from fastlane.knowledge.prediction._upstream import Upstream
from fastlane.plays.routing._learned_sizes import LearnedSizes
from fastlane.plays.routing._responses_made import ResponsesMade

HERE = Upstream("m", "https://one.example.com:443")


def sighting(upstream: Upstream = HERE, **numbers: Any) -> Sighting:
    return Sighting(model=upstream.model, origin=upstream.origin, **numbers)


def test_a_few_odd_prompts_change_nothing() -> None:
    sizes = LearnedSizes()
    for tokens in (2_500, 2_500, 1_000, 2_500, 7_000, 2_500):
        sizes.note(sighting(body_bytes=10_000, input_tokens=tokens))
    assert sizes.tokens_per_byte(None) == 0.25


def test_prompts_that_have_become_others_are_soon_taken_for_what_they_are() -> None:
    sizes = LearnedSizes()
    for tokens in [2_500] * 1_000 + [4_000] * 8:
        sizes.note(sighting(body_bytes=10_000, input_tokens=tokens))
    assert sizes.tokens_per_byte(None) == 0.4


def test_a_cache_that_has_kept_nothing_for_long_is_found_again_once_it_does() -> None:
    sizes = LearnedSizes()
    for cached in [0] * 200 + [10_000] * 20:
        expected = float(int(10_000 * sizes.cached_share(HERE, True)))  # records have whole tokens
        assert expected > 0
        sizes.note(sighting(expected_cached_tokens=expected, cached_tokens=cached))
    assert sizes.cached_share(HERE, True) == pytest.approx(1.0, abs=0.05)


def test_the_tasks_and_upstreams_of_all_time_are_not_kept() -> None:
    sizes = LearnedSizes()
    for number in range(2_000):
        sizes.note(sighting(task=f"task {number}", body_bytes=10_000, input_tokens=2_500))
        there = Upstream("m", f"https://{number}.example.com:443")
        sizes.note(sighting(there, expected_cached_tokens=10.0, cached_tokens=5))
    assert len(sizes._ratios._known) <= 256
    assert len(sizes._shares) <= 1_024
    assert sizes.tokens_per_byte("task 1999") == 0.25
    assert sizes.tokens_per_byte("never seen") == 0.25


def test_the_latest_responses_are_known_and_the_oldest_forgotten() -> None:
    made = ResponsesMade()
    for number in range(20_000):
        made.note(f"resp_{number}", HERE)
    assert made.of("resp_19999") == made.of("resp_11999") == HERE
    assert made.of("resp_0") is None
    assert len(made._known) <= 16_384
