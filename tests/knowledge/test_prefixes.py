"""What is known of the beginnings that upstreams have read."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from fastlane.knowledge import prefixes
from fastlane.knowledge.prefixes import PrefixMemory
from fastlane.knowledge.sightings import Upstream

HERE = Upstream("a-model", "https://a.example.com:443")
THERE = Upstream("b-model", "https://b.example.com:443")
SECOND_NS = 10**9
LIFETIME_S = 300.0


def text(size: int, seed: int = 0) -> bytes:
    return Random(seed).randbytes(size)


def expected(memory: PrefixMemory, body: bytes, now_ns: int = 1) -> dict[Upstream, float]:
    return memory.expected(memory.blocks(body), now_ns)


def read(memory: PrefixMemory, body: bytes, upstream: Upstream, now_ns: int = 0) -> None:
    memory.note(memory.blocks(body), upstream, now_ns, LIFETIME_S)


def test_what_was_read_is_forgotten_when_its_time_is_over_and_kept_when_it_is_read_again() -> None:
    memory = PrefixMemory()
    late_ns = int(LIFETIME_S * SECOND_NS)
    read(memory, text(10_240), HERE)
    assert expected(memory, text(10_240), late_ns - 1)
    assert expected(memory, text(10_240), late_ns) == {}
    # A shorter prompt keeps the shorter beginning only.
    read(memory, text(10_240)[:4_096], HERE, late_ns - 1)
    assert expected(memory, text(10_240), late_ns) == {HERE: 4_096.0}


def test_a_very_long_life_has_an_end_that_can_be_counted() -> None:
    memory = PrefixMemory()
    memory.note(memory.blocks(text(4_096)), HERE, 0, float("inf"))
    assert expected(memory, text(4_096), 10**17) == {HERE: 4_096.0}


def test_of_the_longest_prompts_the_first_megabyte_counts() -> None:
    memory = PrefixMemory()
    body = text(3 << 20)
    read(memory, body, HERE)
    assert expected(memory, body) == {HERE: float(1 << 20)}
    assert len(memory.blocks(body)) == 512


def test_it_grows_no_further_than_it_may_and_keeps_what_came_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefixes, "_MAX_BLOCKS", 200)
    memory = PrefixMemory()
    for seed in range(60):
        read(memory, text(10_240, seed), HERE)
    assert expected(memory, text(10_240, 0)) == {}
    assert expected(memory, text(10_240, 59)) == {HERE: 10_240.0}
    assert len(memory._readers) <= 200


def test_one_block_has_a_bounded_number_of_readers_and_the_latest_are_among_them() -> None:
    memory = PrefixMemory()
    for number in range(100):
        read(memory, text(4_096), Upstream(f"model-{number}", "https://a.example.com:443"))
    found = expected(memory, text(4_096))
    assert len(found) == 32
    assert Upstream("model-99", "https://a.example.com:443") in found


@settings(max_examples=50, deadline=None)
@given(
    prompts=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 40_000), st.integers(0, 400), st.sampled_from((HERE, THERE))),
        max_size=8,
    ),
    asked=st.integers(0, 3),
    shared=st.integers(0, 40_000),
    more=st.integers(0, 40_000),
    at_s=st.integers(0, 800),
)
def test_sharing_more_never_means_that_less_is_cached(
    prompts: list[tuple[int, int, int, Upstream]], asked: int, shared: int, more: int, at_s: int
) -> None:
    memory = PrefixMemory()
    for seed, size, read_s, upstream in prompts:
        read(memory, text(40_000, seed)[:size], upstream, read_s * SECOND_NS)
    whole, other = text(40_000, asked), text(40_000, 99)
    less = expected(memory, whole[:shared] + other[shared:], at_s * SECOND_NS)
    longer = min(40_000, shared + more)
    greater = expected(memory, whole[:longer] + other[longer:], at_s * SECOND_NS)
    assert all(greater.get(upstream, 0.0) >= size for upstream, size in less.items())
    assert all(size <= longer for size in greater.values())
