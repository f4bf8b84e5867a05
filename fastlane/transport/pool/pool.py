"""Which connection a request gets, when another one is opened, and who waits: without I/O or locks."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, islice
from typing import TYPE_CHECKING, Protocol

from ..protocols.exchange import Exchange, TransportError
from .settings import PoolSettings, ServerOrigin

if TYPE_CHECKING:  # `import fastlane` loads no protocol
    from ..protocols.h1 import Http1Connection
    from ..protocols.h2 import Http2Connection

# More streams than this on one connection, and a further connection is opened where that is allowed: the number that
# RFC 9113 (6.5.2) asks every server to take at the least, and beyond which one lost packet delays too many.
BUSY_STREAMS = 100

UNBOUNDED = 1 << 31

# Connections without a call that are kept, as the stock client does.
MOST_IDLE = 100

# Origins of which more is remembered than which connections are open.
MOST_ORIGINS = 1_000

# After a further connection could not be opened, calls wait for a place without another try for this long.
GROW_AGAIN_NS = 1_000_000_000

# A connection may end before it had a place for anybody: the server is about to leave. That many in a row is no
# accident.
MOST_FRUITLESS = 5

# Servers that close a connection faster than this do not do so because it was idle.
_SHORTEST_IDLE_NS = 1_000_000_000


class Waiter(Protocol):
    """A call that waits for a connection."""

    avoid: str | None
    """Local address of a connection that it takes only where no other is to be had."""

    def grant(self, member: PooledConnection) -> None:
        """A place on this connection is claimed for the call."""

    def refuse(self, error: TransportError) -> None:
        """No connection could be opened."""


class PooledConnection:
    """A connection as its pool sees it. Changed only under the pool's lock, apart from `ended` and `is_closed`."""

    def __init__(self, origin: ServerOrigin) -> None:
        self.origin = origin
        self.http: Http1Connection | Http2Connection | None = None
        """None while the connection is being opened."""
        self.is_open = False
        """Whether the pool knows that it is open: `http` may be there a moment earlier."""
        self.is_closed = False
        """Whether no call gets it any more: it is closed, or a driver knows that it is about to be."""
        self.claimed = 0
        """Calls that were given a place on it and have not left."""
        self.was_used = False
        """Whether a call was ever given a place on it."""
        self.has_said = False
        """Whether the pool has seen what the peer allows at first."""
        self.ended: deque[Exchange | None] = deque()
        """Exchanges that are over: each gives a place back when the pool looks."""
        self.idle_since_ns = 0
        """Since when it has been of no use: when the last call left, or asked for the origin if none was given it."""
        self.unused_since_ns = 0
        """Since when it has carried nothing, as its server sees it."""

    def room(self, bound: int) -> int:
        """Further calls that it may be given."""
        http = self.http
        if http is None or not self.is_open or self.is_closed:
            return 0
        return min(http.capacity, bound) - self.claimed

    @property
    def local_address(self) -> str | None:
        """Our end of the connection; None while it is being opened. Drivers override it."""
        return None

    def looks_stale(self) -> bool:
        """Whether something has come from the peer that was not looked at yet. Drivers override it."""
        return False


