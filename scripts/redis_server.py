"""Start a real Redis server on loopback that keeps nothing and disappears when it is not needed any more.

    python -m scripts.redis_server                 runs one until Ctrl-C, and says where
    python -m scripts.redis_server make test       runs a command with its address in REDIS_URL
    python -m scripts.redis_server --install       sees to it that the server is installed, and nothing else

Where no server is installed, the distribution's package is, by apt-get and only as root. Tests use `RedisServer`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import quote

from scripts import distribution
from scripts.ports import free_port

# Valkey speaks the same protocol, and some distributions have only that.
_PROGRAMS = ("redis-server", "valkey-server")
_PACKAGE = "redis-server"
_INSTALL_S = 120.0
_START_S = 10.0


class RedisUnavailableError(RuntimeError):
    """No server is installed, and none can be: the message says why."""


class Certificates(NamedTuple):
    """Files in PEM that a server with TLS shows."""

    authority: Path
    certificate: Path
    key: Path


def program(*, limit_s: float = _INSTALL_S) -> str:
    """Return the server's program, which is installed first where it is missing. Raises RedisUnavailableError."""
    try:
        return distribution.program(_PROGRAMS, package=_PACKAGE, limit_s=limit_s)
    except distribution.MissingProgramError as error:
        raise RedisUnavailableError(str(error)) from error


class RedisServer:
    """A server on a free port of 127.0.0.1 and on a Unix socket, in a directory that goes with it."""

    def __init__(self, *, password: str | None = None, tls: Certificates | None = None) -> None:
        self.port = 0
        self._password = password
        self._tls = tls
        self._process: subprocess.Popen[bytes] | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    @property
    def url(self) -> str:
        """Its address, password included."""
        if self._tls is None:
            return f"redis://{self._user}127.0.0.1:{self.port}/0"
        return f"rediss://{self._user}127.0.0.1:{self.port}/0?ssl_ca_certs={quote(str(self._tls.authority))}"

    @property
    def unix_url(self) -> str:
        """The address of its Unix socket, password included."""
        return f"unix://{self._user}{self._socket}"

    @property
    def _user(self) -> str:
        return "" if self._password is None else f":{quote(self._password, safe='')}@"

    @property
    def _socket(self) -> Path:
        assert self._directory is not None, "the server has not been started"
        return Path(self._directory.name, "redis.sock")

    def start(self) -> None:
        """Start it, on its former port where it had one. Raises RedisUnavailableError."""
        name = program()
        self._directory = self._directory or tempfile.TemporaryDirectory(prefix="redis-")
        for _ in range(1 if self.port else 5):
            port = self.port or free_port()
            if self._starts(name, port):
                self.port = port
                return
        log = Path(self._directory.name, "log")
        last = next(reversed(log.read_text(errors="replace").splitlines()), "") if log.exists() else ""
        raise RedisUnavailableError(f"{name} does not start: {last}")

    def _starts(self, name: str, port: int) -> bool:
        settings = {
            "bind": "127.0.0.1",
            "dir": str(self._socket.parent),
            "unixsocket": str(self._socket),
            "logfile": "log",
            "daemonize": "no",
            "save": "",
            "appendonly": "no",
            "port": str(port),
        }
        if self._password is not None:
            settings["requirepass"] = self._password
        if self._tls is not None:
            settings |= {"port": "0", "tls-port": str(port), "tls-auth-clients": "no"}
            settings |= {"tls-ca-cert-file": str(self._tls.authority), "tls-cert-file": str(self._tls.certificate)}
            settings |= {"tls-key-file": str(self._tls.key)}
        # By a file, because what is on a command line is seen by everybody.
        file = self._socket.with_name("redis.conf")
        file.write_text("".join(f'{key} "{value}"\n' for key, value in settings.items()), encoding="utf-8")
        self._process = subprocess.Popen(
            [name, str(file)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + _START_S
        while self._process.poll() is None and time.monotonic() < until:
            if self._answers():
                return True
            time.sleep(0.01)
        self.kill()
        return False

    def _answers(self) -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(1.0)
                client.connect(str(self._socket))
                client.sendall(b"PING\r\n")
                return client.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Have it accept connections, by its kernel, and answer nothing."""
        assert self._process is not None, "the server has not been started"
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None, "the server has not been started"
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it, and remove what it has left."""
        self._end(signal.SIGTERM)
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        if number != signal.SIGKILL:
            process.send_signal(signal.SIGCONT)
        try:
            process.wait(5.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code."""
    try:
        if arguments in (["--help"], ["-h"]):
            print(__doc__)
            return 0
        if arguments == ["--install"]:
            print(program())
            return 0
        with RedisServer() as server, contextlib.suppress(KeyboardInterrupt):
            if arguments:
                return subprocess.run(arguments, env={**os.environ, "REDIS_URL": server.url}, check=False).returncode
            print(server.url, flush=True)
            signal.pause()
    except RedisUnavailableError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
