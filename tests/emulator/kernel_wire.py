"""Two network namespaces with a wire between them: real kernel TCP at a distance, on one machine, without netem.

The namespaces have no name: they belong to two threads of this process and vanish with the last socket in them,
however the process ends. All traffic stays inside them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self, TypeVar

T = TypeVar("T")

# linux/sched.h, linux/if_tun.h
CLONE_NEWNET = 0x4000_0000
TUNSETIFF = 0x4004_54CA
IFF_TUN_WITHOUT_PACKET_INFORMATION = 0x1001
# TEST-NET-1 (RFC 5737): addresses that never leave a machine.
CLIENT, SERVER = "192.0.2.1", "192.0.2.2"
# The default elsewhere. A machine may prefer another, and may let only a route differ from it.
CONGESTION_CONTROL = os.environ.get("FASTLANE_TEST_CONGESTION_CONTROL", "cubic")


def missing() -> str | None:
    """Say why kernel TCP cannot be put at a distance here, or None."""
    if not sys.platform.startswith("linux"):
        return f"needs Linux's network namespaces; this is {sys.platform}"
    if os.geteuid() != 0:
        return "needs root to make network namespaces"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "needs /dev/net/tun"
    if shutil.which("ip") is None:
        return "needs the ip command (Debian and Ubuntu: the package iproute2)"
    try:
        with KernelWire(0):
            return None
    except OSError as error:
        return f"may not make network namespaces with a wire between them here: {error}"


class Namespace:
    """A network namespace: what is called in it makes its sockets there."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1)
        try:
            self.call(self._enter)
        except BaseException:
            self._thread.shutdown()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def call(self, function: Callable[[], T]) -> T:
        """Call a function in the namespace's thread."""
        return self._thread.submit(function).result()

    def ip(self, *arguments: str) -> None:
        """Run the ip command in the namespace."""
        command = ["ip", *arguments]
        done = self.call(lambda: subprocess.run(command, capture_output=True, text=True, check=False))
        if done.returncode:
            raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")

    def tun(self, own: str, peer: str) -> int:
        """Make a TUN device with a route to the peer; return its file descriptor."""
        device = self.call(lambda: os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK))
        try:
            self.call(lambda: self._attach(device))
            self.ip("link", "set", "lo", "up")
            self.ip("address", "add", own, "peer", peer, "dev", "wire")
            self.ip("link", "set", "wire", "up", "txqueuelen", "5000")
            route = ("route", "replace", peer, "dev", "wire", "src", own, "initcwnd", "10")
            self.ip(*route, "congctl", CONGESTION_CONTROL)
        except BaseException:
            os.close(device)
            raise
        return device

    @staticmethod
    def _attach(device: int) -> None:
        import fcntl  # absent on Windows, where this module must still import

        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"wire", IFF_TUN_WITHOUT_PACKET_INFORMATION))

    @staticmethod
    def _enter() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        # Each connection starts without memory of the one before. Not all machines allow it, and few need it.
        with contextlib.suppress(OSError):
            Path("/proc/sys/net/ipv4/tcp_no_metrics_save").write_text("1")


class KernelWire:
    """A client's and a server's namespace, so many seconds of round trip apart."""

    def __init__(self, round_trip_time_s: float, rate_bits_per_s: float | None = None) -> None:
        self._exit = contextlib.ExitStack()
        try:
            self._client = self._exit.enter_context(Namespace())
            self._server = self._exit.enter_context(Namespace())
            devices = (self._client.tun(CLIENT, SERVER), self._server.tun(SERVER, CLIENT))
            script = str(Path(__file__).with_name("tun_relay.py"))
            numbers = (*devices, round(round_trip_time_s * 1e9 / 2), rate_bits_per_s or 0)
            command = [sys.executable, "-I", "-S", script, *map(str, numbers)]
            relay = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=devices)
            for device in devices:  # the relay has its own copies
                os.close(device)
            self._exit.callback(relay.wait, 40)
            self._exit.callback(relay.communicate)  # end of input: the relay ends
        except BaseException:
            self._exit.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def listen(self) -> socket.socket:
        """Listen in the server's namespace."""
        return self._server.call(lambda: socket.create_server((SERVER, 0), backlog=128))

    def connect(self, port: int) -> socket.socket:
        """Connect from the client's namespace to the server's."""
        return self._client.call(lambda: socket.create_connection((SERVER, port), timeout=40))