class OriginState:
    """What the pool has and knows of one origin."""

    __slots__ = (
        "fruitless",
        "grow_after_ns",
        "keep_warm",
        "last_used_ns",
        "members",
        "opening",
        "origin",
        "pings_unwelcome",
        "spare",
        "speaks_http2",
        "streams",
        "waiters",
    )

    def __init__(self, origin: ServerOrigin) -> None:
        self.origin = origin
        self.members: dict[PooledConnection, None] = {}
        self.opening = 0
        """How many of the members are being opened."""
        self.spare: OrderedDict[PooledConnection, None] = OrderedDict()
        """Members that may have room, the last used at the end: a call does not look through all of them."""
        self.waiters: OrderedDict[Waiter, int] = OrderedDict()
        """Each with its number in the order in which all calls of the pool began to wait."""
        self.fruitless = 0
        """Connections in a row that ended without having had a place for any of those who wait."""
        self.grow_after_ns = 0
        self.speaks_http2: bool | None = None
        self.streams = BUSY_STREAMS
        """Calls at once that the server allows on a new connection, up to `BUSY_STREAMS`."""
        self.pings_unwelcome = False
        self.keep_warm = False
        self.last_used_ns = 0

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing here but what was learned."""
        return not self.members and not self.waiters

    @property
    def has_queue(self) -> bool:
        """Whether calls wait that would take any place, and not only one on another connection than they avoid."""
        return bool(self.waiters) and any(waiter.avoid is None for waiter in self.waiters)

    @property
    def allows_nothing(self) -> bool:
        """Whether the server has left an unused connection without any place: it would do so on the next."""
        return any(
            member.is_open
            and not member.claimed
            and not member.is_closed
            and member.http is not None
            and member.http.capacity < 1
            for member in self.members
        )

    @property
    def will_have_places(self) -> bool:
        """Whether a connection is open or being opened that those who wait may hope for."""
        return bool(self.opening) or any(
            not member.is_closed and member.http is not None and member.http.capacity > 0 for member in self.members
        )

    def fruitless_end(self) -> TransportError | None:
        """A connection has ended that had no place for those who wait: what to tell them where it is one too many."""
        if not self.waiters:
            return None
        self.fruitless += 1
        if self.fruitless < MOST_FRUITLESS or self.will_have_places:
            return None
        message = f"{self.fruitless} connections in a row were closed before they could be used."
        return TransportError("ConnectError", message)

    def expected_places(self, *, http2: bool) -> int:
        """Calls for which there will be places on what is being opened."""
        # Until the first connection says which protocol it is, the calls of a burst wait for it together.
        return self.opening * (self.streams if http2 and self.speaks_http2 is not False else 1)

    def grant(self, now_ns: int, pick: Callable[[OriginState, int, str | None], PooledConnection | None]) -> None:
        """Give those who wait the places that are picked."""
        passed_over = 0
        while len(self.waiters) > passed_over:
            waiter = next(islice(self.waiters, passed_over, None))
            member = pick(self, now_ns, waiter.avoid)
            if member is not None:
                del self.waiters[waiter]
                waiter.grant(member)
            elif waiter.avoid is None:
                return
            else:
                passed_over += 1  # what it avoids may be a place for those behind it

    def with_room(self, avoid: str | None) -> PooledConnection | None:
        """The connection with room that was used last, so that others can fall idle."""
        full = []
        found = None
        for member in reversed(self.spare):
            if member.room(BUSY_STREAMS) <= 0:
                full.append(member)
            elif avoid is None or member.local_address != avoid:
                found = member
                break
        for member in full:
            del self.spare[member]
        return found

    def with_any_room(self, avoid: str | None) -> PooledConnection | None:
        """The best connection of those that have any room: no further one can be opened."""

        def merits(member: PooledConnection) -> tuple[bool, int]:
            return avoid is not None and member.local_address == avoid, member.claimed

        return min((member for member in self.members if member.room(UNBOUNDED) > 0), key=merits, default=None)

    def see(self, member: PooledConnection) -> None:
        """Learn from an open connection what the server speaks and allows."""
        http = member.http
        if http is None:
            return
        self.speaks_http2 = http.http_version == "HTTP/2"
        # What it says first, because the next connection will get that as well.
        if http.is_ready and not member.has_said:
            member.has_said = True
            self.streams = min(BUSY_STREAMS, http.capacity) or self.streams

    def see_closed(self, member: PooledConnection, now_ns: int, *, by_idle_peer: bool, unwelcome_pings: bool) -> bool:
        """Learn from a connection's end; True where the server closed it because it was idle."""
        self.pings_unwelcome = self.pings_unwelcome or unwelcome_pings
        return by_idle_peer and now_ns - member.unused_since_ns >= _SHORTEST_IDLE_NS


