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
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastlane._clock import now_ns

from ..pool.settings import Http2
from ..protocols.exchange import Loser, Opening, TransportError

_IDLE_S = 60
_INTERVAL_S = 10
_PROBES = 3

# Two silences are bounded by the same time. Sent data that nobody acknowledges (TCP_USER_TIMEOUT; Linux alone would
# go on for about 15 minutes), and a connection on which nothing is sent, that is one that waits for an answer, whose
# peer does not even acknowledge the kernel's probes (SO_KEEPALIVE). A peer that is there acknowledges both at once, in
# its kernel, however long its application thinks: waiting long for an answer is no reason for either.
# The two are not independent. Where TCP_USER_TIMEOUT is set, Linux no longer counts the probes: it gives up at the
# first one unanswered once the peer has been silent for so long (tcp_keepalive_timer in net/ipv4/tcp_timer.c). With
# 30 s and a first probe after 60 s, one lost packet would end a call that waits. 60 + 3 * 10 s leaves three probes,
# spread over an interruption of 20 s, such as that of a network that is being changed.
USER_TIMEOUT_S: float = _IDLE_S + _PROBES * _INTERVAL_S

_TCP_USER_TIMEOUT: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)
_KEEP_IDLE: int | None = getattr(socket, "TCP_KEEPIDLE", None) or getattr(socket, "TCP_KEEPALIVE", None)
_KEEP_INTERVAL: int | None = getattr(socket, "TCP_KEEPINTVL", None)
_KEEP_COUNT: int | None = getattr(socket, "TCP_KEEPCNT", None)


