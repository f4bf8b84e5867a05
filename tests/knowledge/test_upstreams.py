from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane.knowledge import prefixes
from fastlane.knowledge.prefixes import PrefixMemory
from fastlane.knowledge.sightings import Sighting, Upstream
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


def test_threefold_slowdown_is_learned_from_five_responses() -> None:
    known = speed()
    now = seen(known, 60)
    now = seen(known, 5, factor=3.0, start=now)
    assert known.first_token(4_000, now) > 2.0 * 0.58


def test_single_outlier_barely_changes_the_speed_estimate() -> None:
    known = speed()
    now = seen(known, 60)
    before = known.first_token(4_000, now)
    known.note(sighting(uncached_tokens=4_000.0, first_token_s=60 * before), now)
    assert known.first_token(4_000, now + S) < 2.0 * before


def test_lasting_speed_change_survives_a_silence() -> None:
    known = speed()
    now = seen(known, 60)
    now = seen(known, 2_000, factor=4.0, start=now)
    assert known.first_token(4_000, now) == pytest.approx(4 * 0.58, rel=0.25)
    assert known.first_token(4_000, now + 900 * S) > 1.0


odd = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True), st.floats(-10, 1e6))


@given(
    notes=st.lists(
        st.tuples(odd, odd, odd, odd, odd, st.one_of(st.none(), st.integers(-5, 10**9)), st.integers(-S, 10**15)),
        max_size=12,
    ),
    quantile=st.floats(0.01, 0.999),
)
def test_any_sample_keeps_speed_estimates_finite(notes: list[tuple[Any, ...]], quantile: float) -> None:
    known = speed()
    now = 0
    for size, first, late, decode, whole, tokens, at in notes:
        shown = {"uncached_tokens": size, "first_token_s": first, "late_s": late, "decode_s": decode, "whole_s": whole}
        now = max(now, at)
        known.note(sighting(**shown, output_tokens=tokens), at)
    for value in (known.first_token(5_000, now, quantile), known.late_after(5_000, quantile), known.rate(now)):
        assert 0 < value < float("inf")


# What is known of the beginnings that upstreams have read


HERE = Upstream("a-model", "https://a.example.com:443")
SECOND_NS = 10**9
LIFETIME_S = 300.0


def text(size: int, seed: int = 0) -> bytes:
    return Random(seed).randbytes(size)


def expected(memory: PrefixMemory, body: bytes, now_ns: int = 1) -> dict[Upstream, float]:
    return memory.expected(memory.blocks(body), now_ns)


def read(memory: PrefixMemory, body: bytes, upstream: Upstream, now_ns: int = 0) -> None:
    memory.note(memory.blocks(body), upstream, now_ns, LIFETIME_S)


def test_prefix_expires_unless_read_again() -> None:
    memory = PrefixMemory()
    late_ns = int(LIFETIME_S * SECOND_NS)
    read(memory, text(10_240), HERE)
    assert expected(memory, text(10_240), late_ns - 1)
    assert expected(memory, text(10_240), late_ns) == {}
    # A shorter prompt keeps the shorter beginning only.
    read(memory, text(10_240)[:4_096], HERE, late_ns - 1)
    assert expected(memory, text(10_240), late_ns) == {HERE: 4_096.0}


def test_prefix_of_a_long_prompt_is_one_megabyte_at_most() -> None:
    memory = PrefixMemory()
    body = text(3 << 20)
    read(memory, body, HERE)
    assert expected(memory, body) == {HERE: float(1 << 20)}
    assert len(memory.blocks(body)) == 512


def test_prefix_memory_is_bounded_and_keeps_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefixes, "_MAX_BLOCKS", 200)
    memory = PrefixMemory()
    for seed in range(60):
        read(memory, text(10_240, seed), HERE)
    assert expected(memory, text(10_240, 0)) == {}
    assert expected(memory, text(10_240, 59)) == {HERE: 10_240.0}
    assert len(memory._readers) <= 200


def test_block_readers_are_bounded_and_keep_the_latest() -> None:
    memory = PrefixMemory()
    for number in range(100):
        read(memory, text(4_096), Upstream(f"model-{number}", "https://a.example.com:443"))
    found = expected(memory, text(4_096))
    assert len(found) == 32
    assert Upstream("model-99", "https://a.example.com:443") in found
