"""Which connection a call gets, when a further one is opened, and who waits: bookkeeping without I/O or locks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from ._errors import TransportError
from ._exchange import Exchange, HttpConnection
from ._settings import Origin

# More streams than this on one connection, and a further connection is opened where that is allowed: the number that
# RFC 9113 (6.5.2) asks every server to take at the least, and beyond which one lost packet delays too many.
BUSY_STREAMS = 100

# Idle HTTP/1.1 connections that are kept, as the stock client does.
MOST_IDLE = 100

# After a further connection could not be opened, calls wait for a place without another try for this long.
_GROW_AGAIN_NS = 1_000_000_000

# How far around the time after which a server closes idle connections one of them is not trusted with a call: the
# request and the server's goodbye would cross on the way, and nobody could say whether it was processed.
_DOUBT_NS = 1_000_000_000

# Servers that close a connection faster than this do not do so because it was idle.
_SHORTEST_IDLE_NS = 1_000_000_000


class Waiter(Protocol):
    """A call that waits for a connection."""

    def grant(self, member: Member) -> None:
        """A place on this connection is claimed for the call."""

    def refuse(self, error: TransportError) -> None:
        """No connection could be opened."""


class Member:
    """A connection as its pool sees it. Changed only under the pool's lock, apart from `ended`."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.http: HttpConnection | None = None
        """None while the connection is being opened."""
        self.claimed = 0
        """Calls that were given a place on it and have not left."""
        self.ended: deque[Exchange] = deque()
        """Exchanges that are over: each gives a place back when the pool looks."""
        self.is_closed = False
        self.is_spare = False
        """Whether it is among those that are looked at for room."""
        self.idle_since_ns = 0

    def room(self, bound: int) -> int:
        """Further calls that it may be given."""
        http = self.http
        if http is None or self.is_closed:
            return 0
        return min(http.capacity, bound) - self.claimed

    def looks_stale(self) -> bool:
        """Whether something has come from the peer that nobody has looked at yet. Drivers override it."""
        return False


class _OriginState:
    """What the pool has and knows of one origin."""

    __slots__ = (
        "grow_after_ns",
        "idle_limit_ns",
        "keep_warm",
        "last_used_ns",
        "members",
        "pings_unwelcome",
        "spare",
        "speaks_http2",
        "waiters",
    )

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.spare: list[Member] = []
        """Members that may have room, the last used at the end: a call does not look through all of them."""
        self.waiters: deque[Waiter] = deque()
        self.speaks_http2: bool | None = None
        self.grow_after_ns = 0
        self.idle_limit_ns: int | None = None
        self.pings_unwelcome = False
        self.keep_warm = False
        self.last_used_ns = 0


