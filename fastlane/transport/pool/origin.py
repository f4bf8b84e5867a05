"""What a pool has and knows of one origin: its connections, its waiting calls, and how its server treats idle ones."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from itertools import islice
from typing import Protocol

from ..protocols.errors import TransportError
from ..protocols.exchange import Exchange, HttpConnection
from .outlook import Outlook
from .settings import Origin

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

# How far around the time after which a server closes idle connections one of them is not trusted with a call: the
# request and the server's goodbye would cross on the way, and nobody could say whether it was processed.
_DOUBT_NS = 1_000_000_000

# Servers that close a connection faster than this do not do so because it was idle.
_SHORTEST_IDLE_NS = 1_000_000_000

# Pings come no more often than this where we choose, lest a server counts them as a flood.
_SHORTEST_PING_NS = 5_000_000_000


class Waiter(Protocol):
    """A call that waits for a connection."""

    avoid: str | None
    """Local address of a connection that it takes only where no other is to be had."""

    def grant(self, member: Member) -> None:
        """A place on this connection is claimed for the call."""

    def refuse(self, error: TransportError) -> None:
        """No connection could be opened."""


class Member:
    """A connection as its pool sees it. Changed only under the pool's lock, apart from `ended` and `is_closed`."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.http: HttpConnection | None = None
        """None while the connection is being opened."""
        self.is_open = False
        """Whether the pool has heard that it is open: `http` may be there a moment earlier."""
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
    def round_trip_ns(self) -> int | None:
        """The round-trip time as it was measured last. Drivers override it."""
        return None

    @property
    def local_address(self) -> str | None:
        """Our end of the connection; None while it is being opened. Drivers override it."""
        return None

    def outlook(self, now_ns: int) -> Outlook:
        """What a request that was sent on it now would find. Drivers override it."""
        return Outlook(is_open=True)

    def looks_stale(self) -> bool:
        """Whether something has come from the peer that nobody has looked at yet. Drivers override it."""
        return False


class OriginState:
    """What the pool has and knows of one origin."""

    __slots__ = (
        "fruitless",
        "grow_after_ns",
        "idle_limit_ns",
        "keep_warm",
        "last_used_ns",
        "members",
        "opening",
        "origin",
        "pings_unwelcome",
        "round_trip_ns",
        "spare",
        "speaks_http2",
        "streams",
        "waiters",
    )

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.members: dict[Member, None] = {}
        self.opening = 0
        """How many of the members are being opened."""
        self.spare: OrderedDict[Member, None] = OrderedDict()
        """Members that may have room, the last used at the end: a call does not look through all of them."""
        self.waiters: OrderedDict[Waiter, int] = OrderedDict()
        """Each with its number in the order in which all calls of the pool began to wait."""
        self.fruitless = 0
        """Connections in a row that ended without having had a place for any of those who wait."""
        self.grow_after_ns = 0
        self.speaks_http2: bool | None = None
        self.streams = BUSY_STREAMS
        """Calls at once that the server allows on a new connection, up to `BUSY_STREAMS`."""
        self.idle_limit_ns: int | None = None
        self.pings_unwelcome = False
        self.keep_warm = False
        self.last_used_ns = 0
        self.round_trip_ns: int | None = None
        """Of the connection that was closed last."""

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

    def grant(self, now_ns: int, pick: Callable[[OriginState, int, str | None], Member | None]) -> None:
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

    def with_room(self, now_ns: int, avoid: str | None) -> Member | None:
        """The connection with room that was used last, so that others can fall idle."""
        full = []
        found = None
        for member in reversed(self.spare):
            if member.room(BUSY_STREAMS) <= 0:
                full.append(member)
            elif not self.in_doubt(member, now_ns) and (avoid is None or member.local_address != avoid):
                found = member
                break
        for member in full:
            del self.spare[member]
        return found

    def with_any_room(self, now_ns: int, avoid: str | None) -> Member | None:
        """The best connection of those that have any room: no further one can be opened."""

        def merits(member: Member) -> tuple[bool, bool, int]:
            avoided = avoid is not None and member.local_address == avoid
            return avoided, self.in_doubt(member, now_ns), member.claimed

        return min((member for member in self.members if member.room(UNBOUNDED) > 0), key=merits, default=None)

    def outlook(self, now_ns: int, *, with_ended: bool) -> Outlook:
        """What a request would find that came now. May be asked without the lock, and changes nothing.

        `with_ended`: the places count that exchanges have left without the pool's having looked.
        """
        if not self.has_queue:
            # What `Pool.claim` would look at.
            for members in (self.spare, self.members):
                for member in list(reversed(members)):
                    room = member.room(BUSY_STREAMS)
                    if with_ended and member.ended and member.is_open and not member.is_closed:
                        room += len(member.ended)
                    if room > 0 and not self._is_in_doubt(member, now_ns):
                        return member.outlook(now_ns)
        known = [member.round_trip_ns for member in list(self.members)] + [self.round_trip_ns]
        return Outlook(round_trip_time_ns=next((each for each in known if each is not None), None))

    def see(self, member: Member) -> None:
        """Learn from an open connection what the server speaks and allows."""
        http = member.http
        if http is None:
            return
        self.speaks_http2 = http.http_version == "HTTP/2"
        # What it says first, because that is what the next connection will hear as well.
        if http.is_ready and not member.has_said:
            member.has_said = True
            self.streams = min(BUSY_STREAMS, http.capacity) or self.streams

    def see_closed(self, member: Member, now_ns: int, *, by_idle_peer: bool, unwelcome_pings: bool) -> bool:
        """Learn from a connection's end; True where the server closed it because it was idle."""
        self.pings_unwelcome = self.pings_unwelcome or unwelcome_pings
        unused_ns = now_ns - member.unused_since_ns
        was_idle = by_idle_peer and unused_ns >= _SHORTEST_IDLE_NS
        if was_idle:
            self.idle_limit_ns = unused_ns
        return was_idle

    def in_doubt(self, member: Member, now_ns: int) -> bool:
        """Whether the server is likely to be closing this idle connection right now."""
        limit_ns = self.idle_limit_ns
        if limit_ns is None or member.claimed:
            return False
        unused_ns = now_ns - member.unused_since_ns
        if unused_ns > limit_ns + _DOUBT_NS:
            self.idle_limit_ns = None  # it did not close this one: what was seen had another reason
            return False
        return self._is_in_doubt(member, now_ns)

    def _is_in_doubt(self, member: Member, now_ns: int) -> bool:
        limit_ns = self.idle_limit_ns
        if limit_ns is None or member.claimed:
            return False
        # A server that closes after very little time is still worth a connection that is reused at once.
        return max(limit_ns - _DOUBT_NS, limit_ns // 2) < now_ns - member.unused_since_ns <= limit_ns + _DOUBT_NS

    def ping_interval_ns(self, wanted_ns: int) -> int | None:
        """Nanoseconds between two pings on an idle connection; None where they are not welcome."""
        if self.pings_unwelcome:
            return None
        limit_ns = self.idle_limit_ns
        # Twice within the time that the server waits.
        return wanted_ns if limit_ns is None else min(wanted_ns, max(_SHORTEST_PING_NS, limit_ns // 2))
