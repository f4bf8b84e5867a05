"""A key is spread when its rate needs it, over as few shards as that, and sessions stay where they are."""

from __future__ import annotations

import random
import threading
from collections import Counter

import pytest
from hypothesis import given, strategies as st

from fastlane import ConfigurationError
from fastlane.plays.prompt_cache.prefixes._governor import Governor, Shard, jump

SECOND = 1_000_000_000
MINUTE = 60 * SECOND


def called(governor: Governor, *, per_minute: int, minutes: float, start_ns: int = 0, key: str = "k") -> list[Shard]:
    """Evenly spaced calls, each of a session of its own."""
    return [
        governor.shard(key, f"session {number}", start_ns + number * MINUTE // per_minute)
        for number in range(round(per_minute * minutes))
    ]


def test_below_the_limit_the_family_has_its_own_key_and_no_other() -> None:
    assert set(called(Governor(15), per_minute=15, minutes=10)) == {Shard("k", 1)}


def test_above_the_limit_no_key_is_called_more_often_than_the_limit() -> None:
    shards = called(Governor(15), per_minute=180, minutes=4)
    last_minute = Counter(shard.key for shard in shards[-180:])

    assert shards[-1].shards in (24, 25)
    assert max(last_minute.values()) <= 15


def test_without_a_limit_there_is_one_shard_at_any_rate() -> None:
    assert set(called(Governor(), per_minute=6_000, minutes=0.1)) == {Shard("k", 1)}


def test_a_call_may_have_a_limit_of_its_own() -> None:
    governor = Governor(15)
    for number in range(20):
        shard = governor.shard("k", number, 0, limit_per_minute=100)

    assert shard.shards == 1


def test_one_of_four_replicas_reckons_with_the_calls_of_the_others() -> None:
    alone, shared = Governor(15), Governor(15, replicas=4)

    assert called(alone, per_minute=10, minutes=3)[-1].shards == 1
    assert called(shared, per_minute=10, minutes=3)[-1].shards == 6


def test_replicas_send_a_session_to_the_same_key() -> None:
    one, other = Governor(15, replicas=2), Governor(15, replicas=2)
    for governor in (one, other):
        called(governor, per_minute=60, minutes=3)

    for session in range(50):
        assert one.shard("k", session, 3 * MINUTE).key == other.shard("k", session, 3 * MINUTE).key


def test_a_burst_is_met_within_seconds() -> None:
    shards = called(Governor(15), per_minute=180, minutes=0.2)

    assert shards[14].shards == 1
    assert shards[-1].shards >= 20


def test_a_session_stays_where_it_is_when_shards_are_added() -> None:
    governor = Governor(15)
    first = governor.shard("k", "mine", 0)
    called(governor, per_minute=14, minutes=1)
    busy = called(governor, per_minute=300, minutes=1, start_ns=2 * MINUTE)
    again = governor.shard("k", "mine", 4 * MINUTE)

    assert first.key == again.key == "k"
    assert again.shards == busy[-1].shards > 30


def test_of_two_busy_sessions_on_one_shard_one_moves_and_both_stay_then() -> None:
    governor = Governor(15)
    keys: dict[int, list[str]] = {1: [], 2: []}
    for number in range(100):
        for session, seen in keys.items():
            seen.append(governor.shard("k", session, number * 6 * SECOND + session).key)

    assert {keys[1][0], keys[2][0]} == {"k"}
    assert len({*keys[1][20:], *keys[2][20:]}) == 2
    assert all(len(set(seen[20:])) == 1 for seen in keys.values())


def test_a_session_that_calls_more_often_than_the_limit_stays_where_it_is() -> None:
    governor = Governor(15)

    assert {governor.shard("k", "mine", number * SECOND).key for number in range(300)} == {"k"}


@pytest.mark.parametrize("seed", range(20))
def test_sessions_that_call_at_a_constant_rate_come_to_rest(seed: int) -> None:
    drawn, governor = random.Random(seed), Governor(15)
    rates = [drawn.randint(1, 40) for _ in range(drawn.randint(2, 8))]
    calls = sorted((turn * MINUTE // rate, who) for who, rate in enumerate(rates) for turn in range(rate * 8))
    taken = [(now, who, governor.shard("k", who, now).key) for now, who in calls]

    assert len({(who, key) for now, who, key in taken if now > 6 * MINUTE}) == len(rates)


def test_sessions_of_long_ago_are_forgotten() -> None:
    governor = Governor()
    for number in range(20_000):
        governor.shard("k", number, 0)

    assert len(governor._places) == 16_384


def test_shards_are_kept_for_five_minutes_and_given_up_after_ten() -> None:
    governor = Governor(15)
    before = called(governor, per_minute=60, minutes=2)[-1].shards
    kept = called(governor, per_minute=2, minutes=5, start_ns=2 * MINUTE)[-1].shards
    given_up = called(governor, per_minute=2, minutes=6, start_ns=7 * MINUTE)[-1]

    assert before == kept == 8
    assert given_up == Shard("k", 1)


def test_a_rate_around_the_limit_does_not_move_sessions_to_and_fro() -> None:
    governor = Governor(15)
    seen = []
    for minute in range(0, 10, 2):
        seen += called(governor, per_minute=20, minutes=1, start_ns=minute * MINUTE)
        seen += called(governor, per_minute=5, minutes=1, start_ns=(minute + 1) * MINUTE)
    counts = [shard.shards for shard in seen]

    assert counts == sorted(counts)


def test_a_key_that_was_silent_for_long_begins_with_one_shard() -> None:
    governor = Governor(15)
    called(governor, per_minute=60, minutes=2)

    assert governor.shard("k", 0, 60 * MINUTE) == Shard("k", 1)


def test_keys_are_counted_apart_and_the_least_used_are_forgotten() -> None:
    governor = Governor(15)
    called(governor, per_minute=60, minutes=2)

    assert governor.shard("other", 0, 2 * MINUTE).shards == 1
    for number in range(1_024):
        governor.shard(f"key {number}", 0, 2 * MINUTE)
    assert len(governor._families) == 1_024
    assert governor.shard("k", 0, 2 * MINUTE).shards == 1


def test_calls_of_several_threads_are_all_counted() -> None:
    governor = Governor(1_000)

    def work() -> None:
        for number in range(1_000):
            governor.shard("k", number, number * SECOND // 1_000)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert governor._families["k"]._window.calls(SECOND) == 4_000


@pytest.mark.parametrize("limit", [0, -1, float("nan"), "15"])
def test_a_limit_that_cannot_be_is_refused(limit: float) -> None:
    with pytest.raises(ConfigurationError, match="limit_per_minute must be above 0"):
        Governor(limit)


@pytest.mark.parametrize("replicas", [0, 1.5])
def test_a_number_of_replicas_that_cannot_be_is_refused(replicas: int) -> None:
    with pytest.raises(ConfigurationError, match="replicas must be 1 or more"):
        Governor(15, replicas)


NUMBERS = st.integers(0, 2**64 - 1)


@given(NUMBERS, st.integers(1, 4_096))
def test_a_jump_lands_on_a_shard(number: int, shards: int) -> None:
    assert 0 <= jump(number, shards) < shards


@given(NUMBERS, st.integers(1, 1_000))
def test_one_more_shard_moves_a_session_to_the_new_one_or_not_at_all(number: int, shards: int) -> None:
    assert jump(number, shards + 1) in (jump(number, shards), shards)


@given(st.lists(st.integers(0, 30 * SECOND), min_size=1, max_size=200), st.integers(1, 40))
def test_the_count_is_that_of_the_last_minute(gaps: list[int], limit: int) -> None:
    governor = Governor(limit)
    now, times = 0, []
    for gap in gaps:
        now += gap
        times.append(now)
        governor.shard("k", 0, now)
    counted = governor._families["k"]._window.calls(now)

    assert sum(now - time < 55 * SECOND for time in times) <= counted
    assert counted <= sum(now - time <= MINUTE for time in times)
