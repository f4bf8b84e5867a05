"""What goes over the line: events come out as they went in, once, and anything else is left alone."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings, strategies as st

from fastlane.knowledge.stores._batches import Queued, Seen, read, written

JSON = st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(), st.lists, max_leaves=5)
EVENTS = st.dictionaries(st.text(), JSON, max_size=4)


def batch_of(events: list[dict[str, Any]], *, first: int = 0, sender: str = "a") -> bytes:
    return written(sender, first, [Queued(0, orjson.dumps(event)) for event in events], 0)


def new(seen: Seen, data: bytes) -> list[dict[str, Any]]:
    batch = read(data)
    assert batch is not None
    return [event for event, _ in seen.new(batch)]


@settings(max_examples=30)
@given(st.lists(EVENTS, max_size=40), st.integers(0, 10**15), st.integers(0, 10**9))
def test_events_come_out_as_they_went_in_with_their_ages(
    events: list[dict[str, Any]], published_ns: int, waited_ns: int
) -> None:
    queued = [Queued(published_ns, orjson.dumps(event)) for event in events]

    batch = read(written("a", 7, queued, published_ns + waited_ns))

    assert batch is not None
    assert [event for event, _ in Seen().new(batch)] == events
    assert all(age_s == pytest.approx(waited_ns / 1e9, abs=0.001) for _, age_s in Seen().new(batch))


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8)), max_size=30))
def test_whatever_is_sent_again_no_event_is_handed_on_twice(sent: list[tuple[int, int]]) -> None:
    seen = Seen()
    handed_on = [
        event["number"]
        for first, count in sent
        for event in new(seen, batch_of([{"number": first + at} for at in range(count)], first=first))
    ]

    assert handed_on == sorted(set(handed_on))


def test_senders_count_their_own_events() -> None:
    seen = Seen()

    assert new(seen, batch_of([{}], sender="a")) == [{}]
    assert new(seen, batch_of([{}], sender="b")) == [{}]
    assert new(seen, batch_of([{}], sender="a")) == []


def test_of_very_many_senders_the_one_that_was_silent_longest_is_forgotten() -> None:
    seen = Seen()
    for number in range(5_000):
        new(seen, batch_of([{}], sender=str(number)))

    assert new(seen, batch_of([{}], sender="4999")) == []
    assert new(seen, batch_of([{}], sender="0")) == [{}]


@settings(max_examples=60)
@given(st.binary(max_size=60) | EVENTS.map(orjson.dumps) | JSON.map(orjson.dumps))
def test_what_is_no_batch_is_none(data: bytes) -> None:
    assert read(data) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"version": 2},
        {"version": "1"},
        {"sender": 5},
        {"sender": "x" * 1_000},
        {"first": -1},
        {"first": 1.0},
        {"first": True},
        {"first": 2**60},
        {"events": {}},
        {"events": None},
    ],
    ids=str,
)
def test_a_batch_of_another_version_or_with_odd_parts_is_none(changed: dict[str, Any]) -> None:
    batch = orjson.loads(batch_of([{"number": 1}]))

    assert read(orjson.dumps(batch)) is not None
    assert read(orjson.dumps({**batch, **changed})) is None


@pytest.mark.parametrize("data", [None, "text", 5, b"[" * 500_000, b" " * 10_000_000], ids=lambda data: str(data)[:10])
def test_what_is_no_text_or_far_too_long_is_none(data: object) -> None:
    assert read(data) is None


def test_a_batch_that_nobody_of_us_can_have_written_is_none() -> None:
    assert read(batch_of([{"text": "x" * 100_000}])) is not None
    assert read(batch_of([{"text": "x" * 300_000}])) is None


@pytest.mark.parametrize(
    "odd", [5, [], [0.1], [0.1, 5], ["0.1", {}], [-1, {}], [None, {}], [0.1, {}, 1], [True, []]], ids=str
)
def test_of_a_batch_with_an_odd_event_the_others_are_read(odd: Any) -> None:
    data = orjson.dumps(
        {"version": 1, "sender": "a", "first": 3, "events": [[0, {"number": 3}], odd, [0, {"number": 5}]]}
    )

    assert new(Seen(), data) == [{"number": 3}, {"number": 5}]
