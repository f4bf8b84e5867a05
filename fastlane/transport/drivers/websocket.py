"""WebSockets: the clients of `websockets` on TCP connections that our own connect, tunnels and TLS settings open.

Imported only where a WebSocket is opened, because `websockets` comes with an extra. It does the protocol: frames,
fragments, pings, the closing handshake, receiving that can be cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Self
from urllib.parse import quote
from weakref import WeakSet

from websockets.asyncio import client as asyncio_client
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidStatus, ProxyError
from websockets.frames import CloseCode
from websockets.protocol import State
from websockets.sync import client as sync_client
from websockets.uri import parse_uri

from fastlane._clock import now_ns

from ..pool.settings import PoolSettings, ProxyServer, ServerOrigin
from ..protocols.exchange import Opening, TransportError, authority_of
from .connect import connect_asyncio, connect_sync, ssl_context
from .connection import ClientConnection, Tls

# Options of an application that are not about the TCP connection, as `sock` and `proxy` are.
_OPTIONS = frozenset({
    "close_timeout", "compression", "extensions", "logger", "max_queue", "max_size", "open_timeout", "origin",
    "ping_interval", "ping_timeout", "subprotocols", "write_limit",
})  # fmt: skip
_OPEN_TIMEOUT_S = 10.0  # websockets' own
_READ_BYTES = 65_536
_open: WeakSet[Any] = WeakSet()


def connects(connect: Any = None) -> bool:
    """Return whether `websockets` connects, by its function or the class `connect`; False for a mock of either."""
    if connect is None:
        return getattr(sync_client.connect, "__globals__", None) is vars(sync_client)
    return isinstance(connect, type)


class _Socket:
    """What the sync and the async class add to those of `websockets`."""

    opening: Opening | None = None
    """How the TCP connection was opened; None if `websockets` has opened it."""
    opened_ns = 0
    """When the server had agreed to the upgrade: monotonic nanoseconds."""
    watcher: Any = None
    """Gets what goes through the socket: `sending(message)` before a message is sent, with its result `sent(sending,
    error)` after that, `received(message)`, and `closed(error)`, with None if the application has closed it."""
    protocol: Any
    sock: socket.socket | None = None
    """The TCP connection, if it was opened here."""
    is_foreign = False
    """Whether it belongs to the parent process."""

    def is_up(self) -> None:
        """Note that the server has agreed to the upgrade."""
        self.opened_ns = now_ns()
        _open.add(self)

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent: neither side has begun to close it."""
        return not self.is_foreign and self.protocol.state is State.OPEN

    @contextlib.contextmanager
    def _sending(self, message: Any) -> Iterator[None]:
        self._check_process()
        watcher = self.watcher
        sending = None if watcher is None else watcher.sending(message)
        try:
            yield
        except BaseException as error:
            if watcher is not None:
                watcher.sent(sending, error)
            raise
        if watcher is not None:
            watcher.sent(sending, None)

    def _closed(self, error: ConnectionClosed) -> None:
        if error.sent is not None and error.sent.code == CloseCode.MESSAGE_TOO_BIG:
            error.add_note(
                f"A message is larger than max_size={self.protocol.max_size}, which the connection was opened "
                'with. websocket_connection_options={"max_size": None} takes messages of any size.'
            )
        if self.watcher is not None:
            self.watcher.closed(error)

    def _check_process(self) -> None:
        if self.is_foreign:
            raise ConnectionClosedError(None, None) from OSError(
                "the WebSocket belongs to the parent process: open one in this process"
            )

    def let_go(self) -> None:
        """Close the descriptor in a child process: the connection is the parent's."""
        self.is_foreign = True
        if self.sock is not None:
            self.sock.close()


