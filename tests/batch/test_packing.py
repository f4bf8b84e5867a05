"""What goes into a batch, when, and how its lines are written."""

from __future__ import annotations

import json

from hypothesis import given, strategies as st

from fastlane.batch._bodies import ENDPOINTS
from fastlane.batch._jobs import LINE_BYTES, Group, custom_id_of
from fastlane.batch._packing import BatchMode, Room, goes_at, line, mode_of
from fastlane.providers import facts_named, names

NUMBERS = st.integers(1, 10**18 - 1)
COUNTS = st.integers(1, 10**9)
ROOMS = st.builds(Room, COUNTS, COUNTS)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(NUMBERS, st.sampled_from(sorted(ENDPOINTS)), st.dictionaries(st.text(), JSON, max_size=4))
def test_a_line_is_one_line_that_says_whose_body_it_has_and_where_it_goes(
    number: int, endpoint: str, body: dict[str, object]
) -> None:
    written = line(custom_id_of(number), endpoint, json.dumps(body).encode())

    assert written.count(b"\n") == 1
    assert json.loads(written) == {
        "custom_id": custom_id_of(number),
        "method": "POST",
        "url": endpoint,
        "body": body,
    }


@given(NUMBERS, st.sampled_from(sorted(ENDPOINTS)), st.binary())
def test_a_line_is_never_longer_than_the_queue_reckons(number: int, endpoint: str, body: bytes) -> None:
    assert len(line(custom_id_of(number), endpoint, body)) <= len(body) + LINE_BYTES


@given(ROOMS, COUNTS, COUNTS, st.floats(0, 1e9), st.floats(0, 1e6))
def test_jobs_go_at_once_where_they_fill_a_batch_and_else_after_a_while(
    room: Room, requests: int, size: int, since: float, linger_s: float
) -> None:
    group = Group(endpoint="/v1/x", model="m", requests=requests, bytes=size, oldest_at=since)
    full = requests >= room.requests or size >= room.bytes

    assert goes_at(group, room, linger_s) == (since if full else since + linger_s)


@given(ROOMS)
def test_a_batch_that_was_too_much_is_made_smaller_until_it_is_one_job(room: Room) -> None:
    smaller = room
    for _ in range(64):
        assert smaller.halved().requests < smaller.requests or smaller.requests == 1
        smaller = smaller.halved()

    assert smaller == Room(1, 1)


@given(ROOMS, ROOMS)
def test_room_grows_again_and_never_beyond_the_provider_s(room: Room, most: Room) -> None:
    grown = room
    for _ in range(64):
        grown = grown.doubled(most)

    assert grown == most


def test_a_provider_has_a_batch_mode_where_its_facts_say_that_it_has_openai_s() -> None:
    with_batches = {name for name in names() if mode_of(facts_named(name)) is not None}

    assert with_batches == {"openai", "azure_openai", "cerebras", "groq"}
    mode = mode_of(facts_named("openai"))
    assert mode is not None
    assert (mode.most_requests, mode.most_bytes, mode.window_s) == (50_000, 200_000_000, 86_400.0)
    assert mode.takes("/v1/responses")
    assert not mode.takes("/v1/audio/speech")


def test_who_asks_for_batches_gets_them_where_no_facts_are_known() -> None:
    assert mode_of(facts_named("unknown"), forced=True) == BatchMode()


@given(NUMBERS)
def test_no_provider_finds_a_name_of_ours_too_long(number: int) -> None:
    bounds = [fact.value for name in names() if (fact := facts_named(name).batch.custom_id_letters) is not None]

    assert len(bounds) >= 2
    assert all(len(custom_id_of(number)) <= bound for bound in bounds if bound is not None)
