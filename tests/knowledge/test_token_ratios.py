"""How many tokens providers count for each unit of a prompt."""

from __future__ import annotations

import pytest

from fastlane.knowledge.token_ratios import TokenRatios


def ratios() -> TokenRatios:
    return TokenRatios("t", least=0.005, most=20.0)


def test_ratio_follows_what_providers_count() -> None:
    known = ratios()
    assert known.of(("o", "m")) is None
    known.learn(("o", "m"), 1_000, 300)
    assert known.of(("o", "m")) == pytest.approx(0.3)
    assert known.of(("o", "other")) is None
    for _ in range(8):
        known.learn(("o", "m"), 1_000, 200)

    assert known.of(("o", "m")) == pytest.approx(0.2)


def test_ratio_is_not_moved_by_one_odd_prompt() -> None:
    known = ratios()
    for _ in range(2):
        known.learn("k", 1_000, 250)
    known.learn("k", 100, 100_000)
    known.learn("k", 0, 7)
    known.learn("k", 7, 0)

    assert known.of("k") == 0.25


def test_ratio_is_bounded_and_so_are_the_keys() -> None:
    known = ratios()
    for number in range(5_000):
        known.learn(number, 1, 10**9)

    assert len(known._known) == 1_024
    assert known.of(4_999) == 20.0
