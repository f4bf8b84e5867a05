"""Run a real server on loopback that keeps nothing, and disappears when it is not needed any more.

    python -m scripts.servers redis                     runs Redis until Ctrl-C, and prints its address
    python -m scripts.servers redis make test           runs a command with its address in REDIS_URL
    python -m scripts.servers postgres                  the same with PostgreSQL, and POSTGRES_URL
    python -m scripts.servers prometheus HOST:PORT      runs Prometheus, which scrapes this address
    python -m scripts.servers --install chromium redis  installs these programs, and prints where they are

A program that is not installed is installed from the distribution's package, by apt-get and only as root. PostgreSQL
refuses to run as root: started by root, it runs as the user `postgres`, or `nobody` where there is none.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeVar
from urllib.parse import quote, urlencode

S = TypeVar("S", bound="LocalServer")


class UnavailableError(RuntimeError):
    """A program is not installed and cannot be, or does not do its work: the message says why."""


# Programs of the distribution

_APT = ("apt-get", "-o", "DPkg::Lock::Timeout=60", "-o", "Acquire::Retries=2", "-q", "-q")
_INSTALL_S = 300.0
# A package that is installed may want to start its service, on a port that is not ours to take. Where this says no, it
# does not: https://people.debian.org/~hmh/invokerc.d-policyrc.d-specification.txt
_POLICY = Path("/usr/sbin/policy-rc.d")
# Distributions keep the programs of a version of PostgreSQL in a directory of its own, off the path.
_OFF_THE_PATH = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin")
_PROGRAMS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "chromium": (("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"), "chromium"),
    # Valkey speaks the same protocol, and some distributions have only that.
    "redis": (("redis-server", "valkey-server"), "redis-server"),
    "postgres": (("initdb",), "postgresql"),
    "prometheus": (("prometheus",), "prometheus"),
    "promtool": (("promtool",), "prometheus"),
    "tinyproxy": (("tinyproxy",), "tinyproxy"),
    "microsocks": (("microsocks",), "microsocks"),
}
"""Of each: what its program may be called, and the package that has it."""

BROWSER_ARGUMENTS: Final = (
    "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"
)  # fmt: skip
"""With which Chromium runs without a display, as root, in a small container, and sends no reports home."""


def program(name: str) -> str:
    """Return the path of a program, which is installed first where it is missing. Raises UnavailableError."""
    names, package = _PROGRAMS[name]
    if (found := _found(names)) is not None:
        return found
    if not shutil.which("apt-get"):
        raise UnavailableError(f"no {names[0]} is installed, and there is no apt-get that could install one")
    if os.geteuid() != 0:
        raise UnavailableError(f"no {names[0]} is installed, and only root can: apt-get install {package}")
    install = ("install", "--yes", "--no-install-recommends", package)
    with _no_services():
        # The lists of packages may be missing, or old.
        problem = _apt(*install) and (_apt("update") or _apt(*install))
    if problem:
        raise UnavailableError(f"no {names[0]} is installed, and apt-get could not install one: {problem}")
    if (found := _found(names)) is None:
        raise UnavailableError(f"the package {package} was installed, and has no program of that name")
    return found


def _found(names: Sequence[str]) -> str | None:
    folders = [os.environ.get("PATH", "")]
    for pattern in _OFF_THE_PATH:
        folders += sorted(map(str, Path("/").glob(pattern.removeprefix("/"))), reverse=True)
    return next(filter(None, (shutil.which(name, path=os.pathsep.join(folders)) for name in names)), None)


def _apt(*arguments: str) -> str | None:
    """Run apt-get quietly, and return its last words where it fails."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            (*_APT, *arguments), env=environment, check=False, capture_output=True, text=True, timeout=_INSTALL_S
        )
    except subprocess.TimeoutExpired:
        return "it took too long"
    if done.returncode:
        return next(reversed(done.stderr.strip().splitlines()), f"exit code {done.returncode}")
    return None


@contextlib.contextmanager
def _no_services() -> Iterator[None]:
    """While this lasts, packages that are installed start no service of theirs."""
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n", encoding="ascii")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink(missing_ok=True)


# Any server