class ThreadSocket(_Socket, sync_client.ClientConnection):
    """A WebSocket for threads: one may receive while others send."""

    def send(self, message: Any, text: bool | None = None) -> None:
        """Send a message. Raises websockets' ConnectionClosed."""
        with self._sending(message):
            super().send(message, text)

    def recv(self, timeout: float | None = None, decode: bool | None = None) -> Any:
        """Return the next message. Raises websockets' ConnectionClosed, and TimeoutError."""
        self._check_process()
        watcher = self.watcher
        try:
            message = super().recv(timeout, decode)
        except ConnectionClosed as error:
            self._closed(error)
            raise
        if watcher is not None:
            watcher.received(message)
        return message

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Close the connection with the closing handshake."""
        if not self.is_foreign:
            super().close(code, reason)
            if self.watcher is not None:
                self.watcher.closed(None)

    def abort(self) -> None:
        """End the connection at once, without the closing handshake. Never waits; from any thread, also a finalizer."""
        if not self.is_foreign:
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)

    def let_go(self) -> None:
        """Close the descriptor in a child process: the connection is the parent's."""
        self.sock = self.socket
        super().let_go()


class LoopSocket(_Socket, asyncio_client.ClientConnection):
    """A WebSocket on an event loop: one task may receive while others send."""

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent: neither side has begun to close it, nor has its event loop ended."""
        return super().is_open and not self.loop.is_closed()

    def connection_made(self, transport: Any) -> None:
        """Keep the event loop's transport, whose TLS with the server is open."""
        tls = transport.get_extra_info("ssl_object")
        if self.opening is not None and tls is not None:
            self.opening = replace(
                self.opening, tls_ended_ns=now_ns(), alpn=tls.selected_alpn_protocol(), tls_version=tls.version()
            )
        super().connection_made(transport)

    async def send(self, message: Any, text: bool | None = None) -> None:
        """Send a message. Raises websockets' ConnectionClosed."""
        with self._sending(message):
            await super().send(message, text)

    async def recv(self, decode: bool | None = None) -> Any:
        """Return the next message; being cancelled loses none. Raises websockets' ConnectionClosed."""
        self._check_process()
        watcher = self.watcher
        try:
            message = await super().recv(decode)
        except ConnectionClosed as error:
            self._closed(error)
            raise
        if watcher is not None:
            watcher.received(message)
        return message

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close the connection with the closing handshake."""
        if not self.is_foreign:
            await super().close(code, reason)
            if self.watcher is not None:
                self.watcher.closed(None)

    def abort(self) -> None:
        """End the connection at once, without the closing handshake. Never waits; from any thread, also a finalizer."""
        if not self.is_foreign:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self.loop.call_soon_threadsafe(self.transport.abort)


def _let_go_in_child() -> None:
    for each in list(_open):
        each.let_go()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_child)


# Opening


class _TlsSocket:
    """A TCP socket with TLS, for one thread that receives and others that send.

    `ssl.SSLSocket`, which `websockets` would use, must not be read and written at once: what is sent may be lost.
    """

    def __init__(self, sock: socket.socket, tls: Tls) -> None:
        self._sock, self._tls, self._lock = sock, tls, threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def wrap_socket(self, *_: object, **__: object) -> _TlsSocket:
        """Return this socket, where `websockets` asks a TLS context for one."""
        return self

    def recv(self, size: int) -> bytes:
        """Return what came, as soon as it is anything; empty at the end."""
        plain = b""
        while not plain and not self._tls.ended:
            data = self._sock.recv(size)
            if not data:
                break
            with self._lock:
                plain = self._tls.feed(data)
                self._flush()
        return plain

    def sendall(self, data: bytes) -> None:
        """Send all of it."""
        with self._lock:
            self._tls.wrap(data)
            self._flush()

    def shutdown(self, how: int) -> None:
        """End sending, by TLS too, or both."""
        if how == socket.SHUT_WR:
            with self._lock:
                self._tls.close()
                self._flush()
        self._sock.shutdown(how)

    def _flush(self) -> None:
        data = self._tls.data_to_send()
        if data:
            self._sock.sendall(data)


class Tcp(ClientConnection):
    """A TCP connection to the server of a ws:// or wss:// URL, by way of its proxy. Does no I/O."""

    def __init__(
        self, settings: PoolSettings | None, url: str, options: Mapping[str, Any], *, asynchronous: bool
    ) -> None:
        """`settings`: None if `websockets` is to open the connection. `options`: arguments of websockets' `connect`."""
        self.arguments: dict[str, Any] = {"create_connection": self._make}
        """Further arguments of `connect`."""
        self._kind: Any = LoopSocket if asynchronous else ThreadSocket
        self.made: Any = None
        """The socket that `websockets` has made of it, and closes."""
        self.sock: socket.socket | None = None
        self.opening: Opening | None = None
        limit_s: float | None = options.get("open_timeout", _OPEN_TIMEOUT_S)
        self._until_ns = None if limit_s is None else now_ns() + int(limit_s * 1e9)
        self.is_ours = False
        """Whether it is to be opened here."""
        if settings is None:
            return
        self._uri = uri = parse_uri(url)
        # An event loop does TLS with the server by itself, and not inside TLS.
        scheme = "http" if asynchronous or not uri.secure else "https"
        self._settings = settings = replace(settings, http2="never")
        super().__init__(ServerOrigin(scheme, uri.host, uri.port, uri.host), settings)
        self.proxy = settings.proxy_for("https" if uri.secure else "http", uri.host, uri.port)
        self._forwards = False
        through_tls = self.proxy is not None and self.proxy.scheme == "https"
        self.is_ours = options.keys() <= _OPTIONS and not (asynchronous and through_tls)
        self.arguments |= self._for_websockets(through_tls=through_tls)
        self.arguments = {name: value for name, value in self.arguments.items() if name not in options}

    def _for_websockets(self, *, through_tls: bool) -> dict[str, Any]:
        """Return how `websockets` reaches the server."""
        arguments: dict[str, Any] = {"ssl": self.context(None)} if self._uri.secure else {}
        if not self.is_ours:
            arguments["proxy"] = None if self.proxy is None else _ProxyUrl(self.proxy)
            if through_tls:
                arguments["proxy_ssl"] = self.context(self.proxy)
        return arguments

    def context(self, proxy: ProxyServer | None) -> ssl.SSLContext:
        """Return the TLS context for a proxy, or for the server (None)."""
        settings = self._settings
        verify = settings.verify if proxy is None else proxy.verify
        return ssl_context(verify, settings.certificates, "never", library=settings.library)

    def _make(self, *arguments: Any, **options: Any) -> Any:
        uri = arguments[-1].uri  # of the protocol
        if self.opening is not None and (uri.host, uri.port) != (self._uri.host, self._uri.port):
            raise ConnectionError("the server of the WebSocket changed after its connection had been opened")
        made = self.made = self._kind(*arguments, **options)
        made.opening, made.sock = self.opening, self.sock
        return made

    @property
    def left_s(self) -> float | None:
        """Seconds that are left to open it; None for any number."""
        return None if self._until_ns is None else max(0.0, (self._until_ns - now_ns()) / 1e9)

    def opened(self, opening: Opening) -> None:
        """Hand the connection over to `websockets`, after the handshakes."""
        self.establish(opening, now_ns())
        assert self.opening is not None
        assert self.sock is not None
        self.arguments |= {"sock": self.sock, "open_timeout": self.left_s}
        if self.tls is not None:
            self.arguments["sock"] = self.arguments["ssl"] = _TlsSocket(self.sock, self.tls)
        elif self._uri.secure:
            self.opening = replace(self.opening, tls_started_ns=now_ns())

    @contextlib.contextmanager
    def closing_on_error(self) -> Iterator[None]:
        """Close what is open after an error, and raise that as `websockets` raises it."""
        try:
            yield
        except (TransportError, OSError) as error:
            self.close()
            raise self._as_websockets_error(error) from None
        except BaseException:
            self.close()
            raise

    def _as_websockets_error(self, error: Exception) -> Exception:
        if self.left_s == 0:
            server = authority_of(*self.connects_to)
            return TimeoutError(f"no connection to {server} for the WebSocket within open_timeout")
        if not isinstance(error, TransportError):
            return error
        error = self.of_proxy(error) if self.sock is None else error
        if error.name == "ProxyError":
            return ProxyError(error.message)
        return error.__cause__ if isinstance(error.__cause__, OSError) else ConnectionError(error.message)

    def close(self) -> None:
        """Close it, unless `websockets` has taken it over and closes it."""
        if self.sock is not None and self.made is None:
            self.sock.close()


