"""Whatever happens in whatever order: no slot is given twice, no call is forgotten, and nothing is opened in vain."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fastlane.transport.pool.pool import BUSY_STREAMS, MOST_IDLE, UNBOUNDED, PooledConnection
from fastlane.transport.pool.settings import ServerOrigin
from fastlane.transport.protocols.exchange import TransportError
from tests.transport.fake_members import HERE, THERE, Desk, FakeWaiter, http_of, origin_of

ORIGINS = (HERE, THERE, origin_of(3))
choices = st.integers(0, 1_000)
origins = st.sampled_from(ORIGINS)
capacities = st.sampled_from([0, 1, 2, 3, 100, 101, 250])
seconds = st.sampled_from([0.1, 0.6, 1.0, 3.0, 4.0, 5.0, 400.0])


class Call(FakeWaiter):
    """A call that checks what it is given."""

    def __init__(self, origin: ServerOrigin, avoid: str | None = None) -> None:
        super().__init__(avoid)
        self.origin = origin
        self.avoided = avoid
        self.withdrawn = False
        self.is_over = False

    def grant(self, member: PooledConnection) -> None:
        super().grant(member)
        assert not self.withdrawn
        assert member.origin == self.origin
        assert member.is_open
        assert not member.is_closed
        assert 0 < member.claimed <= http_of(member).capacity

    @property
    def is_queued(self) -> bool:
        return self.waits and not self.withdrawn

    @property
    def is_live(self) -> bool:
        return self.member is not None and not self.is_over


class CarefulDesk(Desk):
    """Checks that whatever is opened is needed."""

    def _make(self, origin: ServerOrigin) -> PooledConnection:
        state = self.pool._origins[origin]
        needed = state.expected_places(http2=self.pool._http2 != "never") < len(state.waiters)
        replaced = state.keep_warm and not state.members and self.now_ns - state.last_used_ns < self.pool._idle_ns
        assert needed or replaced
        return super()._make(origin)


class Interleavings(RuleBasedStateMachine):
    @initialize(limit=st.integers(1, 4), http2=st.booleans(), warm=st.sets(origins))
    def begin(self, limit: int, http2: bool, warm: set[ServerOrigin]) -> None:
        self.limit = limit
        self.desk = CarefulDesk(max_connections=limit, http2=http2)
        self.calls: list[Call] = []
        self.refused: set[Call] = set()
        """Calls that were refused, and looked at."""
        self.served = True
        """Whether the pool has had the occasion to serve those who wait since anything happened behind its back."""
        for origin in sorted(warm):
            self.desk.pool.keep_warm(origin)

    # What happens

    @rule(origin=origins, number=st.sampled_from([1, 1, 1, 2, 5, 120]))
    def ask(self, origin: ServerOrigin, number: int) -> None:
        for _ in range(number):
            call = Call(origin)
            member = self.desk.pool.claim(origin, self.desk.now_ns)
            self.calls.append(call)
            if member is None:
                self.desk.pool.wait(origin, call, self.desk.now_ns)
                self.served = True
                self._look_at_the_refused()
            else:
                queued = [each for each in self.calls if each.is_queued and each is not call]
                assert all(each.origin != origin for each in queued if each.avoid is None)
                call.grant(member)
        self.desk.take()

    @precondition(lambda self: any(member.is_open for member in self.desk.members))
    @rule(number=choices)
    def ask_for_another(self, number: int) -> None:
        avoided = self._one_open(number)
        call = Call(avoided.origin, avoided.local_address)
        self.calls.append(call)
        pool, now_ns = self.desk.pool, self.desk.now_ns
        member = pool.claim(call.origin, now_ns, call.avoid)
        if member is None:
            pool.wait(call.origin, call, now_ns)
            self.served = True
            self._look_at_the_refused()
        else:
            call.grant(member)
        self.desk.take()
        if call.member is avoided:  # no other is to be had
            state = pool._origins[avoided.origin]
            assert not state.opening
            assert all(each is avoided or each.room(UNBOUNDED) <= 0 for each in state.members)

    @precondition(lambda self: any(call.is_queued and call.avoid is not None for call in self.calls))
    @rule(number=choices)
    def takes_any(self, number: int) -> None:
        choosy = [call for call in self.calls if call.is_queued and call.avoid is not None]
        choosy[number % len(choosy)].avoid = None
        self.desk.pool.serve(self.desk.now_ns)
        self.desk.take()
        self.served = True

    @rule(origin=origins)
    def close_unwanted_connections(self, origin: ServerOrigin) -> None:
        unwanted = self.desk.pool.take_unwanted(origin)
        assert not unwanted or not any(call.is_queued and call.origin == origin for call in self.calls)
        for member in unwanted:
            self.desk.opening.remove(member)
            self.desk.pool.failed(member, self.desk_error(), self.desk.now_ns)
        if unwanted:
            self.desk.pool.serve(self.desk.now_ns)
            self.served = True
        self.desk.take()

    @precondition(lambda self: any(call.is_live for call in self.calls))
    @rule(number=choices, how=st.sampled_from(["ends", "ends", "ends_quietly", "leaves"]))
    def end(self, number: int, how: str) -> None:
        live = [call for call in self.calls if call.is_live]
        call = live[number % len(live)]
        call.is_over = True
        if how == "ends_quietly":
            self.served = False
        getattr(self.desk, how)(call)
        member = call.member
        assert member is not None
        if how != "ends_quietly" and member in self.desk.members:
            self.served = True
        self._look_at_the_refused()

    @precondition(lambda self: any(call.is_queued for call in self.calls))
    @rule(number=choices)
    def withdraw(self, number: int) -> None:
        queued = [call for call in self.calls if call.is_queued]
        call = queued[number % len(queued)]
        self.desk.pool.withdraw(call.origin, call)
        call.withdrawn = True

    @precondition(lambda self: self.desk.opening)
    @rule(number=choices, capacity=capacities, http2=st.booleans(), ready=st.booleans())
    def opens(self, number: int, capacity: int, http2: bool, ready: bool) -> None:
        self._turn_to(number)
        if http2 and self.desk.pool._http2:
            self.desk.opens(capacity, ready=ready)
        else:
            self.desk.opens(min(1, capacity), http_version="HTTP/1.1")
        self.served = True
        self._look_at_the_refused()

    @precondition(lambda self: self.desk.opening)
    @rule(number=choices, by_closing=st.booleans())
    def fails(self, number: int, by_closing: bool) -> None:
        self._turn_to(number)
        if by_closing:
            self.desk.closes(self.desk.opening.pop(0))
        else:
            self.desk.fails()
        self._look_at_the_refused()
        self.served = True

    def _turn_to(self, number: int) -> None:
        opening = self.desk.opening
        opening.insert(0, opening.pop(number % len(opening)))

    def _look_at_the_refused(self) -> None:
        refused = {call for call in self.calls if call.error is not None} - self.refused
        self.refused |= refused
        for origin in {call.origin for call in refused}:
            assert not [call for call in self.calls if call.origin == origin and call.is_queued]
            assert not self.desk.pool.is_opening(origin)
            assert all(http_of(member).capacity < 1 for member in self.desk.members if member.origin == origin)

    def _one_open(self, number: int) -> PooledConnection:
        members = [member for member in self.desk.members if member.is_open]
        return members[number % len(members)]

    @precondition(lambda self: any(member.is_open for member in self.desk.members))
    @rule(number=choices, capacity=capacities)
    def changes(self, number: int, capacity: int) -> None:
        member = self._one_open(number)
        http = http_of(member)
        http.is_ready = True
        self.desk.changes(member, min(1, capacity) if http.http_version == "HTTP/1.1" else capacity)
        self.served = True
        self._look_at_the_refused()

    @precondition(lambda self: any(member.is_open for member in self.desk.members))
    @rule(number=choices, by_peer=st.booleans())
    def closes(self, number: int, by_peer: bool) -> None:
        member = self._one_open(number)
        self.desk.closes(member, by_peer=by_peer)
        self._look_at_the_refused()
        for call in self.calls:
            if call.member is member:
                call.is_over = True
        self.served = True

    @rule(passed=seconds)
    def passes(self, passed: float) -> None:
        self.desk.passes(passed)
        self.served = False

    # What is always so

    @invariant()
    def no_more_connections_than_allowed(self) -> None:
        assert len(self.desk.members) == self.desk.pool._count <= self.limit
        assert len(self.desk.pool._idle) <= MOST_IDLE

    @invariant()
    def every_slot_belongs_to_a_call(self) -> None:
        for member in self.desk.members:
            live = sum(call.member is member and call.is_live for call in self.calls)
            assert member.claimed == live + len(member.ended)
        assert not any(member.claimed for member in self.desk.surplus)
        assert all(member.is_closed for member in self.desk.surplus)
        assert not set(self.desk.surplus) & set(self.desk.members)

    @invariant()
    def what_is_kept_for_speed_agrees_with_what_is_so(self) -> None:
        pool = self.desk.pool
        assert set(pool._idle) == {member for member in self.desk.members if member.is_open and not member.claimed}
        idle_since = [member.unused_since_ns for member in pool._idle]
        assert idle_since == sorted(idle_since)
        assert {origin for origin, state in pool._origins.items() if state.waiters} == set(pool._waiting)
        assert {member for member in self.desk.members if not member.is_open} == set(self.desk.opening)
        for origin, state in pool._origins.items():
            assert state.opening == sum(member.origin == origin for member in self.desk.opening)
            assert set(state.spare) <= set(state.members)
            assert list(state.waiters) == [call for call in self.calls if call.is_queued and call.origin == origin]
            # A call that looks for a slot must find it: what has room is spare.
            with_room = {member for member in state.members if member.room(BUSY_STREAMS) > 0}
            assert with_room <= set(state.spare)

    @invariant()
    def no_call_waits_in_vain(self) -> None:
        if not self.served:
            return
        pool, now_ns = self.desk.pool, self.desk.now_ns
        for state in pool._waiting.values():
            for member in state.members:
                if member.room(BUSY_STREAMS) > 0:
                    assert all(waiter.avoid == member.local_address for waiter in state.waiters)
            is_held_up = (state.grow_after_ns > now_ns and state.members) or state.allows_nothing
            enough = state.expected_places(http2=pool._http2 != "never") >= len(state.waiters)
            assert enough or is_held_up or not pool._has_place()
            assert state.opening or all(member.room(UNBOUNDED) <= 0 for member in state.members)

    @invariant()
    def who_came_first_went_first(self) -> None:
        for origin in ORIGINS:
            plain = [call for call in self.calls if call.avoided is None]
            calls = [call for call in plain if call.origin == origin and not call.withdrawn]
            waits = [call.waits for call in calls]
            assert waits == sorted(waits)

    def teardown(self) -> None:
        """In the end, every call has its connection or an error."""
        if hasattr(self, "desk"):
            self.desk.pool.refuse_all(self.desk_error())
            assert not any(call.is_queued for call in self.calls)

    @staticmethod
    def desk_error() -> TransportError:
        return TransportError("ConnectError", "over")


Interleavings.TestCase.settings = settings(max_examples=150, stateful_step_count=60)
TestInterleavings = pytest.mark.slow(Interleavings.TestCase)


@given(calls=st.integers(1, 700), capacity=st.integers(1, 400), limit=st.integers(1, 12))
def test_burst_opens_the_fewest_connections_needed(calls: int, capacity: int, limit: int) -> None:
    desk = Desk(max_connections=limit)
    first = desk.ask()
    desk.opens(capacity)
    desk.ends(first)
    burst = desk.ask_often(calls)
    while desk.opening:
        desk.opens(capacity)
    each = min(capacity, BUSY_STREAMS)

    assert desk.made == min(limit, -(-calls // each))
    assert sum(not call.waits for call in burst) == min(calls, limit * capacity if desk.made == limit else calls)
