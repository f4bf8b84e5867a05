"""Which connection a call gets, when a further one is opened, and who waits: bookkeeping without I/O or locks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import count

from ..protocols.errors import TransportError
from .origin import (
    BUSY_STREAMS as BUSY_STREAMS,
    GROW_AGAIN_NS,
    MOST_IDLE,
    MOST_ORIGINS,
    UNBOUNDED,
    Member as Member,
    OriginState,
    Waiter as Waiter,
)
from .outlook import UNKNOWN, Outlook
from .settings import Origin


class Pool:
    """The connections of one transport (in one event loop). Not thread-safe.

    `make` makes a member that is about to open; whoever calls a method that may have made some then starts those that
    `take_orders()` gives. `idle_ns`: for how long after the last call a connection that the server closes is replaced,
    where the origin is kept warm. `http2`: HTTP/2 is spoken where TLS agrees on it; `plain_http2`: also without TLS.
    """

    def __init__(
        self,
        *,
        max_connections: int,
        http2: bool,
        idle_ns: int,
        make: Callable[[Origin], Member],
        plain_http2: bool = False,
    ) -> None:
        self._max_connections = max_connections
        self._http2 = http2
        self._plain_http2 = plain_http2
        self._idle_ns = idle_ns
        self._make = make
        self._origins: dict[Origin, OriginState] = {}
        self._most_origins = MOST_ORIGINS
        self._waiting: dict[Origin, OriginState] = {}
        """Those at which somebody waits."""
        self._numbers = count()
        self._count = 0
        self._idle: OrderedDict[Member, None] = OrderedDict()
        """Open connections without a call, the one that has had none for the longest time first."""
        self._new: list[Member] = []
        self._surplus: list[Member] = []

    # What there is

    def members(self) -> Iterator[Member]:
        """Every connection, open or opening."""
        for state in list(self._origins.values()):
            yield from list(state.members)

    def is_opening(self, origin: Origin) -> bool:
        """Whether a connection to the origin is being opened. May be asked without the lock."""
        state = self._origins.get(origin)
        return state is not None and state.opening > 0

    def outlook(self, origin: Origin, now_ns: int) -> Outlook:
        """What a request to the origin would find that came now. May be asked without the lock."""
        state = self._origins.get(origin)
        # What has left without the pool's having looked goes first to those who wait, wherever they want to go.
        return UNKNOWN if state is None else state.outlook(now_ns, with_ended=not self._waiting)

    @property
    def has_orders(self) -> bool:
        """Whether there are any. May be asked without the lock."""
        return bool(self._new or self._surplus)

    def take_orders(self) -> tuple[list[Member], list[Member]]:
        """The connections that are to be opened now, and idle ones, out of the pool already, that are to be closed."""
        orders = self._new, self._surplus
        self._new, self._surplus = [], []
        return orders

    def take_unwanted(self, origin: Origin) -> list[Member]:
        """The connections that were being opened and that nobody waits for any more: out of the pool, to be closed."""
        state = self._origins.get(origin)
        if state is None or state.waiters or not state.opening:
            return []
        unwanted = [member for member in state.members if not member.is_open]
        for member in unwanted:
            self._remove(state, member)  # at once, lest the next call waits for one that is about to fail
            member.is_closed = True
        return unwanted

    # Calls

    def claim(self, origin: Origin, now_ns: int, avoid: str | None = None) -> Member | None:
        """A place on an open connection, or None where the call has to wait.

        `avoid`: local address of a connection that is taken only where no other is to be had.
        """
        state = self._state(origin)
        state.last_used_ns = now_ns
        if state.has_queue:
            return None  # first come, first served
        member = self._pick(state, now_ns, avoid)
        # Answers that were dropped unread leave quietly: a finaliser cannot take the pool's lock.
        if member is None and self._settle_all(state, now_ns) and not self._waiting:
            member = self._pick(state, now_ns, avoid)
        return member

    def wait(self, origin: Origin, waiter: Waiter, now_ns: int) -> None:
        """Queue a call, and open a connection for it where that is the way."""
        state = self._state(origin)
        state.waiters[waiter] = next(self._numbers)
        self._waiting[origin] = state
        try:
            self.serve(now_ns)
        except BaseException:  # no connection can be made: nobody must be left behind in the queue
            self.withdraw(origin, waiter)
            raise

    def withdraw(self, origin: Origin, waiter: Waiter) -> None:
        """The call waits no longer."""
        state = self._origins.get(origin)
        if state is not None and state.waiters.pop(waiter, None) is not None and not state.waiters:
            self._waiting.pop(origin, None)

    def unclaim(self, member: Member, now_ns: int) -> None:
        """A call leaves its place without an exchange that is over."""
        member.claimed -= 1
        state = self._state_with(member)
        if state is not None:
            self._has_left(state, member, now_ns)
            self.serve(now_ns)

    @property
    def has_waiters(self) -> bool:
        """Whether calls wait."""
        return bool(self._waiting)

    def refuse_all(self, error: TransportError) -> None:
        """Nobody gets a connection any more."""
        for state in list(self._waiting.values()):
            self._refuse(state, error)

    # Connections

    def opened(self, member: Member, now_ns: int) -> None:
        """The connection is open."""
        state = self._state_with(member)
        if state is None or member.is_open:
            return
        state.opening -= 1
        state.see(member)
        member.is_open = True
        member.unused_since_ns = now_ns
        # One that replaces another does not stay longer than that would have.
        member.idle_since_ns = state.last_used_ns or now_ns
        self._idle[member] = None
        state.spare[member] = None
        self.serve(now_ns)

    def failed(self, member: Member, error: TransportError, now_ns: int) -> None:
        """The connection could not be opened: those who waited for it are told, unless others are open or opening."""
        state = self._state_with(member)
        if state is None:
            return
        self._remove(state, member)
        if state.will_have_places:
            state.grow_after_ns = now_ns + GROW_AGAIN_NS
        else:
            self._refuse(state, error)
        self.serve(now_ns)

    def changed(self, member: Member, now_ns: int) -> None:
        """Exchanges have ended, or the peer allows more or fewer of them."""
        state = self._state_with(member)
        if state is None or not member.is_open:
            return
        self._settle(state, member, now_ns)
        state.see(member)
        self.serve(now_ns)

    def closed(self, member: Member, now_ns: int, *, by_idle_peer: bool, unwelcome_pings: bool) -> None:
        """The connection is closed. `by_idle_peer`: by the peer, while no call was on it."""
        member.is_closed = True
        state = self._state_with(member)
        if state is None:
            return
        if not member.is_open:
            error = TransportError("ConnectError", "The connection was closed while it was being opened.")
            self.failed(member, error, now_ns)
            return
        self._remove(state, member)
        # A server that closes at once would be asked again and again.
        was_idle = state.see_closed(member, now_ns, by_idle_peer=by_idle_peer, unwelcome_pings=unwelcome_pings)
        wanted = was_idle and state.keep_warm and now_ns - state.last_used_ns < self._idle_ns
        if wanted and not state.members and self._count < self._max_connections:
            self._open(state)
        if not member.was_used:
            self._refuse(state, state.fruitless_end())
        self.serve(now_ns)

    def keep_warm(self, origin: Origin) -> None:
        """From now on, replace an idle connection that the server closes."""
        self._state(origin).keep_warm = True

    def ping_interval_ns(self, origin: Origin, wanted_ns: int) -> int | None:
        """Nanoseconds between two pings on an idle connection; None where they are not welcome.

        May be asked without the lock.
        """
        state = self._origins.get(origin)
        return wanted_ns if state is None else state.ping_interval_ns(wanted_ns)

    def _state(self, origin: Origin) -> OriginState:
        state = self._origins.get(origin)
        if state is None:
            if len(self._origins) >= self._most_origins:
                self._origins = {key: each for key, each in self._origins.items() if not each.is_quiet}
                # Where all are busy, not again for each further one.
                self._most_origins = max(MOST_ORIGINS, 2 * len(self._origins))
            state = self._origins[origin] = OriginState(origin)
        return state

    def _state_with(self, member: Member) -> OriginState | None:
        """The state of a member's origin; None where the member is not, or no longer, in the pool."""
        state = self._origins.get(member.origin)
        return state if state is not None and member in state.members else None

    def _pick(self, state: OriginState, now_ns: int, avoid: str | None) -> Member | None:
        """Claim a place on a connection that is not too busy."""
        found = state.with_room(now_ns, avoid)
        if found is not None:
            return self._take(state, found)
        if state.opening or (now_ns >= state.grow_after_ns and self._has_place()):
            return None  # a further connection is the better place
        return self._pick_any(state, now_ns, avoid)

    def _pick_any(self, state: OriginState, now_ns: int, avoid: str | None) -> Member | None:
        """Claim a place wherever one is: no further connection can be opened."""
        best = state.with_any_room(now_ns, avoid)
        return None if best is None else self._take(state, best)

    def _take(self, state: OriginState, member: Member) -> Member:
        member.was_used = True
        state.fruitless = 0
        self._idle.pop(member, None)
        # Last of all, and without a call after it: Ctrl-C may come with any call, and take no place along.
        member.claimed += 1
        return member

    def _has_place(self) -> bool:
        return self._count < self._max_connections or bool(self._idle)

    def _open(self, state: OriginState) -> None:
        """Open a connection; only where there is a place for it."""
        member = self._make(state.origin)
        if self._count >= self._max_connections:
            self._retire_oldest()
        # Without a call in between: Ctrl-C comes before all of it, or after.
        state.members[member] = None
        state.opening += 1
        self._count += 1
        self._new += [member]

    def _retire_oldest(self) -> None:
        """Take the connection out of the pool, to be closed, that has been without a call the longest."""
        member = next(iter(self._idle))
        state, had_room = self._origins[member.origin], member.room(UNBOUNDED) > 0
        self._surplus.append(member)  # first: Ctrl-C may come behind it, and what is closed leaves the pool by itself
        self._remove(state, member)
        member.is_closed = True
        # Two origins whose servers allow nothing would close each other's connections for ever.
        if not had_room:
            self._refuse(state, state.fruitless_end())

    def _remove(self, state: OriginState, member: Member) -> None:
        state.round_trip_ns = member.round_trip_ns or state.round_trip_ns
        state.spare.pop(member, None)
        self._idle.pop(member, None)
        # Without a call in between, as in `_open`.
        del state.members[member]
        if not member.is_open:
            state.opening -= 1
        self._count -= 1

    def _has_left(self, state: OriginState, member: Member, now_ns: int) -> None:
        """Note what places less have come to."""
        if not member.claimed and member not in self._idle:
            member.idle_since_ns = member.unused_since_ns = now_ns
            self._idle[member] = None
            if state.speaks_http2 is False:
                state.spare.pop(member, None)  # to the end
        if member not in state.spare:
            state.spare[member] = None

    def _settle(self, state: OriginState, member: Member, now_ns: int) -> None:
        while member.ended:
            member.claimed -= 1  # and no call in between, as in `_open`
            del member.ended[0]
        self._has_left(state, member, now_ns)

    def _settle_all(self, state: OriginState, now_ns: int) -> bool:
        for member in (with_ended := [member for member in state.members if member.ended]):
            self._settle(state, member, now_ns)
        return bool(with_ended)

    def _refuse(self, state: OriginState, error: TransportError | None) -> None:
        if error is None:
            return
        waiters, state.waiters = state.waiters, OrderedDict()
        state.fruitless = 0
        self._waiting.pop(state.origin, None)
        for waiter in waiters:
            waiter.refuse(error.again())

    def serve(self, now_ns: int) -> None:
        """Give places to those who wait, the first come first wherever they want to go; close idle ones too many."""
        if self._waiting:
            # Where all places are taken, what an answer to anybody has left may make room.
            for state in list((self._waiting if self._count < self._max_connections else self._origins).values()):
                self._settle_all(state, now_ns)
        retired = -1
        # Once more after one was retired: it may be what kept those who came before from opening one.
        while retired < len(self._surplus):
            retired = len(self._surplus)
            for state in sorted(self._waiting.values(), key=lambda each: next(iter(each.waiters.values()))):
                state.grant(now_ns, self._pick)
                if state.waiters:
                    self._grow(state, now_ns)
                if not state.opening:
                    state.grant(now_ns, self._pick_any)
                if not state.waiters:
                    self._waiting.pop(state.origin, None)
            while len(self._idle) > MOST_IDLE:
                self._retire_oldest()

    def _grow(self, state: OriginState, now_ns: int) -> None:
        """Open as many connections as the calls that wait need, and no more."""
        if (now_ns < state.grow_after_ns and state.members) or state.allows_nothing:
            return
        http2 = self._http2 and (self._plain_http2 or state.origin.scheme == "https")
        while state.expected_places(http2=http2) < len(state.waiters) and self._has_place():
            self._open(state)
