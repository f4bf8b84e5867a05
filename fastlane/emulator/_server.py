"""The provider on a socket, in this process and event loop."""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Self, cast

from fastlane.emulator._batch_log import Offline
from fastlane.emulator._batches import Batches
from fastlane.emulator._bodies import ALL_ENCODINGS
from fastlane.emulator._certificates import ServerTls, make_tls
from fastlane.emulator._connection import WINDOW_BYTES, ConnectionSettings, ServerConnection, ServerProtocol
from fastlane.emulator._faults import Fault
from fastlane.emulator._http1 import Http1
from fastlane.emulator._http2 import Http2
from fastlane.emulator._log import RequestLog
from fastlane.emulator._provider import Provider
from fastlane.emulator._service import ProviderService
from fastlane.emulator.settings import BatchSettings, Dialect, ProviderModel

from ..errors import ConfigurationError

_BACKLOG = 1_024


class Server:
    """`async with Server(model=…) as server:` listens on `server.port` until the block ends."""

    def __init__(
        self,
        *,
        model: ProviderModel,
        seed: int = 0,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: bool = True,
        http2: bool = True,
        max_concurrent_streams: int = 100,
        initial_window_bytes: int = WINDOW_BYTES,
        connection_window_bytes: int | None = None,
        faults: Iterable[Fault | str] = (),
        accepted_encodings: Iterable[str] = ALL_ENCODINGS,
        encoding_refusal_status: int = 415,
        dialect: Dialect | None = None,
        batches: BatchSettings | None = None,
        late_ms: float = 0.0,
    ) -> None:
        self.provider = Provider(
            model,
            seed=seed,
            faults=[Fault.parse(fault) if isinstance(fault, str) else fault for fault in faults],
            accepted_encodings=accepted_encodings,
            encoding_refusal_status=encoding_refusal_status,
            dialect=dialect,
        )
        self.host = host
        self.port = port
        self.connections = 0
        self._late_s = checked_late_ms(late_ms) / 1e3
        self._tls: ServerTls | None = make_tls(host, http2=http2) if tls else None
        self._settings = ConnectionSettings(
            http2=http2,
            max_concurrent_streams=max_concurrent_streams,
            window_bytes=initial_window_bytes,
            connection_window_bytes=connection_window_bytes,
        )
        self._service = ProviderService(self.provider, Batches(self.provider, batches))
        self._open: set[ServerConnection] = set()
        self._listener: asyncio.Server | None = None

    @property
    def authority_pem(self) -> bytes | None:
        """The certificate authority by which clients can trust the server; None without TLS."""
        return self._tls.authority_pem if self._tls else None

    @property
    def base_url(self) -> str:
        """What a client takes as its base URL."""
        return base_url(self.host, self.port, tls=self._tls is not None)

    @property
    def log(self) -> tuple[RequestLog, ...]:
        """The records of all requests so far."""
        return self.provider.ledger.read()

    @property
    def offline(self) -> Offline:
        """What was done with files and batches so far."""
        return self._service.batches.log()

    def client_context(self) -> ssl.SSLContext:
        """Return a TLS context that trusts the server."""
        return ssl.create_default_context(cadata=(self.authority_pem or b"").decode())

    async def __aenter__(self) -> Self:
        context = self._tls.context if self._tls else None
        listen = asyncio.get_running_loop().create_server
        if context is not None and self._late_s:
            late = partial(_LateHandshake, self._late_s, context, self._accept)
            self._listener = await listen(late, self.host, self.port, backlog=_BACKLOG)
        else:
            self._listener = await listen(self._accept, self.host, self.port, ssl=context, backlog=_BACKLOG)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._listener:
            self._listener.close()
        for connection in tuple(self._open):
            connection.abort()
        self._service.close()
        # One turn for the connections to learn that they are gone, one for their answers to stop.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def _accept(self) -> ServerConnection:
        self.connections += 1
        connection = _Tracked(f"c{self.connections}", self._service, self._settings, _choose)
        connection.open_connections = self._open
        return connection


def base_url(host: str, port: int, *, tls: bool) -> str:
    """Return what a client takes as its base URL."""
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}/v1"


def checked_late_ms(late_ms: float) -> float:
    """Return it. Raises ConfigurationError unless it is a finite number of milliseconds from 0."""
    if not 0 <= late_ms < math.inf:
        raise ConfigurationError(f"late_ms must be a finite number of milliseconds from 0, got {late_ms!r}")
    return late_ms


class _LateHandshake(asyncio.Protocol):
    """A TCP connection whose TLS handshake begins some seconds after it was accepted."""

    def __init__(self, late_s: float, context: ssl.SSLContext, accept: Callable[[], ServerConnection]) -> None:
        self._late_s = late_s
        self._context = context
        self._accept = accept
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # start_tls() would hand the connection its first data before connection_made().
        sock = transport.get_extra_info("socket").dup()
        cast(asyncio.Transport, transport).abort()
        self._task = asyncio.get_running_loop().create_task(self._begin(sock))

    async def _begin(self, sock: socket.socket) -> None:
        try:
            await asyncio.sleep(self._late_s)
            await asyncio.get_running_loop().connect_accepted_socket(self._accept, sock, ssl=self._context)
        except OSError:  # the client has left; ssl.SSLError is one too
            sock.close()
        except BaseException:
            sock.close()
            raise


class _Tracked(ServerConnection):
    open_connections: set[ServerConnection]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.open_connections.add(self)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open_connections.discard(self)
        super().connection_lost(exc)


def _choose(connection: ServerConnection, http2: bool) -> ServerProtocol:
    return Http2(connection) if http2 else Http1(connection)
