"""A proxy: HTTP's CONNECT and forwarding, with or without TLS to its clients, and SOCKS 5."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
from base64 import b64encode
from typing import Any

from tests.transport.peer import LOCAL_NAMES, Listener, server_context

USER, PASSWORD = "proxy-user", "proxy pass:w\u00f6rd"
CREDENTIALS = "proxy-user:proxy%20pass%3Aw%C3%B6rd@"
"""As a URL has them."""


RESET = b"reset"
"""As `answer`: it resets the connection."""


class ConnectProxy(Listener):
    """Joins each client with whom it asks for, and counts them.

    `scheme`: "http", "https", "socks5" or "socks5h". `guarded`: it wants the user and the password. `answer`: what it
    says instead of joining anybody, before it closes; empty: it says nothing, and does not close.
    """

    def __init__(self, scheme: str = "http", *, guarded: bool = False, answer: bytes | None = None) -> None:
        self.scheme, self.guarded, self.answer = scheme, guarded, answer
        self.asked: list[str] = []
        """Host and port of each requested server, as the client wrote them."""
        self.heads: list[bytes] = []
        """What each client said first, over HTTP."""
        self._sockets: list[socket.socket] = []
        super().__init__("127.0.0.1")
        self.start(self._accept)

    @property
    def url(self) -> str:
        credentials = CREDENTIALS if self.guarded else ""
        return f"{self.scheme}://{credentials}127.0.0.1:{self.port}"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def end_connections(self) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._sockets.clear()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets.append(client)
            self.start(self._join, client)

    def _join(self, client: socket.socket) -> None:
        if self.scheme == "https":
            context: ssl.SSLContext = server_context(LOCAL_NAMES, ("http/1.1",))
            client = context.wrap_socket(client, server_side=True)
            self._sockets.append(client)
        with client:
            if self.scheme.startswith("socks"):
                self._socks(client)
            else:
                self._http(client)

    # HTTP

    def _http(self, client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += _received(client)
        self.heads.append(head)
        method, target, _ = head.decode("latin-1").split(maxsplit=2)
        prefix = b""
        if method != "CONNECT":
            target = target.split("/")[2]
            prefix = f"http://{target}".encode()
        self.asked.append(target)
        basic = b64encode(f"{USER}:{PASSWORD}".encode())
        if self.answer is not None:
            self._misbehave(client)
        elif self.guarded and b"Proxy-Authorization: Basic " + basic not in head:
            client.sendall(b"HTTP/1.1 407 No\r\nproxy-authenticate: Basic realm=x\r\ncontent-length: 0\r\n\r\n")
        else:
            server = self._connected(target)
            if prefix:
                server.sendall(head.replace(prefix, b"", 1))
            else:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            self._pump(client, server, prefix)

    # SOCKS

    def _socks(self, client: socket.socket) -> None:
        def read(count: int) -> bytes:
            data = b""
            while len(data) < count:
                data += _received(client, count - len(data))
            return data

        methods = read(read(2)[1])
        if self.guarded:
            client.sendall(b"\x05\x02" if 2 in methods else b"\x05\xff")
            user = read(read(2)[1]).decode()
            password = read(read(1)[0]).decode()
            client.sendall(b"\x01\x00" if (user, password) == (USER, PASSWORD) else b"\x01\x01")
        elif self.answer is None or self.answer[:1] == b"\x05":
            client.sendall(b"\x05\x00")
        else:
            self._misbehave(client)
            return
        kind = read(4)[3]
        if kind == 3:
            host = read(read(1)[0]).decode()
        else:
            family, size = (socket.AF_INET, 4) if kind == 1 else (socket.AF_INET6, 16)
            host = socket.inet_ntop(family, read(size))
        target = f"{host}:{int.from_bytes(read(2), 'big')}"
        self.asked.append(target)
        if self.answer is not None:
            self._misbehave(client)
            return
        server = self._connected(target)
        client.sendall(b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x00")
        self._pump(client, server)

    # Both

    def _misbehave(self, client: socket.socket) -> None:
        if self.answer == RESET:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif self.answer:
            client.sendall(self.answer)
        else:
            client.recv(1)  # until the client leaves

    def _connected(self, target: str) -> socket.socket:
        host, _, port = target.rpartition(":")
        server = socket.create_connection((host.strip("[]"), int(port)))
        self._sockets.append(server)
        return server

    def _pump(self, client: Any, server: socket.socket, prefix: bytes = b"") -> None:
        """Pass bytes on, until either end has closed. `prefix`: the part of absolute URLs that the server is."""
        # ValueError: `end_connections` closed a socket before `select` took it.
        with contextlib.suppress(OSError, ValueError):
            while True:
                pending = getattr(client, "pending", int)()
                ready = [client] if pending else select.select([client, server], [], [])[0]
                for source in ready:
                    data = _received(source, 65_536)
                    if source is server:
                        client.sendall(data)
                    else:
                        server.sendall(data.replace(prefix, b"", 1) if prefix else data)
        server.close()


def _received(client: socket.socket, count: int = 4_096) -> bytes:
    data = client.recv(count)
    if not data:
        raise ConnectionResetError
    return data