class Pool:
    """The connections of one transport (in one event loop). Not thread-safe.

    `make` makes a member that is about to open; the caller of a method that may have made some then starts those that
    `take_orders()` gives.
    """

    def __init__(self, settings: PoolSettings, make: Callable[[ServerOrigin], PooledConnection]) -> None:
        self.settings = settings
        self._max_connections = settings.max_connections
        self._http2 = settings.http2
        self._idle_ns = int(settings.idle_s * 1e9)
        """For how long after the last call a connection that the server closes is replaced, where it is kept warm."""
        self._make = make
        self._origins: dict[ServerOrigin, OriginState] = {}
        self._most_origins = MOST_ORIGINS
        self._waiting: dict[ServerOrigin, OriginState] = {}
        """Those at which a call waits."""
        self._numbers = count()
        self._count = 0
        self._idle: OrderedDict[PooledConnection, None] = OrderedDict()
        """Open connections without a call, the one that has had none for the longest time first."""
        self.new: list[PooledConnection] = []
        """To be opened now. May be looked at without the lock; taken by `take_orders()`, like `surplus`."""
        self.surplus: list[PooledConnection] = []
        """Idle ones, out of the pool already, that are to be closed."""

    # What there is

    def members(self) -> Iterator[PooledConnection]:
        """Every connection, open or opening."""
        for state in list(self._origins.values()):
            yield from list(state.members)

    def is_opening(self, origin: ServerOrigin) -> bool:
        """Whether a connection to the origin is being opened. May be asked without the lock."""
        state = self._origins.get(origin)
        return state is not None and state.opening > 0

    def take_orders(self) -> tuple[list[PooledConnection], list[PooledConnection]]:
        """Take `new` and `surplus`."""
        orders = self.new, self.surplus
        self.new, self.surplus = [], []
        return orders

    def take_unwanted(self, origin: ServerOrigin) -> list[PooledConnection]:
        """The connections that were being opened and that no call waits for any more: out of the pool, to be closed."""
        state = self._origins.get(origin)
        if state is None or state.waiters or not state.opening:
            return []
        unwanted = [member for member in state.members if not member.is_open]
        for member in unwanted:
            self._remove(state, member)  # at once, so that the next call does not wait for one that fails
            member.is_closed = True
        return unwanted

    # Calls

    def claim(self, origin: ServerOrigin, now_ns: int, avoid: str | None = None) -> PooledConnection | None:
        """Return a slot on an open connection, at `avoid` (a local address) only if no other has one; None to wait."""
        state = self._origins.get(origin) or self._state(origin)
        state.last_used_ns = now_ns
        if state.waiters and state.has_queue:
            return None  # first come, first served
        member = self._pick(state, now_ns, avoid)
        # Answers that were dropped unread leave quietly: a finaliser cannot take the pool's lock.
        if member is None and self._settle_all(state, now_ns) and not self._waiting:
            member = self._pick(state, now_ns, avoid)
        return member

    def wait(self, origin: ServerOrigin, waiter: Waiter, now_ns: int) -> None:
        """Queue a call, and open a connection for it where that is the way."""
        state = self._state(origin)
        state.waiters[waiter] = next(self._numbers)
        self._waiting[origin] = state
        try:
            self.serve(now_ns)
        except BaseException:  # no connection can be made: no call may be left in the queue
            self.withdraw(origin, waiter)
            raise

    def withdraw(self, origin: ServerOrigin, waiter: Waiter) -> None:
        """The call waits no longer."""
        state = self._origins.get(origin)
        if state is not None and waiter in state.waiters:
            # First, as Ctrl-C may come in between: `serve` counts on waiters for each origin in `_waiting`.
            if len(state.waiters) == 1:
                self._waiting.pop(origin, None)
            state.waiters.pop(waiter, None)

    def unclaim(self, member: PooledConnection, now_ns: int) -> None:
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
        """Give out no connection any more."""
        for state in list(self._waiting.values()):
            self._refuse(state, error)

    # Connections

    def opened(self, member: PooledConnection, now_ns: int) -> None:
        """Note that a connection has opened."""
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

    def failed(self, member: PooledConnection, error: TransportError, now_ns: int) -> None:
        """The connection failed to open: pass the error to the calls that waited, unless others are opening."""
        state = self._state_with(member)
        if state is None:
            return
        self._remove(state, member)
        if state.will_have_places:
            state.grow_after_ns = now_ns + GROW_AGAIN_NS
        else:
            self._refuse(state, error)
        self.serve(now_ns)

    def changed(self, member: PooledConnection, now_ns: int) -> None:
        """Exchanges have ended, or the peer allows more or fewer of them."""
        state = self._state_with(member)
        if state is None or not member.is_open:
            return
        self._settle(state, member, now_ns)
        state.see(member)
        self.serve(now_ns)

    def closed(self, member: PooledConnection, now_ns: int, *, by_idle_peer: bool, unwelcome_pings: bool) -> None:
        """Note that a connection is closed. `by_idle_peer`: by the peer, while no call was on it."""
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

    def keep_warm(self, origin: ServerOrigin) -> None:
        """From now on, replace an idle connection that the server closes."""
        self._state(origin).keep_warm = True

    def allows_pings(self, origin: ServerOrigin) -> bool:
        """Whether the server has not objected to pings on an idle connection. May be asked without the lock."""
        state = self._origins.get(origin)
        return state is None or not state.pings_unwelcome

    def _state(self, origin: ServerOrigin) -> OriginState:
        state = self._origins.get(origin)
        if state is None:
            if len(self._origins) >= self._most_origins:
                self._origins = {key: each for key, each in self._origins.items() if not each.is_quiet}
                # Where all are busy, not again for each further one.
                self._most_origins = max(MOST_ORIGINS, 2 * len(self._origins))
            state = self._origins[origin] = OriginState(origin)
        return state

    def _state_with(self, member: PooledConnection) -> OriginState | None:
        """The state of a member's origin; None if the member is not, or no longer, in the pool."""
        state = self._origins.get(member.origin)
        return state if state is not None and member in state.members else None

    def _pick(
        self, state: OriginState, now_ns: int, avoid: str | None, *, anywhere: bool = False
    ) -> PooledConnection | None:
        """Claim a place on a connection that is not too busy; wherever one is if no further one can be opened."""
        member = state.with_room(avoid)
        if member is None:
            if not anywhere and (state.opening or (now_ns >= state.grow_after_ns and self._has_place())):
                return None  # a further connection is the better place
            member = state.with_any_room(avoid)
            if member is None:
                return None
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
        self.new += [member]

    def _retire_oldest(self) -> None:
        """Take the connection out of the pool, to be closed, that has been without a call the longest."""
        member = next(iter(self._idle))
        state, had_room = self._origins[member.origin], member.room(UNBOUNDED) > 0
        self.surplus.append(member)  # first: Ctrl-C may come behind it, and what is closed leaves the pool by itself
        self._remove(state, member)
        member.is_closed = True
        # Two origins whose servers allow nothing would close each other's connections for ever.
        if not had_room:
            self._refuse(state, state.fruitless_end())

    def _remove(self, state: OriginState, member: PooledConnection) -> None:
        state.spare.pop(member, None)
        self._idle.pop(member, None)
        # Without a call in between, as in `_open`.
        del state.members[member]
        if not member.is_open:
            state.opening -= 1
        self._count -= 1

    def _has_left(self, state: OriginState, member: PooledConnection, now_ns: int) -> None:
        """Note what places less have come to."""
        if not member.claimed and member not in self._idle:
            member.idle_since_ns = member.unused_since_ns = now_ns
            self._idle[member] = None
            if state.speaks_http2 is False:
                state.spare.pop(member, None)  # to the end
        if member not in state.spare:
            state.spare[member] = None

    def _settle(self, state: OriginState, member: PooledConnection, now_ns: int) -> None:
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
        while retired < len(self.surplus):
            retired = len(self.surplus)
            for state in sorted(self._waiting.values(), key=lambda each: next(iter(each.waiters.values()))):
                state.grant(now_ns, self._pick)
                if state.waiters:
                    self._grow(state, now_ns)
                if not state.opening:
                    state.grant(now_ns, partial(self._pick, anywhere=True))
                if not state.waiters:
                    self._waiting.pop(state.origin, None)
            while len(self._idle) > MOST_IDLE:
                self._retire_oldest()

    def _grow(self, state: OriginState, now_ns: int) -> None:
        """Open as many connections as the calls that wait need, and no more."""
        if (now_ns < state.grow_after_ns and state.members) or state.allows_nothing:
            return
        http2 = self._http2 == "require" or (self._http2 == "prefer" and state.origin.scheme == "https")
        while state.expected_places(http2=http2) < len(state.waiters) and self._has_place():
            self._open(state)
