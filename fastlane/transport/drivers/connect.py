"""Connect to a host by whichever of its addresses answers first (Happy Eyeballs, RFC 8305)."""

from __future__ import annotations

import asyncio
import errno
import os
import selectors
import socket
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fastlane._clock import now_ns

from ..protocols.errors import TransportError
from ..protocols.phases import Loser, Opening
from .addresses import (
    CANCEL_LOOK_NS,
    Address,
    address_text,
    connect_error,
    literal,
    look_up,
    timed_out,
    unwanted,
    usable,
)
from .sockets import USER_TIMEOUT_S, prepare

# The Connection Attempt Delay that RFC 8305, 5, recommends.
ATTEMPT_DELAY_NS = 250_000_000
_NS = 1_000_000_000
_PENDING = frozenset(
    {errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR, getattr(errno, "WSAEWOULDBLOCK", errno.EWOULDBLOCK)}
)
# What a machine without IPv6, or without a route there, says of every such address: it explains no failure that
# another address explains.
_HERE_ERRORS = frozenset({errno.ENETUNREACH, errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EHOSTUNREACH})


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """A connection that is open, with how it came about. Stamps as in `Opening`."""

    socket: socket.socket
    """Non-blocking and prepared. Whoever takes it closes it."""
    dns_started_ns: int | None
    dns_ended_ns: int | None
    connect_started_ns: int
    connect_ended_ns: int
    local_address: str
    peer_address: str
    losers: tuple[Loser, ...]

    def opening(
        self,
        *,
        tls_started_ns: int | None = None,
        tls_ended_ns: int | None = None,
        alpn: str | None = None,
        tls_version: str | None = None,
    ) -> Opening:
        """How the connection was opened, TLS included."""
        return Opening(
            dns_started_ns=self.dns_started_ns,
            dns_ended_ns=self.dns_ended_ns,
            connect_started_ns=self.connect_started_ns,
            connect_ended_ns=self.connect_ended_ns,
            tls_started_ns=tls_started_ns,
            tls_ended_ns=tls_ended_ns,
            local_address=self.local_address,
            peer_address=self.peer_address,
            losers=self.losers,
            alpn=alpn,
            tls_version=tls_version,
        )


class _Race:
    """Which address is tried when. Knows no sockets."""

    def __init__(self, addresses: list[Address], deadline_ns: int | None) -> None:
        self._waiting = deque(addresses)
        self._next_ns: int | None = None
        self._deadline_ns = deadline_ns
        self._errors: list[Exception] = []
        self.losers: list[Loser] = []
        self.started_ns = now_ns()

    def next(self) -> Address | None:
        """The address that is to be tried now."""
        now = now_ns()
        if self._deadline_ns is not None and now >= self._deadline_ns:
            raise timed_out()
        if not self._waiting or (self._next_ns is not None and now < self._next_ns):
            return None
        self._next_ns = now + ATTEMPT_DELAY_NS
        return self._waiting.popleft()

    def failed(self, address: Address, error: Exception) -> None:
        """An attempt has failed: the next address is tried at once."""
        self._next_ns = None
        self._errors.append(error.with_traceback(None))  # its frames hold this race
        self.losers.append(Loser(str(address), type(error).__name__))

    def wait_s(self, most_ns: int | None = None) -> float | None:
        """For how long nothing is to be done unless an attempt ends; None for ever."""
        now = now_ns()
        waits = [] if most_ns is None else [most_ns]
        if self._waiting and self._next_ns is not None:
            waits.append(self._next_ns - now)
        if self._deadline_ns is not None:
            waits.append(self._deadline_ns - now)
        return max(0, min(waits)) / _NS if waits else None

    def lost(self) -> TransportError:
        """Every address has failed."""
        errors = [error for error in self._errors if getattr(error, "errno", None) not in _HERE_ERRORS]
        error = connect_error((errors or self._errors)[0])
        error.__cause__ = (errors or self._errors)[0]
        return error

    def won(
        self,
        sock: socket.socket,
        address: Address,
        slower: Iterable[Address],
        dns: tuple[int | None, int | None],
    ) -> Connected:
        """An attempt has succeeded. Raises OSError where the connection is gone already, or no connection."""
        connect_ended_ns = now_ns()
        local, peer = sock.getsockname(), sock.getpeername()
        if local == peer:
            # A port of this machine that nobody listens at may be given to the very socket that connects to it.
            raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        return Connected(
            socket=sock,
            dns_started_ns=dns[0],
            dns_ended_ns=dns[1],
            connect_started_ns=self.started_ns,
            connect_ended_ns=connect_ended_ns,
            local_address=address_text(local),
            peer_address=str(address),
            losers=(*self.losers, *(Loser(str(other), "slower") for other in slower if other != address)),
        )


