"""A call that avoids a connection gets another, and the same one rather than none."""

from __future__ import annotations

import pytest

from fastlane.transport.protocols.exchange import avoidance_wait_s
from tests.transport.fake_members import Desk, warm_desk


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


def test_a_further_connection_that_is_fuller_is_better_than_the_same() -> None:
    desk = Desk(max_connections=2)
    calls = desk.ask_often(250)
    first, second = desk.opens(200), desk.opens(200)
    assert not any(call.waits for call in calls)
    for call in [call for call in calls if call.member is first][:20]:
        desk.ends(call)
    assert first.claimed < second.claimed

    assert desk.ask(avoid=first).member is second


@pytest.mark.parametrize(("timeout_s", "most_s"), [(None, 1.0), (60.0, 1.0), (0.4, 0.2)])
def test_half_of_a_short_time_is_left_for_the_same_connection(timeout_s: float | None, most_s: float) -> None:
    assert avoidance_wait_s(timeout_s) == most_s
