"""Which connection a call gets, when a further one is opened, which call waits, and which gets an error."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fastlane.transport.pool.pool import MOST_FRUITLESS, MOST_IDLE, MOST_ORIGINS, PooledConnection
from fastlane.transport.protocols.exchange import avoidance_wait_s
from tests.transport.fake_members import FAILURE, HERE, THERE, Desk, FakeWaiter, origin_of, warm_desk


def members_of(calls: list[FakeWaiter]) -> set[PooledConnection | None]:
    return {call.member for call in calls}


# Growth


def test_burst_without_tls_opens_a_connection_for_each_call() -> None:
    desk = Desk(http2=True)
    plain = HERE._replace(scheme="http")
    burst = desk.ask_often(7, plain)
    assert desk.made == 7
    while desk.opening:
        desk.opens_http1()

    assert len(members_of(burst)) == 7


def test_http1_reuses_the_most_recent_connection() -> None:
    desk = Desk(http2=False)
    calls = desk.ask_often(3)
    for _ in calls:
        desk.opens_http1()
    for call in calls:
        desk.ends(call)
        desk.passes(1)

    assert desk.ask().member is calls[2].member
    assert desk.ask().member is calls[1].member


def test_calls_beyond_the_limit_use_the_least_busy_connection() -> None:
    desk = Desk(max_connections=2)
    calls = desk.ask_often(200)
    one, other = desk.opens(500), desk.opens(500)
    for call in calls:
        if call.member is one:
            desk.ends(call)
    assert (one.claimed, other.claimed) == (0, 100)
    desk.ask_often(200)

    assert (one.claimed, other.claimed) == (150, 150)


# Waiting


def test_waiting_origins_take_turns_at_the_connection_limit() -> None:
    desk = Desk(max_connections=1, http2=False)
    one = desk.ask(HERE)
    there = desk.ask(THERE)
    two = desk.ask(HERE)
    first = desk.opens_http1()
    assert desk.made == 1
    desk.ends(one)

    assert desk.surplus == [first]
    assert desk.made == 2
    opened = desk.opens_http1()
    assert opened is there.member
    desk.ends(there)
    assert two.waits
    opened = desk.opens_http1()
    assert opened is two.member


# Failure


# Servers that allow nothing


def test_each_waiter_gets_a_separate_error() -> None:
    desk = Desk()
    calls = desk.ask_often(3)
    desk.fails()
    errors = [call.error for call in calls]

    assert [str(error) for error in errors] == ["no server there"] * 3
    assert len(set(map(id, errors)) | {id(FAILURE)}) == 4
    assert desk.members == []


def test_fruitless_connections_fail_the_waiting_calls() -> None:
    desk = Desk()
    calls = desk.ask_often(3)
    for _ in range(MOST_FRUITLESS):
        assert all(call.waits for call in calls)
        desk.closes(desk.opens(0))

    assert [str(call.error) for call in calls] == ["5 connections in a row were closed before they could be used."] * 3
    assert desk.made == MOST_FRUITLESS
    call = desk.ask()
    opened = desk.opens()
    assert opened is call.member


def test_zero_stream_servers_stop_replacing_each_other() -> None:
    desk = Desk(max_connections=1)
    here = desk.ask(HERE)
    desk.opens(0)
    there = desk.ask(THERE)
    while desk.opening:
        desk.opens(0)
        assert desk.made <= 2 * MOST_FRUITLESS

    assert str(here.error) == "5 connections in a row were closed before they could be used."
    # No call competes with it any more.
    assert there.waits
    desk.changes(desk.members[0], capacity=1)
    assert not there.waits


# Room in the pool


def test_longest_idle_connection_of_another_origin_is_closed() -> None:
    desk = Desk(max_connections=3)
    members = []
    for number in range(3):
        call = desk.ask(origin_of(number))
        members.append(desk.opens())
        desk.ends(call)
        desk.passes(1)
    again = desk.ask(origin_of(0))
    desk.ends(again)
    desk.passes(1)
    call = desk.ask(origin_of(9))

    assert desk.surplus == [members[1]]
    assert members[1].is_closed
    opened = desk.opens()
    assert opened is call.member
    assert len(desk.members) == 3


def test_idle_connections_are_bounded_and_oldest_closed() -> None:
    desk = Desk(http2=False)
    calls = desk.ask_often(MOST_IDLE + 20)
    for _ in calls:
        desk.opens_http1()
    for call in calls:
        desk.ends(call)

    assert len(desk.members) == MOST_IDLE
    assert desk.surplus == [call.member for call in calls[:20]]


# Calls that leave


# What a pool does not know


@pytest.mark.parametrize(
    "event",
    [
        lambda desk, member: desk.pool.opened(member, desk.now_ns),
        lambda desk, member: desk.pool.failed(member, FAILURE, desk.now_ns),
        lambda desk, member: desk.changes(member),
        lambda desk, member: desk.closes(member),
        lambda desk, member: desk.pool.unclaim(member, desk.now_ns),
    ],
    ids=["opened", "failed", "changed", "closed", "unclaim"],
)
def test_connection_of_a_closed_pool_does_not_affect_the_next(
    event: Callable[[Desk, PooledConnection], None],
) -> None:
    _, old = warm_desk()
    desk = Desk(max_connections=1)
    desk.ask(THERE)
    here, there = desk.ask(HERE), desk.ask(THERE)
    event(desk, old)

    assert here.waits
    assert there.waits
    assert old not in desk.members
    assert desk.made == 1
    opened = desk.opens()
    assert opened is there.member


def test_origin_records_are_bounded() -> None:
    desk = Desk(max_connections=50)
    for number in range(2 * MOST_ORIGINS):
        call = desk.ask(origin_of(number))
        desk.opens()
        desk.ends(call)
        desk.pool.allows_pings(origin_of(-number))
        desk.pool.is_opening(origin_of(-number))

    assert len(desk.members) == 50
    assert len(desk.pool._origins) <= MOST_ORIGINS
    assert len(desk.pool._waiting) == 0


def test_origins_in_use_are_not_forgotten_however_many_they_are() -> None:
    desk = Desk(max_connections=3 * MOST_ORIGINS)
    calls = []
    for number in range(3 * MOST_ORIGINS):
        calls.append(desk.ask(origin_of(number)))
        desk.opens()

    assert len(desk.members) == 3 * MOST_ORIGINS
    for number, call in enumerate(calls):
        assert desk.ask(origin_of(number)).member is call.member


def test_twice_closed_warm_connection_is_not_replaced() -> None:
    desk, member = warm_desk()
    desk.pool.keep_warm(HERE)
    desk.passes(60)
    desk.closes(member)
    desk.closes(desk.opens())

    assert desk.made == 2
    assert desk.members == []


@pytest.mark.parametrize(("timeout_s", "most_s"), [(None, 1.0), (60.0, 1.0), (0.4, 0.2)])
def test_half_of_a_short_time_is_left_for_the_same_connection(timeout_s: float | None, most_s: float) -> None:
    assert avoidance_wait_s(timeout_s) == most_s