def _begun(address: Address, user_timeout_s: float | None) -> socket.socket:
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        prepare(sock, user_timeout_s)
    except BaseException:
        sock.close()
        raise
    return sock


def connect_sync(
    host: str,
    port: int,
    *,
    deadline_ns: int | None = None,
    user_timeout_s: float | None = USER_TIMEOUT_S,
    cancelled: Callable[[], bool] | None = None,
) -> Connected:
    """Connect from a thread, which waits. `cancelled` is asked now and then, and ends the wait with a ConnectError.

    Raises TransportError: ConnectError, or ConnectTimeout once `deadline_ns` (on the one clock) has passed.
    """
    dns: tuple[int | None, int | None] = None, None
    addresses = literal(host, port)
    if addresses is None:
        dns_started_ns = now_ns()
        addresses = look_up(host, port, deadline_ns, cancelled)
        dns = dns_started_ns, now_ns()
    return _raced(_Race(addresses, deadline_ns), dns, user_timeout_s, cancelled)


def _raced(
    race: _Race,
    dns: tuple[int | None, int | None],
    user_timeout_s: float | None,
    cancelled: Callable[[], bool] | None,
) -> Connected:
    connected: Connected | None = None
    running: dict[socket.socket, Address] = {}
    with getattr(selectors, "PollSelector", selectors.SelectSelector)() as selector:
        try:
            while connected is None:
                if cancelled is not None and cancelled():
                    raise unwanted()
                address = race.next()
                if address is not None:
                    try:
                        sock = _begun(address, user_timeout_s)
                    except OSError as error:  # such as no IPv6, or no descriptor left
                        race.failed(address, error)
                        continue
                    running[sock] = address
                    selector.register(sock, selectors.EVENT_WRITE, sock)
                    code = sock.connect_ex(address.socket_address)
                    ready = [] if code in _PENDING else [(sock, code)]
                elif not running:
                    raise race.lost()
                else:
                    found = selector.select(race.wait_s(CANCEL_LOOK_NS if cancelled is not None else None))
                    ready = [(key.data, key.data.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)) for key, _ in found]
                for sock, code in ready:
                    try:
                        if code:
                            raise OSError(code, os.strerror(code))
                        connected = race.won(sock, running[sock], running.values(), dns)
                        break
                    except OSError as error:
                        race.failed(running.pop(sock), error)
                        selector.unregister(sock)
                        sock.close()
        finally:
            for sock in running:
                if connected is None or sock is not connected.socket:
                    sock.close()
    return connected


async def connect_asyncio(
    host: str,
    port: int,
    *,
    deadline_ns: int | None = None,
    user_timeout_s: float | None = USER_TIMEOUT_S,
) -> Connected:
    """Connect on the running event loop; otherwise as `connect_sync`. Cancelling it closes every socket."""
    loop = asyncio.get_running_loop()
    dns: tuple[int | None, int | None] = None, None
    addresses = literal(host, port)
    if addresses is None:
        dns_started_ns = now_ns()
        try:
            async with asyncio.timeout(None if deadline_ns is None else (deadline_ns - dns_started_ns) / _NS):
                addresses = usable(await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except TimeoutError:
            raise timed_out() from None
        except (OSError, ValueError) as error:
            raise connect_error(error) from error
        dns = dns_started_ns, now_ns()
    race = _Race(addresses, deadline_ns)
    running: dict[asyncio.Task[None], tuple[socket.socket, Address]] = {}
    connected: Connected | None = None
    try:
        while connected is None:
            address = race.next()
            if address is not None:
                try:
                    sock = _begun(address, user_timeout_s)
                except OSError as error:
                    race.failed(address, error)
                    continue
                running[loop.create_task(_attempt(loop, sock, address))] = sock, address
            elif not running:
                raise race.lost()
            ended, _ = await asyncio.wait(running, timeout=race.wait_s(), return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                sock, address = running[task]
                try:
                    task.result()
                    connected = race.won(sock, address, (other for _, other in running.values()), dns)
                    break
                except OSError as error:
                    race.failed(address, error)
                    del running[task]
                    sock.close()
    finally:
        for task, (sock, _) in running.items():
            if connected is None or sock is not connected.socket:
                _give_up(task, sock)
    return connected


async def _attempt(loop: asyncio.AbstractEventLoop, sock: socket.socket, address: Address) -> None:
    await loop.sock_connect(sock, address.socket_address)


def _give_up(task: asyncio.Task[None], sock: socket.socket) -> None:
    def close(task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # seen
        sock.close()

    # The loop watches the descriptor until the task has ended: closed before, its number could be another socket's.
    task.cancel()
    if task.done():
        close(task)
    else:
        task.add_done_callback(close)
