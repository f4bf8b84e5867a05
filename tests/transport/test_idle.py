"""What becomes of connections that nobody uses: what a server's ends teach, and for how long they are replaced."""

from __future__ import annotations

import pytest

from fastlane.transport.pool.pool import OriginState, PooledConnection
from tests.transport.fake_members import HERE, THERE, Desk, warm_desk

# The learned limit


def closed_after(seconds: float, **options: int) -> Desk:
    """A desk whose server has closed a connection that was idle for so long."""
    desk, member = warm_desk(**options)
    desk.passes(seconds)
    desk.closes(member)
    return desk


def idle_connection(desk: Desk) -> PooledConnection:
    call = desk.ask()
    member = desk.opens()
    desk.ends(call)
    return member


@pytest.mark.parametrize(("limit", "unused", "doubted"), [
    (60, 10, False), (60, 58.9, False), (60, 59.1, True), (60, 60.9, True),
    (5, 3.9, False), (5, 4.1, True), (5, 5.9, True),
    (1.5, 0.7, False), (1.5, 0.8, True),
])  # fmt: skip
def test_about_when_a_server_closes_idle_connections_a_call_gets_a_new_one(
    limit: float, unused: float, doubted: bool
) -> None:
    desk = closed_after(limit)
    member = idle_connection(desk)
    made = desk.made
    desk.passes(unused)
    call = desk.ask()

    assert call.waits == doubted
    assert desk.made - made == doubted
    if doubted:
        fresh = desk.opens()
        assert call.member is fresh
    else:
        assert call.member is member


def test_a_connection_that_outlives_the_learned_time_is_trusted_and_the_lesson_forgotten() -> None:
    desk = closed_after(60)
    member = idle_connection(desk)
    desk.passes(61.1)
    call = desk.ask()
    assert call.member is member
    desk.ends(call)
    desk.passes(60)

    assert desk.ask().member is member


@pytest.mark.parametrize("by_peer", [False, True])
def test_an_end_that_comes_soon_or_from_us_teaches_nothing(by_peer: bool) -> None:
    desk, member = warm_desk()
    desk.passes(0.9 if by_peer else 60)
    desk.closes(member, by_peer=by_peer)
    second = idle_connection(desk)
    desk.passes(0.9 if by_peer else 60)

    assert desk.ask().member is second


def test_a_connection_in_use_is_never_doubted() -> None:
    desk = closed_after(60)
    desk.ask()
    member = desk.opens()
    desk.passes(60)

    assert desk.ask().member is member


def test_a_doubtful_connection_makes_room_where_no_further_one_is_allowed() -> None:
    desk = closed_after(60, max_connections=1)
    doubtful = idle_connection(desk)
    desk.passes(60)
    call = desk.ask()

    assert desk.surplus == [doubtful]
    fresh = desk.opens()
    assert call.member is fresh


def test_a_doubtful_connection_is_better_than_none() -> None:
    desk = closed_after(60)
    doubtful = idle_connection(desk)
    desk.passes(60)
    call = desk.ask()
    desk.fails()

    assert call.member is doubtful


def test_one_servers_lesson_is_not_anothers() -> None:
    desk = closed_after(60)
    call = desk.ask(THERE)
    member = desk.opens()
    desk.ends(call)
    desk.passes(60)

    assert desk.ask(THERE).member is member


# Keeping warm


def kept_warm(idle_s: float = 300.0, **options: int) -> tuple[Desk, PooledConnection]:
    desk, member = warm_desk(idle_s=idle_s, **options)
    desk.pool.keep_warm(HERE)
    return desk, member


def test_an_idle_connection_that_the_server_closes_is_replaced() -> None:
    desk, member = kept_warm()
    desk.passes(60)
    desk.closes(member)
    assert desk.made == 2
    fresh = desk.opens()

    assert desk.ask().member is fresh


@pytest.mark.parametrize(("warm", "by_peer", "seconds"), [(False, True, 60), (True, False, 60), (True, True, 0.9)])
def test_others_are_not(warm: bool, by_peer: bool, seconds: float) -> None:
    desk, member = kept_warm() if warm else warm_desk()
    desk.passes(seconds)
    desk.closes(member, by_peer=by_peer)

    assert desk.made == 1
    assert desk.members == []


def test_nothing_is_replaced_for_longer_than_an_idle_connection_is_kept() -> None:
    desk, member = kept_warm(idle_s=300)
    closed = 0
    while True:
        desk.passes(45)
        desk.closes(member)
        closed += 1
        if not desk.opening:
            break
        member = desk.opens()
        assert desk.now_ns - member.idle_since_ns == closed * 45 * 1_000_000_000

    assert closed == 7
    assert desk.made == 7


def test_a_call_begins_that_time_anew() -> None:
    desk, member = kept_warm(idle_s=50)
    for _ in range(5):
        desk.passes(40)
        desk.closes(member)
        member = desk.opens()
        desk.passes(1)
        call = desk.ask()
        assert call.member is member
        desk.ends(call)

    assert desk.made == 6


def test_a_server_that_closes_what_replaces_a_connection_at_once_is_left_alone() -> None:
    desk, member = kept_warm()
    desk.passes(60)
    desk.closes(member)
    desk.closes(desk.opens())

    assert desk.made == 2
    assert desk.members == []


def test_a_replacement_that_cannot_be_opened_is_not_tried_again() -> None:
    desk, member = kept_warm()
    desk.passes(60)
    desk.closes(member)
    desk.fails()

    assert desk.made == 2
    assert desk.members == []


def test_one_of_several_connections_is_not_replaced() -> None:
    desk = Desk()
    calls = desk.ask_often(150)
    members = [desk.opens(), desk.opens()]
    for call in calls:
        desk.ends(call)
    desk.pool.keep_warm(HERE)
    desk.passes(60)
    desk.closes(members[0])
    assert desk.made == 2
    desk.closes(members[1])

    assert desk.made == 3


def test_nothing_in_use_makes_room_for_a_replacement_and_nothing_idle_either() -> None:
    desk, member = kept_warm(max_connections=2)
    call = desk.ask(THERE)
    other = desk.opens()
    desk.ends(call)
    third = desk.ask(HERE)
    assert third.member is member
    desk.ends(third)
    desk.passes(60)
    desk.closes(member)

    assert desk.made == 3
    assert desk.surplus == []
    assert other in desk.members


# Pings


@pytest.mark.parametrize(("limit", "wanted", "interval"), [
    (None, 45, 45), (None, 1, 1), (60, 45, 30), (60, 1, 1), (4, 45, 5), (4, 1, 1), (300, 45, 45),
])  # fmt: skip
def test_pings_come_twice_within_the_learned_time_and_never_more_often_than_wanted(
    limit: float | None, wanted: float, interval: float
) -> None:
    state = OriginState(HERE)
    state.idle_limit_ns = None if limit is None else int(limit * 1e9)

    assert state.ping_interval_ns(int(wanted * 1e9)) == int(interval * 1e9)


def test_pings_that_a_server_objects_to_end_for_that_server() -> None:
    desk, member = warm_desk()
    assert desk.pool.ping_interval_ns(HERE, 7) == 7
    desk.closes(member, unwelcome_pings=True)

    assert desk.pool.ping_interval_ns(HERE, 7) is None
    assert desk.pool.ping_interval_ns(THERE, 7) == 7