def free_port() -> int:
    """Return a free port of 127.0.0.1, below those that the system gives to anything else in the meantime."""
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class LocalServer:
    """A server on a free port of 127.0.0.1, in a directory that goes with it, as a context manager."""

    name: ClassVar[str]
    """For messages, and for the directory."""
    start_s: ClassVar[float] = 10.0
    kill_signal: ClassVar[signal.Signals] = signal.SIGKILL
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self) -> None:
        self.port = 0
        self.directory = Path()
        self._home: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self.port}"

    def _prepare(self) -> None:
        """Make what the server needs in its directory before it starts for the first time."""

    def _command(self) -> list[str]:
        """Return the command line, once `port` and `directory` are known."""
        raise NotImplementedError

    def _options(self) -> dict[str, Any]:
        """Return further arguments of `subprocess.Popen`."""
        return {}

    def _is_ready(self) -> bool:
        """Return whether the server answers."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the server, with the data and on the port that it had before, if it had. Raises UnavailableError."""
        if self._home is None:
            # As root in /tmp, where the user of PostgreSQL can read as well.
            folder = "/tmp" if os.geteuid() == 0 else None
            self._home = tempfile.TemporaryDirectory(prefix=f"{self.name}-", dir=folder)
            self.directory = Path(self._home.name)
            self._prepare()
        self.port = self.port or free_port()
        until = time.monotonic() + self.start_s
        with (self.directory / "log").open("ab") as log:
            # A session of its own, which ends as a whole and does not see Ctrl-C.
            given: dict[str, Any] = {"stdin": subprocess.DEVNULL, "start_new_session": True, **self._options()}
            self._process = subprocess.Popen(self._command(), cwd=self.directory, stdout=log, stderr=log, **given)
        while self._process.poll() is None and time.monotonic() < until:
            if self._is_ready():
                return
            time.sleep(0.01)
        self.kill()
        raise UnavailableError(f"{self.name} does not start:\n{self.log()}")

    def log(self) -> str:
        """Return the last lines that the server has printed."""
        file = self.directory / "log"
        return "\n".join(file.read_text(errors="replace").splitlines()[-30:]) if file.exists() else ""

    def kill(self) -> None:
        """End the server at once, as a crash does; it may start again."""
        self._end(self.kill_signal)

    def stop(self) -> None:
        """End the server, and remove what it has left."""
        self._end(self.stop_signal)
        if self._home is not None:
            self._home.cleanup()
            self._home = None

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self.signal(number)
        self.signal(signal.SIGCONT)  # one that is stopped ends only when it goes on
        try:
            self._process.wait(15.0)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self._process.wait()
        self._process = None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all of its processes, such as SIGSTOP: its kernel goes on to accept connections."""
        assert self._process is not None, "the server has not been started"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@contextlib.contextmanager
def available(server: S) -> Iterator[S | None]:
    """Run a server where one is installed or can be, else give None."""
    with contextlib.ExitStack() as stack:
        runs = False
        with contextlib.suppress(UnavailableError):
            stack.enter_context(server)
            runs = True
        yield server if runs else None


class HttpServer(LocalServer):
    """A server of HTTP, which ends with all processes that it has started."""

    health: ClassVar[str]
    """A path that is answered with 200 once the server can be used."""
    start_s = 120.0

    def _environment(self) -> Mapping[str, str]:
        """Return what the server's environment has beside that of this process."""
        return {}

    def _options(self) -> dict[str, Any]:
        # The exporter variables of this process are not meant for the server, which may have exporters too.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        return {"env": {**inherited, **self._environment()}}

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(self.url + self.health, timeout=5.0):
            return True
        return False

    def ask(self, path: str, body: Any = None) -> Any:
        """Return the JSON with which the server answers a GET, or a POST of `body`. Raises UnavailableError."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers={"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60.0) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            raise UnavailableError(f"{self.name} answers {error.code} to {path}: {text:.500}") from error


# Redis


class Certificates(NamedTuple):
    """Files in PEM that a server with TLS shows."""

    authority: Path
    certificate: Path
    key: Path


class RedisServer(LocalServer):
    """Redis on a free port of 127.0.0.1 and on a Unix socket."""

    name = "redis"

    def __init__(
        self, *, password: str | None = None, tls: Certificates | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        """`settings` are further lines of its configuration."""
        super().__init__()
        self._settings = dict(settings or {})
        self._tls = tls
        self._user = "" if password is None else f":{quote(password, safe='')}@"
        if password is not None:
            self._settings["requirepass"] = password
        if tls is not None:
            self._settings |= {"port": "0", "tls-auth-clients": "no", "tls-ca-cert-file": str(tls.authority)}
            self._settings |= {"tls-cert-file": str(tls.certificate), "tls-key-file": str(tls.key)}

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
    def _socket(self) -> Path:
        return self.directory / "redis.sock"

    def _command(self) -> list[str]:
        settings = {
            "bind": "127.0.0.1",
            "dir": str(self.directory),
            "unixsocket": str(self._socket),
            "daemonize": "no",
            "port": str(self.port),
            "save": "",
            "appendonly": "no",
            **({} if self._tls is None else {"tls-port": str(self.port)}),
            **self._settings,
        }
        # By a file, because what is on a command line is seen by everybody.
        file = self.directory / "redis.conf"
        file.write_text("".join(f'{key} "{value}"\n' for key, value in settings.items()), encoding="utf-8")
        return [program("redis"), str(file)]

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError):
            return self.ask("PING").startswith(("+PONG", "-NOAUTH"))
        return False

    def ask(self, *command: str) -> str:
        """Return the reply to a command, as it was sent: for small replies of servers without a password."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5.0)
            client.connect(str(self._socket))
            parts = "".join(f"${len(part.encode())}\r\n{part}\r\n" for part in command)
            client.sendall(f"*{len(command)}\r\n{parts}".encode())
            return client.recv(65_536).decode()


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
        slots = 16_384
        for number, server in enumerate(self.servers):
            server.start()
            first, end = number * slots // 3, (number + 1) * slots // 3 - 1
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