class _ProxyUrl(str):
    """The URL of a proxy, which shows no credentials where options are logged."""

    __slots__ = ()

    def __new__(cls, proxy: ProxyServer) -> Self:
        login = "" if proxy.credentials is None else ":".join(quote(each, safe="") for each in proxy.credentials) + "@"
        return super().__new__(cls, f"{proxy.scheme}://{login}{proxy.address}")

    def __repr__(self) -> str:
        return "<proxy>"


def open_tcp(settings: PoolSettings | None, url: str, options: Mapping[str, Any]) -> Tcp:
    """Open what a `ThreadSocket` to a URL needs; nothing without settings.

    Raises OSError, TimeoutError, and ProxyError of `websockets`.
    """
    tcp = Tcp(settings, url, options, asynchronous=False)
    if tcp.is_ours:
        with tcp.closing_on_error():
            tcp.begin_handshakes(tcp.context)
            tcp.sock, opening = connect_sync(*tcp.connects_to, cancelled=lambda: tcp.left_s == 0)
            done = tcp.handshake()
            while True:
                tcp.sock.settimeout(tcp.left_s)
                tcp.sock.sendall(tcp.handshake_output())
                if done:
                    break
                data = tcp.sock.recv(_READ_BYTES)
                if not data:
                    raise tcp.cut_off()
                done = tcp.handshake(data)
            tcp.sock.settimeout(None)
            tcp.opened(opening)
    return tcp


