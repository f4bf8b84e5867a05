"""Connect to a host: addresses, sockets, TLS contexts, and the race of addresses (Happy Eyeballs, RFC 8305)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib
import ipaddress
import os
import selectors
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple, cast

from fastlane._clock import now_ns

from ..pool.settings import Http2
from ..protocols.exchange import Opening, TransportError, authority_of

# Two silences end a connection after the same 90 s. Sent data that is not acknowledged (TCP_USER_TIMEOUT; Linux alone
# would go on for about 15 minutes), and a connection that waits for a response and whose peer does not acknowledge the
# kernel's probes (SO_KEEPALIVE). A live peer acknowledges both in its kernel, however long its application thinks.
# Where TCP_USER_TIMEOUT is set, Linux no longer counts the probes: it gives up at the first unanswered one once the
# peer has been silent for so long (tcp_keepalive_timer in net/ipv4/tcp_timer.c). So it leaves time for all three.
_IDLE_S = 60
_INTERVAL_S = 10
_PROBES = 3
_OPTIONS = (
    ("TCP_KEEPIDLE" if hasattr(socket, "TCP_KEEPIDLE") else "TCP_KEEPALIVE", _IDLE_S),
    ("TCP_KEEPINTVL", _INTERVAL_S),
    ("TCP_KEEPCNT", _PROBES),
    ("TCP_USER_TIMEOUT", (_IDLE_S + _PROBES * _INTERVAL_S) * 1_000),
)


def prepare(sock: socket.socket) -> None:
    """Make a TCP socket that is about to connect non-blocking, undelayed, and sure to notice that its peer is gone."""
    sock.setblocking(False)
    _set(sock, socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _set(sock, socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS:
        _set(sock, socket.IPPROTO_TCP, getattr(socket, name, None), value)


def _set(sock: socket.socket, level: int, option: int | None, value: int) -> None:
    """Ask for an option where the system has it: a connection without it is still a connection."""
    if option is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(level, option, value)


# How soon a connecting thread notices that its connection is no longer wanted.
_CANCEL_LOOK_S = 0.05


class Address(NamedTuple):
    """An address to connect to."""

    family: int
    socket_address: tuple[Any, ...]
    """As the socket module has it for the family."""


def address_text(socket_address: tuple[Any, ...]) -> str:
    """Return host and port, such as "1.2.3.4:443" or "[::1]:443"."""
    return authority_of(*socket_address[:2])


def interleave(addresses: Iterable[Address]) -> list[Address]:
    """Alternate between the families, beginning with that of the first address, each once (RFC 8305, 4)."""
    families: dict[int, deque[Address]] = {}
    for address in dict.fromkeys(addresses):
        families.setdefault(address.family, deque()).append(address)
    ordered = []
    while families:
        for family in list(families):
            ordered.append(families[family].popleft())
            if not families[family]:
                del families[family]
    return ordered


def connect_error(error: Exception) -> TransportError:
    """Return an operating system's error with the message of the stock client."""
    number = getattr(error, "errno", None)
    text = str(error)
    if number and not isinstance(error, socket.gaierror):
        text = f"[Errno {number}] {os.strerror(number)}"  # the same from asyncio, which puts in words of its own
    # As httpcore has it, where the kernel's own patience ended.
    return TransportError("ConnectTimeout" if isinstance(error, TimeoutError) else "ConnectError", text)


