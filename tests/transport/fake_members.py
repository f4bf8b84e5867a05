"""A pool's connections without any network: the test sets what happens to them, and checks which call got a slot."""

from __future__ import annotations

from typing import Any

from fastlane.transport import PoolSettings
from fastlane.transport.pool.pool import Pool, PooledConnection
from fastlane.transport.pool.settings import Http2, ServerOrigin
from fastlane.transport.protocols.exchange import TransportError

SECOND = 1_000_000_000
FAILURE = TransportError("ConnectError", "no server there")


def origin_of(number: int = 0) -> ServerOrigin:
    return ServerOrigin("https", f"host{number}.test", 443, f"host{number}.test")


HERE, THERE = origin_of(1), origin_of(2)


class FakeHttp:
    """As much of a protocol's connection as a pool looks at."""

    def __init__(self, http_version: str, capacity: int) -> None:
        self.http_version = http_version
        self.capacity = capacity
        self.open_exchanges = 0
        self.is_ready = True


class FakeMember(PooledConnection):
    """A connection that has an address at our end."""

    def __init__(self, origin: ServerOrigin, address: str) -> None:
        super().__init__(origin)
        self._address = address

    @property
    def local_address(self) -> str | None:
        return self._address if self.is_open else None


class FakeWaiter:
    """A call that waits, and what became of it."""

    def __init__(self, avoid: str | None = None) -> None:
        self.avoid = avoid
        self.member: PooledConnection | None = None
        self.error: TransportError | None = None

    def grant(self, member: PooledConnection) -> None:
        assert self.waits
        self.member = member

    def refuse(self, error: TransportError) -> None:
        assert self.waits
        self.error = error

    @property
    def waits(self) -> bool:
        return self.member is None and self.error is None


class Desk:
    """A pool, its clock, and what a driver would do."""

    def __init__(self, *, max_connections: int = 1_000, http2: bool = True, idle_s: float = 300.0) -> None:
        self.now_ns = 1_000 * SECOND
        self.opening: list[PooledConnection] = []
        """Connections that the pool wants opened, the first first."""
        self.surplus: list[PooledConnection] = []
        """Connections that the pool wants closed."""
        self.made = 0
        http2_setting: Http2 = "prefer" if http2 else "never"
        settings = PoolSettings(max_connections=max_connections, http2=http2_setting, idle_s=idle_s)
        self.pool = Pool(settings, self._make)

    def _make(self, origin: ServerOrigin) -> PooledConnection:
        self.made += 1
        return FakeMember(origin, f"127.0.0.1:{self.made}")

    def take(self) -> None:
        """What a driver does after each call of the pool."""
        new, surplus = self.pool.take_orders()
        self.opening += new
        self.surplus += surplus

    def ask(self, origin: ServerOrigin = HERE, *, avoid: str | None = None) -> FakeWaiter:
        """A call requests a slot."""
        call = FakeWaiter(avoid)
        member = self.pool.claim(origin, self.now_ns, call.avoid)
        if member is None:
            self.pool.wait(origin, call, self.now_ns)
        else:
            call.grant(member)
        self.take()
        return call

    def ask_often(self, number: int, origin: ServerOrigin = HERE) -> list[FakeWaiter]:
        return [self.ask(origin) for _ in range(number)]

    def opens(self, capacity: int = 100, *, http_version: str = "HTTP/2", ready: bool = True) -> PooledConnection:
        """The first connection that is being opened is open."""
        member = self.opening.pop(0)
        http: Any = FakeHttp(http_version, capacity)
        http.is_ready = ready
        member.http = http
        self.pool.opened(member, self.now_ns)
        self.take()
        return member

    def opens_http1(self) -> PooledConnection:
        return self.opens(1, http_version="HTTP/1.1")

    def fails(self) -> None:
        """The first connection that is being opened cannot be."""
        self.pool.failed(self.opening.pop(0), FAILURE, self.now_ns)
        self.take()

    def ends(self, call: FakeWaiter) -> None:
        """The call's answer is over, and the driver says so."""
        self.ends_quietly(call)
        member = call.member
        assert member is not None
        self.changes(member)

    def ends_quietly(self, call: FakeWaiter) -> None:
        """The call's response is over without a report: its finaliser could not take the lock."""
        exchange: Any = object()
        assert call.member is not None
        call.member.ended.append(exchange)

    def changes(self, member: PooledConnection, capacity: int | None = None) -> None:
        if capacity is not None:
            http_of(member).capacity = capacity
        self.pool.changed(member, self.now_ns)
        self.take()

    def leaves(self, call: FakeWaiter) -> None:
        """The call leaves without having begun."""
        assert call.member is not None
        self.pool.unclaim(call.member, self.now_ns)
        self.take()

    def closes(self, member: PooledConnection, *, by_peer: bool = True) -> None:
        self.pool.closed(member, self.now_ns, by_idle_peer=by_peer and not member.claimed, unwelcome_pings=False)
        self.take()

    def passes(self, seconds: float) -> None:
        self.now_ns += int(seconds * SECOND)

    @property
    def members(self) -> list[PooledConnection]:
        return list(self.pool.members())


def http_of(member: PooledConnection) -> Any:
    assert member.http is not None
    return member.http
