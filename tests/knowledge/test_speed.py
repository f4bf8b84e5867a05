from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from fastlane.knowledge.sightings import Sighting
from fastlane.knowledge.speed import Speed

S = 1_000_000_000


def sighting(**shown: Any) -> Sighting:
    return Sighting(model="m", origin="https://host.example:443", **shown)


def speed() -> Speed:
    return Speed(first_token_s=((1_000, 0.52), (10_000, 0.7)), tokens_per_s=100.0)


def seen(known: Speed, count: int, *, factor: float = 1.0, start: int = 0, seed: int = 0) -> int:
    """Answers of an upstream that is `factor` times as slow as the catalog says, one a second; the last one's time."""
    random = Random(seed)
    for number in range(count):
        size = random.choice((1_000.0, 4_000.0, 20_000.0))
        first = factor * (0.5 + 2e-5 * size) * random.lognormvariate(0, 0.2)
        known.note(sighting(uncached_tokens=size, first_token_s=first), start + number * S)
    return start + count * S


def test_what_the_catalog_says_counts_until_something_was_seen() -> None:
    known = speed()
    assert known.first.count == 0
    assert known.first_token(1_000, 0) == pytest.approx(0.52, rel=0.02)
    assert known.first_token(10_000, 0) == pytest.approx(0.7, rel=0.02)
    assert known.first_token(40_000, 0) == pytest.approx(1.3, rel=0.05)
    assert known.rate(0) == pytest.approx(100.0)


def test_an_upstream_three_times_as_slow_is_known_after_five_answers() -> None:
    known = speed()
    now = seen(known, 60)
    now = seen(known, 5, factor=3.0, start=now)
    assert known.first_token(4_000, now) > 2.0 * 0.58


def test_one_answer_that_is_far_too_late_moves_little() -> None:
    known = speed()
    now = seen(known, 60)
    before = known.first_token(4_000, now)
    known.note(sighting(uncached_tokens=4_000.0, first_token_s=60 * before), now)
    assert known.first_token(4_000, now + S) < 2.0 * before


def test_a_change_that_has_lasted_is_remembered_through_a_silence() -> None:
    known = speed()
    now = seen(known, 60)
    now = seen(known, 2_000, factor=4.0, start=now)
    assert known.first_token(4_000, now) == pytest.approx(4 * 0.58, rel=0.25)
    assert known.first_token(4_000, now + 900 * S) > 1.0


def test_late_after_is_a_quantile_of_the_body() -> None:
    known = speed()
    now = seen(known, 128)
    median = known.first_token(4_000, now)
    assert 1.2 * median < known.late_after(4_000, 0.95) < 1.8 * median
    for _ in range(40):
        known.note(sighting(uncached_tokens=4_000.0, first_token_s=60.0), now)
    assert known.late_after(4_000, 0.95) < 3.0 * median


odd = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True), st.floats(-10, 1e6))


@settings(max_examples=60, deadline=None)
@given(
    notes=st.lists(
        st.tuples(odd, odd, odd, odd, odd, st.one_of(st.none(), st.integers(-5, 10**9)), st.integers(-S, 10**15)),
        max_size=12,
    ),
    quantile=st.floats(0.01, 0.999),
)
def test_no_sighting_however_odd_breaks_it(notes: list[tuple[Any, ...]], quantile: float) -> None:
    known = speed()
    now = 0
    for size, first, late, decode, whole, tokens, at in notes:
        shown = {"uncached_tokens": size, "first_token_s": first, "late_s": late, "decode_s": decode, "whole_s": whole}
        now = max(now, at)
        known.note(sighting(**shown, output_tokens=tokens), at)
    for value in (known.first_token(5_000, now, quantile), known.late_after(5_000, quantile), known.rate(now)):
        assert 0 < value < float("inf")


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1_000), low=st.floats(0.05, 0.5), high=st.floats(0.5, 0.99))
def test_more_tokens_and_higher_quantiles_never_take_less(seed: int, low: float, high: float) -> None:
    known = speed()
    now = seen(known, 20, factor=Random(seed).uniform(0.3, 3), seed=seed)
    assert known.first_token(1_000, now, low) <= known.first_token(1_000, now, high)
    assert known.first_token(1_000, now, high) <= known.first_token(50_000, now, high)
