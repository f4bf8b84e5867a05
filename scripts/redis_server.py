"""Start a real Redis server on loopback that keeps nothing and disappears when it is not needed any more.

    python -m scripts.redis_server                 runs one until Ctrl-C, and says where
    python -m scripts.redis_server make test       runs a command with its address in REDIS_URL
    python -m scripts.redis_server --install       sees to it that the server is installed, and nothing else

Where no server is installed, the distribution's package is, by apt-get and only as root. Tests use `RedisServer`.
"""

from __future__ import annotations

import signal
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from scripts.distribution import UnavailableError, program as installed
from scripts.servers import LocalServer, free_port, run_script


class Certificates(NamedTuple):
    """Files in PEM that a server with TLS shows."""

    authority: Path
    certificate: Path
    key: Path


def program() -> str:
    """Return the server's program, which is installed first where it is missing. Raises UnavailableError."""
    # Valkey speaks the same protocol, and some distributions have only that.
    return installed(("redis-server", "valkey-server"), package="redis-server")


class RedisServer(LocalServer):
    """A server on a free port of 127.0.0.1 and on a Unix socket."""

    name = "redis"

    def __init__(
        self,
        *,
        password: str | None = None,
        tls: Certificates | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`settings` are further lines of its configuration."""
        super().__init__()
        self._given = dict(settings or {})
        self._password = password
        self._tls = tls

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
        return self.directory / "redis.sock"

    def command(self) -> list[str]:
        """Return the command line, after writing the configuration."""
        settings = {
            "bind": "127.0.0.1",
            "dir": str(self._socket.parent),
            "unixsocket": str(self._socket),
            "daemonize": "no",
            "port": str(self.port),
            "save": "",
            "appendonly": "no",
            **self._given,
        }
        if self._password is not None:
            settings["requirepass"] = self._password
        if self._tls is not None:
            settings |= {"port": "0", "tls-port": str(self.port), "tls-auth-clients": "no"}
            settings |= {"tls-ca-cert-file": str(self._tls.authority), "tls-cert-file": str(self._tls.certificate)}
            settings |= {"tls-key-file": str(self._tls.key)}
        # By a file, because what is on a command line is seen by everybody.
        file = self._socket.with_name("redis.conf")
        lines = [f'{key} "{value}"\n' for key, value in settings.items()]
        file.write_text("".join(lines), encoding="utf-8")
        return [program(), str(file)]

    def is_ready(self) -> bool:
        """Return whether the server answers."""
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(1.0)
                client.connect(str(self._socket))
                client.sendall(b"PING\r\n")
                return client.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def ask(self, *command: str) -> str:
        """Return the reply to a command, as it was sent: for small replies of servers without a password."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5.0)
            client.connect(str(self._socket))
            parts = "".join(f"${len(part.encode())}\r\n{part}\r\n" for part in command)
            client.sendall(f"*{len(command)}\r\n{parts}".encode())
            return client.recv(65_536).decode()

    def pause(self) -> None:
        """Have it accept connections, by its kernel, and answer nothing."""
        assert self._process is not None, "the server has not been started"
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None, "the server has not been started"
        self._process.send_signal(signal.SIGCONT)


class RedisCluster:
    """Three servers that keep a third of all keys each."""

    def __init__(self) -> None:
        # By default ten thousand above the other port, which may be none.
        self._ports = [free_port() for _ in range(3)]
        self.servers = [
            RedisServer(settings={"cluster-enabled": "yes", "cluster-port": str(port)}) for port in self._ports
        ]

    @property
    def url(self) -> str:
        """The address of the first server, as that of a cluster."""
        return self.servers[0].url.replace("redis://", "redis+cluster://").removesuffix("/0")

    def start(self) -> None:
        """Start the servers and join them. Raises UnavailableError."""
        last = 16_383
        for number, server in enumerate(self.servers):
            server.start()
            first, end = (number * (last + 1) // 3, (number + 1) * (last + 1) // 3 - 1)
            server.ask("CLUSTER", "ADDSLOTSRANGE", str(first), str(end))
            if number:
                server.ask("CLUSTER", "MEET", "127.0.0.1", str(self.servers[0].port), str(self._ports[0]))
        until = time.monotonic() + 10.0
        while not all("cluster_state:ok" in server.ask("CLUSTER", "INFO") for server in self.servers):
            if time.monotonic() > until:
                raise UnavailableError("the servers do not become a cluster")
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop the servers, and remove what they have left."""
        for server in self.servers:
            server.stop()


if __name__ == "__main__":
    sys.exit(run_script(__doc__, sys.argv[1:], install=program, server=RedisServer, variable="REDIS_URL"))