def literal_address(host: str, port: int) -> list[Address] | None:
    """Return the address if the host is one already; None for a name."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if address.version == 4:
        return [Address(socket.AF_INET, (host, port))]
    return resolve(host, port, socket.AI_NUMERICHOST)  # with the number of a zone; sends no query


def resolve(host: str, port: int, flags: int = 0) -> list[Address]:
    """Return the addresses of a host, without a timeout. Raises TransportError."""
    try:
        return to_addresses(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags))
    except (OSError, ValueError) as error:  # ValueError: no name at all, such as one with an empty label
        raise connect_error(error) from error


def to_addresses(found: Iterable[tuple[Any, ...]]) -> list[Address]:
    """Return the results of `getaddrinfo` in the order in which to try them."""
    addresses = [Address(family, socket_address) for family, _, _, _, socket_address in found]
    if not addresses:
        raise OSError("the name has no address")
    return interleave(addresses)


_PROTOCOLS: dict[Http2, list[str]] = {
    "prefer": ["h2", "http/1.1"],
    "require": ["h2"],
    "never": ["http/1.1"],
}


def ssl_context(
    verify: bool | ssl.SSLContext,
    certificates: tuple[str | None, str | None],
    http2: Http2,
    *,
    library: str = "httpx2",
) -> ssl.SSLContext:
    """Return the TLS context for a setting, the same one each time.

    `verify`: True for the trust of the stock client; False, said explicitly, for none at all; or a context of the
    application's, which is used as it is, apart from the protocols that it offers (ALPN). Those are written into it, as
    httpcore does: where an application gives one context to clients of different `http2`, each connection offers what
    was requested last.

    `certificates`: SSL_CERT_FILE and SSL_CERT_DIR, as they were when the client was made.

    `library`: the HTTP library whose trust is the stock client's: httpx2 takes the system's, legacy httpx certifi's.
    """
    if isinstance(verify, ssl.SSLContext):
        verify.set_alpn_protocols(_PROTOCOLS[http2])
        return verify
    if verify is not True and verify is not False:
        # None and 0 come from mistakes, which must not switch verification off.
        raise TypeError(f"verify is True, False or an ssl.SSLContext, not {verify!r}")
    file, directory = (name or None for name in certificates) if verify else (None, None)
    return _made(library, file, directory, http2, verify=verify)


@cache
def _made(library: str, file: str | None, directory: str | None, http2: Http2, *, verify: bool) -> ssl.SSLContext:
    # The same choice as the library's own `create_ssl_context`, except that it does not look at the environment again:
    # what counts is what the client was made with. Reading the system's certificates takes about 17 ms.
    made: ssl.SSLContext
    if file:
        made = ssl.create_default_context(cafile=file)
    elif directory:
        made = ssl.create_default_context(capath=directory)
    else:
        made = importlib.import_module(library).create_ssl_context(verify=verify, trust_env=False)
    made.set_alpn_protocols(_PROTOCOLS[http2])
    return made


# The Connection Attempt Delay that RFC 8305, 5, recommends.
ATTEMPT_DELAY_NS = 250_000_000
_PENDING = frozenset(
    {errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR, getattr(errno, "WSAEWOULDBLOCK", errno.EWOULDBLOCK)}
)


class _Race:
    """Which address is tried when. Knows no sockets."""

    def __init__(self, addresses: list[Address], dns_started_ns: int | None = None) -> None:
        self._waiting = deque(addresses)
        self._next_ns = self.started_ns = now_ns()
        self._dns_started_ns = dns_started_ns
        self._error: Exception | None = None

    def next(self) -> Address | None:
        """Return the next address to try; None if it is not its turn yet."""
        now = now_ns()
        if not self._waiting or now < self._next_ns:
            return None
        self._next_ns = now + ATTEMPT_DELAY_NS
        return self._waiting.popleft()

    def failed(self, error: Exception) -> None:
        """Note a failed attempt: the next address is tried at once."""
        self._next_ns = 0
        self._error = error.with_traceback(None)  # its frames hold this race

    def wait_s(self) -> float | None:
        """Return the seconds until the next attempt starts; None if none is left."""
        return max(0, self._next_ns - now_ns()) / 1e9 if self._waiting else None

    def lost(self) -> TransportError:
        """Return the error after every address has failed: that of the last one."""
        assert self._error is not None
        error = connect_error(self._error)
        error.__cause__ = self._error
        return error

    def won(self, sock: socket.socket) -> tuple[socket.socket, Opening]:
        """Return the socket of the attempt that succeeded, and how it came about. Raises OSError if it is gone."""
        connect_ended_ns = now_ns()
        try:
            local, peer = sock.getsockname(), sock.getpeername()
        except OSError:
            sock.close()
            raise
        return sock, Opening(
            dns_started_ns=self._dns_started_ns,
            dns_ended_ns=None if self._dns_started_ns is None else self.started_ns,
            connect_started_ns=self.started_ns,
            connect_ended_ns=connect_ended_ns,
            local_address=address_text(local),
            peer_address=address_text(peer),
        )


def _prepared(address: Address) -> socket.socket:
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        prepare(sock)
    except BaseException:
        sock.close()
        raise
    return sock


def connect_sync(
    host: str, port: int, *, cancelled: Callable[[], bool] = lambda: False
) -> tuple[socket.socket, Opening]:
    """Connect from a thread: return a socket, non-blocking and prepared, and how it was opened, without TLS.

    `cancelled` is polled, and ends the wait for a server with a ConnectError.

    Raises TransportError: ConnectError, or ConnectTimeout where the kernel gave up.
    """
    addresses = literal_address(host, port)
    if addresses is not None:
        return _raced(_Race(addresses), cancelled)
    dns_started_ns = now_ns()
    return _raced(_Race(resolve(host, port), dns_started_ns), cancelled)


def _raced(race: _Race, cancelled: Callable[[], bool]) -> tuple[socket.socket, Opening]:
    connected: tuple[socket.socket, Opening] | None = None
    running: set[socket.socket] = set()
    with getattr(selectors, "PollSelector", selectors.SelectSelector)() as selector:
        try:
            while connected is None:
                if cancelled():
                    raise TransportError("ConnectError", "The connection was given up before it was open.")
                address = race.next()
                if address is not None:
                    try:
                        sock = _prepared(address)
                    except OSError as error:  # such as no IPv6, or no descriptor left
                        race.failed(error)
                        continue
                    running.add(sock)
                    selector.register(sock, selectors.EVENT_WRITE)
                    code = sock.connect_ex(address.socket_address)
                    ready = [] if code in _PENDING else [(sock, code)]
                elif not running:
                    raise race.lost()
                else:
                    wait_s = race.wait_s()
                    found = selector.select(_CANCEL_LOOK_S if wait_s is None else min(wait_s, _CANCEL_LOOK_S))
                    socks = [cast("socket.socket", key.fileobj) for key, _ in found]
                    ready = [(sock, sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)) for sock in socks]
                for sock, code in ready:
                    if not code:
                        connected = race.won(sock)
                        break
                    race.failed(OSError(code, os.strerror(code)))
                    running.remove(sock)
                    selector.unregister(sock)
                    sock.close()
        finally:
            for sock in running:
                if connected is None or sock is not connected[0]:
                    sock.close()
    return connected


async def connect_asyncio(host: str, port: int) -> tuple[socket.socket, Opening]:
    """Connect on the running event loop; otherwise as `connect_sync`. Cancelling it closes every socket."""
    loop = asyncio.get_running_loop()
    addresses, dns_started_ns = literal_address(host, port), None
    if addresses is None:
        dns_started_ns = now_ns()
        try:
            addresses = to_addresses(await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, ValueError) as error:
            raise connect_error(error) from error
    race = _Race(addresses, dns_started_ns)
    running: set[asyncio.Task[socket.socket]] = set()
    try:
        while True:
            address = race.next()
            if address is not None:
                running.add(loop.create_task(_attempt(loop, address)))
            elif not running:
                raise race.lost()
            ended, _ = await asyncio.wait(running, timeout=race.wait_s(), return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                running.remove(task)
                try:
                    return race.won(task.result())
                except OSError as error:
                    race.failed(error)
    finally:
        for task in running:
            task.cancel()
            task.add_done_callback(_close_unused)


async def _attempt(loop: asyncio.AbstractEventLoop, address: Address) -> socket.socket:
    sock = _prepared(address)
    try:
        await loop.sock_connect(sock, address.socket_address)
    except BaseException:
        sock.close()
        raise
    return sock


def _close_unused(task: asyncio.Task[socket.socket]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()
