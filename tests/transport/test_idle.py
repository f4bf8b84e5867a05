"""What becomes of connections that nobody uses: what a server's ends teach, and for how long they are replaced."""

from __future__ import annotations

import pytest

from fastlane.transport.pool.pool import PooledConnection
from tests.transport.fake_members import HERE, THERE, Desk, warm_desk

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


def test_pings_that_a_server_objects_to_end_for_that_server() -> None:
    desk, member = warm_desk()
    assert desk.pool.allows_pings(HERE)
    desk.closes(member, unwelcome_pings=True)

    assert not desk.pool.allows_pings(HERE)
    assert desk.pool.allows_pings(THERE)
