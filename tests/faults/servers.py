"""The server of one cell: none, broken TLS, a scripted one or the embedded provider, and what it counted."""

from __future__ import annotations

import contextlib
import datetime as dt
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import pytest
import trustme

from fastlane.emulator import Emulator
from tests.faults.scripts import answer
from tests.faults.table import Cell, Fault
from tests.faults.wire import Counts, Server
from tests.transport.connect_proxy import ConnectProxy
from tests.transport.peer import LOCAL_NAMES, authority


@dataclass
class FaultServer:
    """Where a cell's call goes."""

    base_url: str
    counts: Counts = field(default_factory=Counts)
    servers: list[Server] = field(default_factory=list)

    def complaints(self) -> list[str]:
        """What clients did wrong."""
        return [said for server in self.servers for said in server.complaints()]

    def is_left(self) -> bool:
        """Whether clients have closed every connection."""
        return all(server.is_left() for server in self.servers)


@contextmanager
def serving(cell: Cell, fault: Fault, emulator: Emulator, large_bytes: int) -> Iterator[FaultServer]:
    """The server of a cell, for one call."""
    counts = Counts()
    with ExitStack() as stack:
        if fault.peer == "emulator":
            yield FaultServer(emulator.base_url)
        elif fault.tls in ("cut", "silent"):
            yield FaultServer(f"https://127.0.0.1:{stack.enter_context(_no_handshake(fault.tls))}/v1")
        elif fault.peer == "proxy":
            stack.enter_context(_proxy(fault.proxy))
            yield FaultServer("https://127.0.0.1:9/v1")
        elif fault.peer == "none" and fault.name.startswith("DNS"):
            # Reserved for names that there are not (RFC 6761).
            yield FaultServer("https://no-such-host.invalid/v1")
        elif fault.peer == "none":
            taken = stack.enter_context(socket.socket())
            taken.bind(("127.0.0.1", 0))
            yield FaultServer(f"https://127.0.0.1:{taken.getsockname()[1]}/v1")
        else:
            context = None if fault.tls is None else _context(fault.tls, cell.protocol)
            server = Server(cell.protocol, fault.script or answer, counts, large_bytes=large_bytes, context=context)
            stack.enter_context(server)
            server.other = Server(cell.protocol, answer, counts, main=server)
            stack.enter_context(server.other)
            yield FaultServer(f"{server.url}/v1", counts, [server, server.other])


def counted(fault_server: FaultServer, fault: Fault, emulator: Emulator, tag: str) -> Counts:
    """What the server of a cell has counted of a call."""
    if fault.peer != "emulator":
        return fault_server.counts
    entries = [entry for entry in emulator.log() if entry.tag == tag]
    begun = sum(entry.admitted_ns is not None for entry in entries) if fault.begins else 0
    return Counts(requests=len(entries), begun=begun)


def _context(tls: str, protocol: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    names = ("another.host",) if tls == "wrong host" else LOCAL_NAMES
    issuer = trustme.CA() if tls == "untrusted" else authority()
    expires = dt.datetime(2020, 1, 1, tzinfo=dt.UTC) if tls == "expired" else None
    issuer.issue_cert(*names, not_after=expires).configure_cert(context)
    context.set_alpn_protocols(["h2" if protocol == "HTTP/2" else "http/1.1"])
    return context


@contextmanager
def _proxy(answer: bytes | None) -> Iterator[None]:
    """A proxy in the environment of the clients that are made meanwhile."""
    with socket.socket() as unused, ConnectProxy(answer=answer) as proxy, pytest.MonkeyPatch.context() as patch:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}" if answer is None else proxy.url
        patch.setenv("HTTPS_PROXY", url)
        yield


@contextmanager
def _no_handshake(tls: str) -> Iterator[int]:
    """A port where TLS is begun and cut, or never answered."""
    closing = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0), backlog=50)

    def serve() -> None:
        open_: list[socket.socket] = []
        with contextlib.suppress(OSError):
            while not closing.is_set():
                connection, _ = listener.accept()
                connection.settimeout(5)
                with contextlib.suppress(OSError):
                    connection.recv(100)
                if tls == "cut":
                    connection.close()
                else:
                    open_.append(connection)
        for connection in open_:
            connection.close()

    thread = threading.Thread(target=serve, name="peer", daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        closing.set()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(30)