def prepare(sock: socket.socket, user_timeout_s: float | None) -> None:
    """Make a TCP socket that is about to connect non-blocking, undelayed, and sure to notice that its peer is gone.

    `user_timeout_s`: how long the peer may leave data or probes unacknowledged; None for the kernel's own patience with
    data. Probes are sent after 60 s and then every 10 s, and closer together where that leaves fewer than three.
    """
    sock.setblocking(False)
    idle_s, interval_s = _IDLE_S, _INTERVAL_S
    if user_timeout_s is not None and user_timeout_s < USER_TIMEOUT_S:
        interval_s = max(1, int(user_timeout_s / USER_TIMEOUT_S * _INTERVAL_S))
        idle_s = max(1, int(user_timeout_s) - _PROBES * interval_s)
    _set(sock, socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _set(sock, socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    _set(sock, socket.IPPROTO_TCP, _KEEP_IDLE, idle_s)
    _set(sock, socket.IPPROTO_TCP, _KEEP_INTERVAL, interval_s)
    _set(sock, socket.IPPROTO_TCP, _KEEP_COUNT, _PROBES)
    if user_timeout_s is not None:
        _set(sock, socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, max(1, int(user_timeout_s * 1_000)))


def _set(sock: socket.socket, level: int, option: int | None, value: int) -> None:
    """Ask for an option where the system has it: a connection without it is still a connection."""
    if option is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(level, option, value)


# How soon a thread that waits notices that nobody wants its connection any more.
CANCEL_LOOK_NS = 50_000_000
_NS = 1_000_000_000
# Threads that may wait for the resolver at once, each for another name.
_MOST_LOOKUPS = 32


class Address(NamedTuple):
    """An address to connect to."""

    family: int
    socket_address: tuple[Any, ...]
    """As the socket module has it for the family."""

    def __str__(self) -> str:
        return address_text(self.socket_address)


def address_text(socket_address: tuple[Any, ...]) -> str:
    """Return host and port, such as "1.2.3.4:443" or "[::1]:443"."""
    host, port = socket_address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


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


def lookup_timed_out() -> TransportError:
    """Return the error of a lookup that took too long."""
    return TransportError("ConnectTimeout", "timed out")


def lookup_cancelled() -> TransportError:
    """Return the error of a cancelled lookup."""
    return TransportError("ConnectError", "The connection was given up before it was open.")


def literal_address(host: str, port: int) -> list[Address] | None:
    """Return the address if the host is one already; None for a name."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if address.version == 4:
        return [Address(socket.AF_INET, (host, port))]
    if "%" not in host:
        return [Address(socket.AF_INET6, (host, port, 0, 0))]
    return resolve(host, port, socket.AI_NUMERICHOST)  # the zone's number; asks nobody


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


def _patience_s(deadline_ns: int | None, cancelled: Callable[[], bool] | None) -> float | None:
    """Return the seconds until the next check, or None. Raises TransportError at the deadline or when cancelled."""
    waits = []
    if cancelled is not None:
        if cancelled():
            raise lookup_cancelled()
        waits.append(CANCEL_LOOK_NS)
    if deadline_ns is not None:
        waits.append(deadline_ns - now_ns())
        if waits[-1] <= 0:
            raise lookup_timed_out()
    return min(waits) / _NS if waits else None


class _Lookups:
    """Name lookups in threads, because nothing can interrupt the resolver."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: dict[tuple[str, int], list[list[Address] | TransportError]] = {}

    def ask(self, host: str, port: int, deadline_ns: int | None, cancelled: Callable[[], bool] | None) -> list[Address]:
        """Return the addresses of a name. Concurrent lookups of the same name share one result."""
        key = host, port
        answer: list[list[Address] | TransportError] | None = None
        with self._changed:
            while True:
                if answer is None:
                    answer = self._running.get(key)
                if answer is None and len(self._running) < _MOST_LOOKUPS:
                    answer = self._running[key] = []
                    thread = threading.Thread(target=self._run, args=(key, answer), name="fastlane-dns", daemon=True)
                    try:
                        thread.start()
                    except BaseException as error:
                        del self._running[key]
                        if not isinstance(error, RuntimeError):
                            raise
                        break  # the interpreter is ending, or the system has no thread left
                if answer:
                    break
                self._changed.wait(_patience_s(deadline_ns, cancelled))
        if not answer:
            return resolve(host, port)
        if isinstance(answer[0], TransportError):
            raise answer[0].again()
        return answer[0]

    def _run(self, key: tuple[str, int], answer: list[list[Address] | TransportError]) -> None:
        found: list[Address] | TransportError
        try:
            found = resolve(*key)
        except TransportError as error:
            found = error
        except BaseException as error:  # noqa: BLE001 - those who wait must hear of it
            found = TransportError("ConnectError", str(error))
        with self._changed:
            answer.append(found)
            if self._running.get(key) is answer:
                del self._running[key]
            self._changed.notify_all()


_lookups = _Lookups()


def _after_fork() -> None:
    global _lookups  # noqa: PLW0603 - its threads do not exist in the child
    _lookups = _Lookups()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def resolve_within(
    host: str, port: int, deadline_ns: int | None, cancelled: Callable[[], bool] | None
) -> list[Address]:
    """Return the addresses of a name. Raises TransportError at the deadline or when cancelled."""
    if deadline_ns is None and cancelled is None:
        return resolve(host, port)
    return _lookups.ask(host, port, deadline_ns, cancelled)


_PROTOCOLS: dict[Http2, list[str]] = {
    "prefer": ["h2", "http/1.1"],
    "require": ["h2"],
    "never": ["http/1.1"],
}

_Key = tuple[bool, str, str | None, str | None, Http2]

_contexts: dict[_Key, ssl.SSLContext] = {}
# Reading the system's certificates takes about 17 ms: whoever comes meanwhile waits for them. Reading them makes
# objects, and with them garbage collections, in which a finaliser may come back here.
_lock = threading.RLock()


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
    was asked for last.

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
    key = verify, library, file, directory, http2
    context = _contexts.get(key)
    if context is None:
        with _lock:
            context = _contexts.get(key)
            if context is None:
                context = _made(library, file, directory, verify=verify)
                context.set_alpn_protocols(_PROTOCOLS[http2])
                _contexts[key] = context
    return context


def _made(library: str, file: str | None, directory: str | None, *, verify: bool) -> ssl.SSLContext:
    # The same choice as the library's own `create_ssl_context`, except that it does not look at the environment again:
    # what counts is what the client was made with.
    if file:
        return ssl.create_default_context(cafile=file)
    if directory:
        return ssl.create_default_context(capath=directory)
    made: ssl.SSLContext = importlib.import_module(library).create_ssl_context(verify=verify, trust_env=False)
    return made


def _trust_after_fork() -> None:
    global _lock  # noqa: PLW0603 - another thread may have held it, and does not exist in the child
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_trust_after_fork)


# The Connection Attempt Delay that RFC 8305, 5, recommends.
ATTEMPT_DELAY_NS = 250_000_000
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
        """Return how the connection was opened, TLS included."""
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
        """Return the next address to try."""
        now = now_ns()
        if self._deadline_ns is not None and now >= self._deadline_ns:
            raise lookup_timed_out()
        if not self._waiting or (self._next_ns is not None and now < self._next_ns):
            return None
        self._next_ns = now + ATTEMPT_DELAY_NS
        return self._waiting.popleft()

    def failed(self, address: Address, error: Exception) -> None:
        """Note a failed attempt: the next address is tried at once."""
        self._next_ns = None
        self._errors.append(error.with_traceback(None))  # its frames hold this race
        self.losers.append(Loser(str(address), type(error).__name__))

    def wait_s(self, most_ns: int | None = None) -> float | None:
        """Return the seconds until the next attempt starts; None if none is left."""
        now = now_ns()
        waits = [] if most_ns is None else [most_ns]
        if self._waiting and self._next_ns is not None:
            waits.append(self._next_ns - now)
        if self._deadline_ns is not None:
            waits.append(self._deadline_ns - now)
        return max(0, min(waits)) / _NS if waits else None

    def lost(self) -> TransportError:
        """Return the error after every address has failed."""
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
        """Return the connection of the attempt that succeeded. Raises OSError if it is gone already."""
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
    """Connect from a thread, and wait. `cancelled` is polled, and ends the wait with a ConnectError.

    Raises TransportError: ConnectError, or ConnectTimeout once `deadline_ns` (on the one clock) has passed.
    """
    dns: tuple[int | None, int | None] = None, None
    addresses = literal_address(host, port)
    if addresses is None:
        dns_started_ns = now_ns()
        addresses = resolve_within(host, port, deadline_ns, cancelled)
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
                    raise lookup_cancelled()
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
    addresses = literal_address(host, port)
    if addresses is None:
        dns_started_ns = now_ns()
        try:
            async with asyncio.timeout(None if deadline_ns is None else (deadline_ns - dns_started_ns) / _NS):
                addresses = to_addresses(await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except TimeoutError:
            raise lookup_timed_out() from None
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
