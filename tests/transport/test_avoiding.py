"""A call that avoids a connection gets another, and the same one rather than none."""

from __future__ import annotations

import pytest

from fastlane.transport.protocols.exchange import avoidance_wait_s
from tests.transport.fake_members import HERE, Desk, http_of, warm_desk


def test_a_call_takes_the_other_connection_that_is_open() -> None:
    desk = Desk()
    calls = desk.ask_often(101)
    first, second = desk.opens(200), desk.opens(200)
    assert calls[100].member is second
    desk.ends(calls[0])

    assert desk.ask(avoid=first).member is second
    assert desk.ask(avoid=second).member is first
    assert desk.made == 2


def test_where_only_the_one_is_open_a_further_one_is_opened_for_it() -> None:
    desk, only = warm_desk()
    call = desk.ask(avoid=only)

    assert call.waits
    assert desk.opens() is call.member
    assert call.member is not only
    assert desk.made == 2


def test_several_calls_that_avoid_a_connection_wait_for_one_further_one_together() -> None:
    desk, only = warm_desk()
    calls = [desk.ask(avoid=only) for _ in range(5)]
    other = desk.opens()

    assert [call.member for call in calls] == [other] * 5
    assert desk.made == 2


def test_those_who_avoid_nothing_are_not_held_up() -> None:
    desk, only = warm_desk()
    choosy = desk.ask(avoid=only)

    assert desk.ask().member is only
    assert choosy.waits


def test_two_that_avoid_different_connections_do_not_wait_for_each_other() -> None:
    desk = Desk()
    desk.ask_often(101)
    first, second = desk.opens(100), desk.opens(1)
    avoids_second = desk.ask(avoid=second)
    avoids_first = desk.ask(avoid=first)
    http_of(second).capacity = 100
    desk.changes(second)

    assert avoids_first.member is second
    assert avoids_second.waits


def test_where_no_further_one_may_be_opened_it_is_the_same() -> None:
    desk, only = warm_desk(max_connections=1)
    running = desk.ask()
    assert running.member is only

    assert desk.ask(avoid=only).member is only
    assert desk.made == 1


def test_an_idle_connection_that_is_avoided_makes_room_for_another() -> None:
    desk, only = warm_desk(max_connections=1)
    call = desk.ask(avoid=only)

    assert desk.surplus == [only]
    assert desk.opens() is call.member


def test_where_the_further_one_cannot_be_opened_it_is_the_same() -> None:
    desk, only = warm_desk()
    desk.ask()
    call = desk.ask(avoid=only)
    desk.fails()

    assert call.member is only


def test_shortly_after_one_could_not_be_opened_it_is_the_same_at_once() -> None:
    desk, only = warm_desk()
    desk.ask()
    desk.ask(avoid=only)
    desk.fails()

    assert desk.ask(avoid=only).member is only
    assert desk.made == 2
    desk.passes(1.1)
    assert desk.ask(avoid=only).waits
    assert desk.made == 3


def test_one_that_avoids_nothing_any_more_gets_the_same() -> None:
    desk, only = warm_desk()
    call = desk.ask(avoid=only)
    call.avoid = None
    desk.pool.serve(desk.now_ns)

    assert call.member is only


def test_a_further_connection_that_is_fuller_is_better_than_the_same() -> None:
    desk = Desk(max_connections=2)
    calls = desk.ask_often(250)
    first, second = desk.opens(200), desk.opens(200)
    assert not any(call.waits for call in calls)
    for call in [call for call in calls if call.member is first][:20]:
        desk.ends(call)
    assert first.claimed < second.claimed

    assert desk.ask(avoid=first).member is second


def test_a_connection_that_nobody_waits_for_any_more_is_not_waited_for_by_the_next_call() -> None:
    desk = Desk()
    first, second = desk.ask_often(2)
    desk.pool.withdraw(HERE, first)
    assert desk.pool.take_unwanted(HERE) == []
    desk.pool.withdraw(HERE, second)
    unwanted = desk.pool.take_unwanted(HERE)

    assert unwanted == desk.opening
    assert desk.members == []
    desk.opening.clear()
    call = desk.ask()
    assert desk.made == 2
    assert desk.opens() is call.member


@pytest.mark.parametrize(("timeout_s", "most_s"), [(None, 1.0), (60.0, 1.0), (0.4, 0.2)])
def test_half_of_a_short_time_is_left_for_the_same_connection(timeout_s: float | None, most_s: float) -> None:
    assert avoidance_wait_s(timeout_s) == most_s


@pytest.mark.parametrize("idle", [True, False])
def test_over_http1_it_is_another_connection(idle: bool) -> None:
    desk = Desk()
    calls = desk.ask_often(2)
    first = desk.opens_http1()
    second = desk.opens_http1()
    assert {call.member for call in calls} == {first, second}
    if idle:
        desk.ends(next(call for call in calls if call.member is second))
    call = desk.ask(avoid=first)

    if idle:
        assert call.member is second
    else:
        assert desk.opens_http1() is call.member


@pytest.mark.parametrize("avoided_is_free_first", [True, False])
def test_over_http1_where_no_further_one_may_be_opened_it_waits_for_the_first_place(
    avoided_is_free_first: bool,
) -> None:
    desk = Desk(max_connections=2)
    calls = desk.ask_often(2)
    first, second = desk.opens_http1(), desk.opens_http1()
    call = desk.ask(avoid=first)
    assert call.waits
    desk.ends(next(each for each in calls if (each.member is first) is avoided_is_free_first))

    if avoided_is_free_first:
        assert desk.surplus == [first]  # its place is another's
        assert desk.opens_http1() is call.member
    else:
        assert call.member is second
