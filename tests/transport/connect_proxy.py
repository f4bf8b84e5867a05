"""The smallest HTTP proxy that knows CONNECT."""

from __future__ import annotations

import contextlib
import socket

from tests.transport.peer import Listener


class ConnectProxy(Listener):
    """Joins each client with whom it asks for, and counts them."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._sockets: list[socket.socket] = []
        super().__init__("127.0.0.1")
        self.start(self._accept)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def end_connections(self) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            self._sockets.append(client)
            self.start(self._join, client)

    def _join(self, client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.recv(4_096)
        target = head.split()[1].decode()
        self.asked.append(target)
        host, _, port = target.rpartition(":")
        server = socket.create_connection((host, int(port)))
        self._sockets.append(server)
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        self.start(self._pump, server, client)
        self._pump(client, server)

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
