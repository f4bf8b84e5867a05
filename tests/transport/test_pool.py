"""Which connection a call gets, when a further one is opened, which call waits, and which gets an error."""

from __future__ import annotations

from fastlane.transport.pool.pool import MOST_FRUITLESS, MOST_IDLE, MOST_ORIGINS
from tests.transport.fake_members import HERE, THERE, Desk, origin_of


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


def test_call_that_avoids_what_is_free_holds_up_none_behind_it() -> None:
    desk = Desk(max_connections=2)
    first = desk.ask()
    taken = desk.opens(1)
    choosy, plain = desk.ask(avoid=taken.local_address), desk.ask()
    desk.ends(first)

    assert choosy.waits
    assert plain.member is taken


def test_idle_connections_are_bounded_and_oldest_closed() -> None:
    desk = Desk(http2=False)
    calls = desk.ask_often(MOST_IDLE + 20)
    for _ in calls:
        desk.opens_http1()
    for call in calls:
        desk.ends(call)

    assert len(desk.members) == MOST_IDLE
    assert desk.surplus == [call.member for call in calls[:20]]


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
    desk = Desk()
    call = desk.ask()
    member = desk.opens()
    desk.ends(call)
    desk.pool.keep_warm(HERE)
    desk.passes(60)
    desk.closes(member)
    desk.closes(desk.opens())

    assert desk.made == 2
    assert desk.members == []