async def open_async_tcp(settings: PoolSettings | None, url: str, options: Mapping[str, Any]) -> Tcp:
    """Open what a `LoopSocket` needs, on the running event loop; see `open_tcp`."""
    tcp = Tcp(settings, url, options, asynchronous=True)
    if tcp.is_ours:
        loop = asyncio.get_running_loop()
        with tcp.closing_on_error():
            async with asyncio.timeout(tcp.left_s):
                tcp.begin_handshakes(tcp.context)
                tcp.sock, opening = await connect_asyncio(*tcp.connects_to)
                done = tcp.handshake()
                while True:
                    await loop.sock_sendall(tcp.sock, tcp.handshake_output())
                    if done:
                        break
                    data = await loop.sock_recv(tcp.sock, _READ_BYTES)
                    if not data:
                        raise tcp.cut_off()
                    done = tcp.handshake(data)
            tcp.opened(opening)
    return tcp


async def follow_redirect(tcp: Tcp, refused: InvalidStatus, connect: Any, options: Mapping[str, Any]) -> Any:
    """Follow the redirect of a refused upgrade, where `connect` allows it: `websockets` does not with a given `sock`.

    `connect`: a subclass of websockets' own. Raises what it raises.
    """
    protocol, sent = tcp.made.protocol, tcp.made.request.headers.raw_items()
    own = {"host", "upgrade", "connection"}
    headers = [(n, v) for n, v in sent if n.lower() not in own and not n.lower().startswith("sec-websocket-")]
    uri = protocol.uri
    url = f"{'wss' if uri.secure else 'ws'}://{authority_of(uri.host, uri.port)}{uri.resource_name}"
    extensions = {"extensions": protocol.available_extensions, "compression": None, "max_size": protocol.max_size}
    more = {name: value for name, value in tcp.arguments.items() if name in ("ssl", "create_connection")}
    again = connect(url, user_agent_header=None, additional_headers=headers, **{**options, **extensions, **more})
    found = again.process_redirect(refused)
    if not isinstance(found, str):
        raise found from refused
    again.uri = found
    return await again