class Pool:
    """The connections of one transport (in one event loop). Not thread-safe.

    `make` makes a member that is about to open; whoever calls a method that may have made some then starts those that
    `take_new()` gives.
    """

    def __init__(self, *, max_connections: int, http2: bool, make: Callable[[Origin], Member]) -> None:
        self._max_connections = max_connections
        self._http2 = http2
        self._make = make
        self._origins: dict[Origin, _OriginState] = {}
        self._count = 0
        self._new: list[Member] = []
        self._surplus: list[Member] = []

    # What there is

    def members(self) -> Iterator[Member]:
        """Every connection, open or opening."""
        for state in list(self._origins.values()):
            yield from list(state.members)

    def is_opening(self, origin: Origin) -> bool:
        """Whether a connection to the origin is being opened."""
        state = self._origins.get(origin)
        return state is not None and any(member.http is None for member in state.members)

    def take_new(self) -> list[Member]:
        """The connections that are to be opened now."""
        new, self._new = self._new, []
        return new

    def take_surplus(self) -> list[Member]:
        """Idle connections that are to be closed now, out of the pool already."""
        surplus, self._surplus = self._surplus, []
        return surplus

    # Calls

    def claim(self, origin: Origin, now_ns: int) -> Member | None:
        """A place on an open connection, or None where the call has to wait."""
        state = self._state(origin)
        state.last_used_ns = now_ns
        if state.waiters:
            return None  # first come, first served
        member = self._pick(state, now_ns)
        if member is None and any(other.ended for other in state.members):
            # Answers that were dropped unread leave quietly: a finaliser cannot take the pool's lock.
            for other in list(state.members):
                self._settle_one(state, other, now_ns)
            member = self._pick(state, now_ns)
        return member

    def wait(self, origin: Origin, waiter: Waiter, now_ns: int) -> None:
        """Queue a call, and open a connection for it where that is the way."""
        state = self._state(origin)
        state.waiters.append(waiter)
        self._serve(origin, state, now_ns)

    def withdraw(self, origin: Origin, waiter: Waiter) -> None:
        """The call waits no longer."""
        state = self._origins.get(origin)
        if state is not None and waiter in state.waiters:
            state.waiters.remove(waiter)

    def unclaim(self, member: Member, now_ns: int) -> None:
        """A call leaves its place without an exchange that is over."""
        state = self._state(member.origin)
        self._leave(state, member, now_ns)
        self._serve(member.origin, state, now_ns)

    def refuse_all(self, error: TransportError) -> None:
        """Nobody gets a connection any more."""
        for state in self._origins.values():
            while state.waiters:
                state.waiters.popleft().refuse(error.again())

    # Connections

    def opened(self, member: Member, now_ns: int) -> None:
        """The connection is open."""
        state = self._state(member.origin)
        state.speaks_http2 = member.http is not None and member.http.http_version == "HTTP/2"
        member.idle_since_ns = now_ns
        self._make_spare(state, member)
        self._serve(member.origin, state, now_ns)

    def failed(self, member: Member, error: TransportError, now_ns: int) -> None:
        """The connection could not be opened: those who waited for it are told, unless others are open or opening."""
        state = self._state(member.origin)
        self._remove(state, member)
        if state.members:
            state.grow_after_ns = now_ns + _GROW_AGAIN_NS
            self._serve(member.origin, state, now_ns)
            return
        waiters, state.waiters = state.waiters, deque()
        for waiter in waiters:
            waiter.refuse(error.again())

    def changed(self, member: Member, now_ns: int) -> None:
        """Exchanges have ended, or the peer allows more or fewer of them."""
        state = self._state(member.origin)
        self._settle_one(state, member, now_ns)
        if not member.is_closed:
            self._make_spare(state, member)
        self._serve(member.origin, state, now_ns)

    def closed(self, member: Member, now_ns: int, *, by_idle_peer: bool, unwelcome_pings: bool) -> None:
        """The connection is closed. `by_idle_peer`: by the peer, while no call was on it."""
        member.is_closed = True
        state = self._state(member.origin)
        if not self._remove(state, member):
            return
        state.pings_unwelcome = state.pings_unwelcome or unwelcome_pings
        idle_ns = now_ns - member.idle_since_ns
        if by_idle_peer and idle_ns >= _SHORTEST_IDLE_NS:
            state.idle_limit_ns = idle_ns
        # A server that closes at once would be asked again and again.
        replaced = by_idle_peer and state.keep_warm and not state.members and idle_ns >= _SHORTEST_IDLE_NS
        if replaced and self._has_place():
            self._open(member.origin, state)
        self._serve(member.origin, state, now_ns)

    # What was learned

    def keep_warm(self, origin: Origin) -> None:
        """From now on, replace an idle connection that the server closes."""
        self._state(origin).keep_warm = True

    def last_used_ns(self, origin: Origin) -> int:
        """When a call last asked for the origin; 0 if none did."""
        return self._state(origin).last_used_ns

    def ping_interval_ns(self, origin: Origin, wanted_ns: int) -> int | None:
        """Nanoseconds between two pings on an idle connection; None where they are not welcome."""
        state = self._state(origin)
        if state.pings_unwelcome:
            return None
        if state.idle_limit_ns is None:
            return wanted_ns
        # Twice within the time that the server waits, and never so often that a server would count it as a flood.
        return max(5_000_000_000, min(wanted_ns, state.idle_limit_ns // 2))

    # Inside

    def _state(self, origin: Origin) -> _OriginState:
        state = self._origins.get(origin)
        if state is None:
            state = self._origins[origin] = _OriginState()
        return state

    def _pick(self, state: _OriginState, now_ns: int) -> Member | None:
        """Claim a place on the connection that was used last, so that others can fall idle."""
        may_grow = self._may_grow(state, now_ns)
        bound = BUSY_STREAMS if may_grow else 1 << 31
        for member in reversed(state.spare if may_grow else state.members):
            if member.room(bound) <= 0:
                if member.is_spare:
                    member.is_spare = False
                    state.spare.remove(member)
            elif not self._in_doubt(state, member, now_ns):
                member.claimed += 1
                return member
        return None

    def _in_doubt(self, state: _OriginState, member: Member, now_ns: int) -> bool:
        """Whether the server is likely to be closing this idle connection right now."""
        limit_ns = state.idle_limit_ns
        if limit_ns is None or member.claimed:
            return False
        idle_ns = now_ns - member.idle_since_ns
        if idle_ns > limit_ns + _DOUBT_NS:
            state.idle_limit_ns = None  # it did not close this one: what was seen had another reason
            return False
        # A server that closes after very little time is still worth a connection that is reused at once.
        return idle_ns > max(limit_ns - _DOUBT_NS, limit_ns // 2)

    def _may_grow(self, state: _OriginState, now_ns: int) -> bool:
        return now_ns >= state.grow_after_ns and self._has_place()

    def _has_place(self) -> bool:
        return self._count < self._max_connections or self._idle_member() is not None

    def _idle_member(self) -> Member | None:
        """The connection that has been without a call the longest."""
        idle = (m for m in self.members() if m.http is not None and not m.claimed and not m.is_closed)
        return min(idle, key=lambda member: member.idle_since_ns, default=None)

    def _open(self, origin: Origin, state: _OriginState) -> None:
        if self._count >= self._max_connections:
            idle = self._idle_member()
            if idle is None:
                return
            self._retire(idle)
        member = self._make(origin)
        state.members.append(member)
        self._count += 1
        self._new.append(member)

    def _retire(self, member: Member) -> None:
        """Take an idle connection out of the pool, to be closed."""
        self._remove(self._state(member.origin), member)
        member.is_closed = True
        self._surplus.append(member)

    def _remove(self, state: _OriginState, member: Member) -> bool:
        if member not in state.members:
            return False
        state.members.remove(member)
        if member.is_spare:
            member.is_spare = False
            state.spare.remove(member)
        self._count -= 1
        return True

    @staticmethod
    def _make_spare(state: _OriginState, member: Member) -> None:
        if not member.is_spare:
            member.is_spare = True
            state.spare.append(member)

    def _leave(self, state: _OriginState, member: Member, now_ns: int) -> None:
        member.claimed -= 1
        if not member.claimed:
            member.idle_since_ns = now_ns
            if self._count > MOST_IDLE and sum(not other.claimed for other in state.members) > MOST_IDLE:
                self._retire(member)
                return
        if not member.is_closed:
            self._make_spare(state, member)

    def _settle_one(self, state: _OriginState, member: Member, now_ns: int) -> None:
        while member.ended:
            member.ended.popleft()
            self._leave(state, member, now_ns)

    def _serve(self, origin: Origin, state: _OriginState, now_ns: int) -> None:
        while state.waiters:
            member = self._pick(state, now_ns)
            if member is None:
                break
            state.waiters.popleft().grant(member)
        self._grow(origin, state, now_ns)

    def _grow(self, origin: Origin, state: _OriginState, now_ns: int) -> None:
        """Open as many connections as the calls that wait need, and no more."""
        if not state.waiters or now_ns < state.grow_after_ns:
            return
        if any(m.http is not None and not m.claimed and not m.is_closed and m.http.capacity < 1 for m in state.members):
            return  # a server that allows nothing at all on one connection would not on the next
        # Until the first connection says which protocol it is, the calls of a burst wait for it together.
        each = BUSY_STREAMS if self._http2 and state.speaks_http2 is not False else 1
        expected = sum(each for member in state.members if member.http is None)
        while expected < len(state.waiters) and self._has_place():
            before = self._count, len(self._new)
            self._open(origin, state)
            if before == (self._count, len(self._new)):
                return
            expected += each
