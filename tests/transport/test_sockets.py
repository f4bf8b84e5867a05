"""The kernel gets the options that a connection needs, and reports what it measured."""

from __future__ import annotations

import ctypes
import select
import socket
import struct
import sys
from collections.abc import Callable, Iterator

import pytest

from fastlane.transport.drivers import connect as _connect
from fastlane.transport.drivers.connect import prepare

linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux only")


@pytest.fixture
def pair() -> Iterator[Callable[[], tuple[socket.socket, socket.socket]]]:
    """Makes connections over loopback: the client's end and the server's."""
    made: list[socket.socket] = []

    def make() -> tuple[socket.socket, socket.socket]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            made.append(socket.create_connection(listener.getsockname()))
            made.append(listener.accept()[0])
        return made[-2], made[-1]

    yield make
    for sock in made:
        sock.close()


def option(sock: socket.socket, name: str) -> int:
    return sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))


def test_socket_has_keepalive_and_timeout_options() -> None:
    with socket.socket() as sock:
        prepare(sock)
        assert not sock.getblocking()
        assert option(sock, "TCP_NODELAY")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if sys.platform == "linux":
            assert (option(sock, "TCP_KEEPIDLE"), option(sock, "TCP_KEEPINTVL"), option(sock, "TCP_KEEPCNT")) == (
                60,
                10,
                3,
            )
            assert option(sock, "TCP_USER_TIMEOUT") == 90_000


def test_missing_socket_options_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_connect, "_OPTIONS", (("TCP_NO_SUCH", 9), ("TCP_USER_TIMEOUT", -1)))
    with socket.socket() as sock:
        prepare(sock)
        assert option(sock, "TCP_NODELAY")


def deafen(sock: socket.socket) -> None:
    """Have the kernel drop every packet for a socket, acknowledgements included: its machine is gone."""
    drop = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))  # BPF_RET, 0 bytes
    so_attach_filter = 26
    sock.setsockopt(socket.SOL_SOCKET, so_attach_filter, struct.pack("HL", 1, ctypes.addressof(drop)))


@linux
@pytest.mark.kernel
def test_connection_ends_only_when_the_peer_is_gone(
    pair: Callable[[], tuple[socket.socket, socket.socket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (waiting, thinking), (deserted, gone), (sending, deaf) = pair(), pair(), pair()
    monkeypatch.setattr(_connect, "_OPTIONS", (("TCP_KEEPIDLE", 1), ("TCP_KEEPINTVL", 1), ("TCP_USER_TIMEOUT", 3_000)))
    for sock in (waiting, deserted, sending):
        prepare(sock)
    deafen(gone)
    deafen(deaf)
    sending.send(b"x")
    for sock in (deserted, sending):
        assert select.select([sock], [], [], 40)[0]
        with pytest.raises(TimeoutError):
            sock.recv(1)
    # As silent as the deserted one, and for as long: but its peer's kernel has answered the probes.
    assert not select.select([waiting], [], [], 1)[0]
    thinking.send(b"x")
    assert select.select([waiting], [], [], 40)[0]
    assert waiting.recv(1) == b"x"