# PostgreSQL

# Nothing here outlives a crash of the machine, only one of the server: what a flush costs is not what is tested.
_POSTGRES = {"fsync": "off", "listen_addresses": "127.0.0.1", "max_connections": "60", "shared_buffers": "16MB"}


class PostgresServer(LocalServer):
    """PostgreSQL on a free port of 127.0.0.1 with a password."""

    name = "postgres"
    start_s = 30.0
    # All of its processes end, and none leaves a part of memory behind, as after the loss of its first one alone.
    kill_signal = signal.SIGQUIT
    stop_signal = signal.SIGINT

    def __init__(self) -> None:
        super().__init__()
        self.password = secrets.token_hex(8)
        self._user: pwd.struct_passwd | None = None
        """Whom it runs as, because it refuses to run as root."""

    @property
    def url(self) -> str:
        """The address of its database, password included."""
        return f"postgresql://fastlane:{self.password}@127.0.0.1:{self.port}/postgres"

    def _prepare(self) -> None:
        secret = self.directory / "password"
        secret.write_text(self.password, encoding="ascii")
        if os.geteuid() == 0:
            names = {one.pw_name: one for one in pwd.getpwall()}
            self._user = names.get("postgres") or names.get("nobody")
            if self._user is None:
                raise UnavailableError("the server refuses to run as root, and there is no user postgres or nobody")
            for path in (self.directory, secret):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)
        command = [
            program("postgres"),
            f"--pgdata={self.directory / 'data'}", "--username=fastlane", f"--pwfile={secret}",
            "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions",
        ]  # fmt: skip
        with (self.directory / "log").open("wb") as log:
            made = subprocess.run(command, stdout=log, stderr=log, check=False, cwd=self.directory, **self._options())
        if made.returncode:
            raise UnavailableError(f"{command[0]} does not work:\n{self.log()}")

    def _options(self) -> dict[str, Any]:
        user = self._user
        return {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def _command(self) -> list[str]:
        settings = {**_POSTGRES, "port": str(self.port), "unix_socket_directories": str(self.directory)}
        command = [str(Path(program("postgres")).with_name("postgres")), "-D", str(self.directory / "data")]
        return command + [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]

    def _is_ready(self) -> bool:
        # The last line of this file says how it is.
        with contextlib.suppress(OSError):
            if (self.directory / "data" / "postmaster.pid").read_text().rstrip().endswith("ready"):
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
                return True
        return False


# Prometheus


class Prometheus(HttpServer):
    """Prometheus with an empty database, which scrapes these targets every second."""

    name = "prometheus"
    health = "/-/ready"

    def __init__(self, targets: Sequence[str], *, rules: Path | None = None) -> None:
        super().__init__()
        self._targets = list(targets)
        self._rules = rules

    def _command(self) -> list[str]:
        # JSON is YAML.
        settings: dict[str, Any] = {
            "global": dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), "1s"),
            "scrape_configs": [{"job_name": "application", "static_configs": [{"targets": self._targets}]}],
        }
        if self._rules is not None:
            shutil.copy(self._rules, self.directory / "rules.yml")
            settings["rule_files"] = ["rules.yml"]
        file = self.directory / "prometheus.yml"
        file.write_text(json.dumps(settings), encoding="utf-8")
        data, address = self.directory / "data", f"127.0.0.1:{self.port}"
        options = (f"--config.file={file}", f"--storage.tsdb.path={data}", f"--web.listen-address={address}")
        return [program("prometheus"), *options]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series that the expression comes to now. Raises UnavailableError if Prometheus refuses it."""
        return list(self.ask(f"/api/v1/query?{urlencode({'query': expression})}")["data"]["result"])

    def value(self, expression: str) -> float:
        """Return the same for an expression that comes to one number. Raises UnavailableError if it does not."""
        found = self.query(expression)
        if len(found) != 1:
            raise UnavailableError(f"{expression} should come to one number, and comes to {len(found)}")
        return float(found[0]["value"][1])

    def rules(self) -> list[dict[str, Any]]:
        """Return every rule that was loaded, with its health and its last error."""
        return [rule for group in self.ask("/api/v1/rules")["data"]["groups"] for rule in group["rules"]]

    def wait_for(self, expression: str, at_least: float, *, within_s: float = 30.0) -> None:
        """Wait until the expression has come to so much. Raises UnavailableError if that takes too long."""
        until = time.monotonic() + within_s
        while (found := sum(float(series["value"][1]) for series in self.query(expression))) < at_least:
            if time.monotonic() > until:
                raise UnavailableError(f"{expression} should come to {at_least}, and is {found} after {within_s:.0f} s")
            time.sleep(0.25)


# Proxies


class ProxyProgram(LocalServer):
    """A real proxy, which wants a user name and a password."""

    user, password = "proxy-user", "proxy-password"

    @property
    def url(self) -> str:
        """Its address, password included."""
        scheme = "http" if self.name == "tinyproxy" else "socks5h"
        return f"{scheme}://{self.user}:{self.password}@127.0.0.1:{self.port}"

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
            return True
        return False


class Tinyproxy(ProxyProgram):
    """An HTTP proxy."""

    name = "tinyproxy"

    def _command(self) -> list[str]:
        file = self.directory / "tinyproxy.conf"
        settings = (f"Port {self.port}", "Listen 127.0.0.1", "Timeout 600", f"BasicAuth {self.user} {self.password}")
        file.write_text("\n".join(settings) + "\n", encoding="utf-8")
        return [program("tinyproxy"), "-d", "-c", str(file)]


class Microsocks(ProxyProgram):
    """A SOCKS 5 proxy."""

    name = "microsocks"

    def _command(self) -> list[str]:
        address = ("-i", "127.0.0.1", "-p", str(self.port))
        return [program("microsocks"), *address, "-u", self.user, "-P", self.password]


# The command line


def run_until_interrupted(server: LocalServer, message: Callable[[], str]) -> None:
    """Run a server until Ctrl-C, and print a message when it runs."""
    with server, contextlib.suppress(KeyboardInterrupt):
        print(message(), flush=True)
        signal.pause()


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code."""
    name, *command = arguments or ["--help"]
    servers: dict[str, Callable[[], LocalServer]] = {
        "redis": RedisServer,
        "postgres": PostgresServer,
        "prometheus": partial(Prometheus, command),
    }
    try:
        if name == "--install" and set(command) <= set(_PROGRAMS):
            print(*map(program, command), sep="\n")
        elif name in servers and command and name != "prometheus":
            with servers[name]() as running:
                environment = {**os.environ, f"{name.upper()}_URL": running.url}
                return subprocess.run(command, env=environment, check=False).returncode
        elif name in servers and (command or name != "prometheus"):
            server = servers[name]()
            run_until_interrupted(server, lambda: server.url)
        else:
            print(__doc__)
            return 0 if name == "--help" else 2
    except UnavailableError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
