"""Who is sent next, driven without threads and with a clock of the test's own."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fastlane.plays.urgency.admission import AdmissionSettings
from fastlane.plays.urgency.admission._core import Core
from fastlane.plays.urgency.admission._guard import guard_places
from fastlane.plays.urgency.admission._rates import Rate
from fastlane.plays.urgency.admission.slot import Slot
from tests.admission.pacers import EvenPacer

S = 1_000_000_000
PLAIN = AdmissionSettings(max_concurrency=4)


def core_with(settings: AdmissionSettings, pacer: EvenPacer | None = None) -> Core:
    core = Core(pacer)
    core.limit.most = settings.max_concurrency
    return core


def come(core: Core, level: int, now_ns: int = 0, settings: AdmissionSettings = PLAIN) -> Slot:
    slot = Slot(level, settings, 10)
    if not core.enter(slot, now_ns):
        core.join(slot, now_ns)
    return slot


def all_sent(core: Core, now_ns: int = 0) -> list[Slot]:
    sent = []
    while (waiter := core.next(now_ns)) is not None:
        sent.append(waiter)
    return sent


def taken(core: Core, level: int, count: int, now_ns: int = 0, settings: AdmissionSettings = PLAIN) -> list[Slot]:
    slots = [come(core, level, now_ns, settings) for _ in range(count)]
    assert all(slot.is_granted for slot in slots)
    return slots


def test_an_interactive_call_goes_before_all_others_that_wait() -> None:
    core = core_with(PLAIN)
    tickets = taken(core, 0, 4)
    offline, background, interactive = (come(core, level) for level in (2, 1, 0))
    order: list[Slot] = []
    for ticket in tickets:
        core.leave(ticket, 1, None)
        order += all_sent(core, 1)
    assert order == [interactive, background, offline]


def test_calls_of_one_level_go_in_the_order_in_which_they_came() -> None:
    core = core_with(replace(PLAIN, max_concurrency=1))
    (ticket,) = taken(core, 0, 1)
    waiting = [come(core, 0, number) for number in range(20)]
    order: list[Slot] = []
    while len(order) < 20:
        core.leave(ticket, 100, None)
        (sent,) = all_sent(core, 100)
        order.append(sent)
        ticket = sent
    assert order == waiting


@pytest.mark.parametrize("level", [0, 1, 2])
def test_nobody_who_comes_goes_past_one_of_its_own_level_that_waits(level: int) -> None:
    core = core_with(replace(PLAIN, max_concurrency=1))
    (ticket,) = taken(core, 0, 1)
    first = come(core, level)
    core.leave(ticket, 1, None)
    assert not core.enter(Slot(level, PLAIN, 10), 1)
    assert all_sent(core, 1) == [first]


def test_a_storm_of_cancellations_behind_one_that_stays_does_not_fill_the_memory() -> None:
    core = core_with(replace(PLAIN, max_concurrency=1))
    taken(core, 0, 1)
    come(core, 1)
    for number in range(1_000):
        gone = come(core, 1, number)
        core.withdraw(gone)
    assert sum(len(line) for line in core._lines) < 200
    assert core.queued == [0, 1, 0]
    assert core.oldest_ns() == 0


def test_the_last_place_is_kept_for_an_interactive_call() -> None:
    core = core_with(PLAIN)
    taken(core, 1, 3)
    assert not come(core, 1).is_granted
    assert come(core, 0).is_granted


@pytest.mark.parametrize("level", [1, 2])
def test_where_there_is_one_place_everybody_may_have_it(level: int) -> None:
    core = core_with(replace(PLAIN, max_concurrency=1))
    assert come(core, level).is_granted


def test_no_place_is_kept_where_none_is_reserved() -> None:
    core = core_with(PLAIN)
    taken(core, 1, 4, settings=replace(PLAIN, reserved=0))


def test_a_background_call_gets_the_kept_place_after_its_time() -> None:
    core = core_with(PLAIN)
    taken(core, 1, 3)
    waiter = come(core, 1, 0)
    assert all_sent(core, 0) == []
    assert core.wake_ns == 30 * S
    assert all_sent(core, 30 * S - 1) == []
    assert all_sent(core, 30 * S) == [waiter]


def test_background_calls_are_not_starved_by_interactive_ones_that_never_end() -> None:
    core = core_with(PLAIN)
    tickets = taken(core, 0, 4)
    background = [come(core, 1, number) for number in range(3)]
    sent: list[Slot] = []
    now_ns = 31 * S
    for number in range(40):
        come(core, 0, now_ns + number)
        core.leave(tickets.pop(0), now_ns + number, None)
        went = all_sent(core, now_ns + number)
        sent += went
        tickets += went
    places = [number for number, waiter in enumerate(sent) if waiter in background]
    assert len(places) == 3
    # Of eight places they got one each: interactive calls had all others.
    assert [later - earlier for earlier, later in pairwise(places)] == [8, 8]


def test_one_that_has_waited_long_goes_not_before_an_interactive_one_of_its_age() -> None:
    core = core_with(replace(PLAIN, max_concurrency=1))
    (ticket,) = taken(core, 0, 1)
    interactive, background = come(core, 0, 0), come(core, 1, 1)
    core.leave(ticket, 100 * S, None)
    assert all_sent(core, 100 * S) == [interactive]
    assert not background.is_granted


def test_an_old_background_call_that_waits_for_the_pace_holds_no_interactive_one_back() -> None:
    pacer = EvenPacer(0.0, background_from_ns=500 * S)
    core = core_with(PLAIN, pacer)
    waiter = come(core, 1, 0)
    assert all_sent(core, 100 * S) == []
    assert come(core, 0, 100 * S).is_granted
    assert all_sent(core, 500 * S) == [waiter]


def test_a_call_that_waits_for_the_pace_is_asked_for_at_that_moment_and_not_before() -> None:
    core = core_with(PLAIN, EvenPacer(2.0))
    assert come(core, 0, 0).is_granted
    first, second = come(core, 0, 0), come(core, 0, 0)
    assert all_sent(core, 0) == []
    assert core.wake_ns == 2 * S
    assert all_sent(core, 2 * S) == [first]
    assert core.wake_ns == 4 * S
    assert first.waited_for == "pace"
    assert all_sent(core, 4 * S) == [second]


def test_a_place_that_nobody_took_costs_none_of_the_budget() -> None:
    pacer = EvenPacer(0.0)
    core = core_with(PLAIN, pacer)
    (ticket,) = taken(core, 0, 1)
    core.leave(ticket, 0, 0, failed=True)
    assert pacer.settled_tokens == [0]
    assert core.idle


def test_a_wait_is_not_certain_before_calls_were_seen_to_end() -> None:
    core = core_with(replace(PLAIN, max_concurrency=1))
    taken(core, 0, 1)
    for _ in range(1_000):
        come(core, 0)
    assert core.certain_wait_s(0, PLAIN, 10, S) == 0
    assert core.expected_wait_s(1_000, S) is None


def test_a_wait_for_the_pace_is_certain_at_once() -> None:
    core = core_with(PLAIN, EvenPacer(60.0))
    taken(core, 0, 1)
    assert core.certain_wait_s(0, PLAIN, 10, 0) == pytest.approx(60)


@given(ratio=st.floats(min_value=1e-6, max_value=0.999))
def test_so_many_places_are_kept_that_one_in_twenty_interactive_calls_waits(ratio: float) -> None:
    kept = guard_places(ratio)
    whole, more = int(kept), kept - int(kept)
    waits = (1 - more) * ratio**whole + more * ratio ** (whole + 1)
    assert waits <= 0.05 + 1e-9
    assert kept == 1 or waits == pytest.approx(0.05)


@given(gaps=st.lists(st.integers(min_value=0, max_value=100 * S), min_size=2, max_size=50))
def test_a_rate_is_never_more_than_all_events_in_their_time(gaps: list[int]) -> None:
    rate, now_ns = Rate(), 0
    for gap in gaps:
        now_ns += gap
        rate.add(now_ns)
        assert 0 <= rate.per_s(now_ns + S) <= rate.total / min((now_ns + S - gaps[0]) / S, 30) + 1e-9


class Gates(RuleBasedStateMachine):
    """Calls of all levels come, end, are refused, are cancelled and time goes on, in any order."""

    @initialize(most=st.integers(min_value=1, max_value=9), gap_s=st.sampled_from([0.0, 0.5]))
    def begin(self, most: int, gap_s: float) -> None:
        self.settings = AdmissionSettings(max_concurrency=most, ageing_s=5)
        self.core = core_with(self.settings, EvenPacer(gap_s))
        self.now_ns = 0
        self.under_way: list[Slot] = []
        self.waiting: list[Slot] = []

    def go_on(self) -> None:
        while (waiter := self.core.next(self.now_ns)) is not None:
            assert waiter in self.waiting
            assert sum(self.core.in_flight) <= self.core.limit.bound
            earlier = [one for one in self.waiting if one.level == waiter.level and one.arrival < waiter.arrival]
            assert not earlier
            self.waiting.remove(waiter)
            self.under_way.append(waiter)

    @rule(level=st.integers(min_value=0, max_value=2))
    def come(self, level: int) -> None:
        came = come(self.core, level, self.now_ns, self.settings)
        if not came.is_granted:
            self.waiting.append(came)
        else:
            assert not any(waiter.level <= level for waiter in self.waiting)
            self.under_way.append(came)
        self.go_on()

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), refused=st.booleans())
    def end(self, data: st.DataObject, refused: bool) -> None:
        ticket = self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1)))
        if refused:
            self.core.refuse(ticket)
        self.core.leave(ticket, self.now_ns, None)
        self.go_on()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        waiter = self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))
        self.core.withdraw(waiter)
        self.core.withdraw(waiter)
        self.go_on()

    @rule(seconds=st.floats(min_value=0, max_value=20))
    def time_goes_on(self, seconds: float) -> None:
        until_ns = self.now_ns + int(seconds * S)
        # As the alarm does: exactly when it is asked for.
        while self.core.wake_ns is not None and self.core.wake_ns <= until_ns:
            assert self.core.wake_ns > self.now_ns
            self.now_ns = self.core.wake_ns
            self.go_on()
        self.now_ns = until_ns

    @invariant()
    def no_place_is_lost_or_made(self) -> None:
        if not hasattr(self, "core"):
            return
        assert sum(self.core.in_flight) == self.core.under_way == len(self.under_way)
        assert sum(self.core.queued) == len(self.waiting)
        assert sum(len(line) for line in self.core._lines) <= 2 * len(self.waiting) + 65

    @invariant()
    def nobody_waits_beside_a_free_place(self) -> None:
        if not hasattr(self, "core") or not self.waiting:
            return
        now_ns, wake_ns = self.now_ns, self.core.wake_ns
        assert self.core.next(now_ns) is None
        if self.core.under_way < self.core.limit.bound:
            # It is kept free, or the pace is waited for: either way somebody is woken.
            assert wake_ns is not None
            assert wake_ns > now_ns

    def teardown(self) -> None:
        """Everybody gets a place in the end."""
        if not hasattr(self, "core"):
            return
        for _ in range(10_000):
            if not self.waiting and not self.under_way:
                break
            if self.under_way:
                self.core.leave(self.under_way.pop(0), self.now_ns, None)
            self.now_ns += S
            self.go_on()
        assert not self.waiting
        assert self.core.idle


def test_whoever_is_old_enough_first_is_sent_though_another_would_be_next_now() -> None:
    gates = Gates()
    gates.begin(most=6, gap_s=0.0)
    for level in (0, 0, 0, 2, 2):
        gates.come(level)
    gates.time_goes_on(9.0)
    gates.come(1)
    gates.time_goes_on(1.0)
    gates.come(1)
    gates.come(2)
    gates.time_goes_on(5.0)
    gates.nobody_waits_beside_a_free_place()
    assert gates.core.under_way == 6


Gates.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestGates = Gates.TestCase
