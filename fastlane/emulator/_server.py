"""The provider on a socket, in this process and event loop."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import ssl
from collections.abc import Iterable
from dataclasses import replace
from types import TracebackType
from typing import Self

from fastlane.emulator._faults import Fault
from fastlane.emulator._http import Connection, Handshake
from fastlane.emulator._log import Offline, RequestLog
from fastlane.emulator._provider import Provider
from fastlane.emulator._service import ProviderService
from fastlane.emulator.settings import ProviderModel

from ..errors import MissingExtraError

_BACKLOG = 1_024


def make_tls(host: str, *, http2: bool) -> tuple[ssl.SSLContext, bytes]:
    """Make an authority that lives as long as this process, and a certificate for loopback and `host`.

    Returns the server's TLS context, and the authority (PEM) by which a client can trust it. Raises MissingExtraError.
    """
    try:
        import trustme
    except ModuleNotFoundError as error:
        raise MissingExtraError("bench", "trustme") from error
    authority = trustme.CA(organization_name="fastlane emulator")
    names = ["localhost", "127.0.0.1", "::1"]
    unspecified = False
    with contextlib.suppress(ValueError):
        unspecified = ipaddress.ip_address(host).is_unspecified
    if host not in names and not unspecified:
        names.append(host)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    context.set_alpn_protocols(["h2", "http/1.1"] if http2 else ["http/1.1"])
    return context, authority.cert_pem.bytes()


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
        faults: Iterable[Fault | str] = (),
    ) -> None:
        given = [Fault.parse(fault) if isinstance(fault, str) else fault for fault in faults]
        self.provider = Provider(model, seed=seed, faults=given)
        self.host = host
        self.port = port
        self.connections = 0
        self.authority_pem: bytes | None = None
        """The certificate authority by which clients can trust the server; None without TLS."""
        self._context: ssl.SSLContext | None = None
        if tls:
            self._context, self.authority_pem = make_tls(host, http2=http2)
        self._service = ProviderService(self.provider)
        self._open: set[Connection] = set()
        self._listener: asyncio.Server | None = None

    @property
    def base_url(self) -> str:
        """What a client takes as its base URL."""
        return base_url(self.host, self.port, tls=self._context is not None)

    @property
    def log(self) -> tuple[RequestLog, ...]:
        """A copy of the record of every request so far, unfinished ones included."""
        return tuple(replace(record, token_ns=tuple(record.token_ns)) for record in self.provider.records)

    @property
    def offline(self) -> Offline:
        """What was done with files and batches so far."""
        return self._service.batches.log()

    def client_context(self) -> ssl.SSLContext:
        """Return a TLS context that trusts the server."""
        return ssl.create_default_context(cadata=(self.authority_pem or b"").decode())

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.get_running_loop().create_server(
            self._accept, self.host, self.port, ssl=self._context, backlog=_BACKLOG
        )
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
        # One turn for the connections to learn that they are gone, one for their responses to stop.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def _accept(self) -> Handshake:
        self.connections += 1
        return Handshake(self.connections, self.provider, self._service.answer, self._open)


def base_url(host: str, port: int, *, tls: bool) -> str:
    """Return what a client takes as its base URL."""
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}/v1"
