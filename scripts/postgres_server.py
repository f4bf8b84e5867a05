"""Start a real PostgreSQL server on loopback that disappears, with all its data, when it is not needed any more.

    python -m scripts.postgres_server                 runs one until Ctrl-C, and says where
    python -m scripts.postgres_server make test       runs a command with its address in POSTGRES_URL
    python -m scripts.postgres_server --install       sees to it that the server is installed, and nothing else

Where no server is installed, the distribution's package is, by apt-get and only as root. The server refuses to run as
root: started by root, it runs as the user `postgres`, or `nobody` where there is none. Tests use `PostgresServer`.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from scripts import distribution
from scripts.ports import free_port

_PACKAGE = "postgresql"
# Distributions keep the programs of a version in a directory of its own, off the path.
_DIRECTORIES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin")
_USERS = ("postgres", "nobody")
_INSTALL_S = 180.0
_START_S = 30.0
_STOP_S = 10.0
# Nothing here outlives a crash of the machine, only one of the server: what a flush costs is not what is tested.
_SETTINGS = {"fsync": "off", "listen_addresses": "127.0.0.1", "max_connections": "60", "shared_buffers": "16MB"}


class PostgresUnavailableError(RuntimeError):
    """No server is installed, and none can be, or it does not start: the message says why."""


def directory(*, limit_s: float = _INSTALL_S) -> Path:
    """Return where the server's programs are; they are installed first where they are missing.

    Raises PostgresUnavailableError.
    """
    if (found := _found()) is not None:
        return found
    try:
        # Its own name for what is in the path, which the package puts there.
        distribution.program(("pg_ctlcluster", "initdb"), package=_PACKAGE, limit_s=limit_s)
    except distribution.MissingProgramError as error:
        raise PostgresUnavailableError(str(error)) from error
    if (found := _found()) is None:
        raise PostgresUnavailableError(f"the package {_PACKAGE} is installed, and has no initdb in {_DIRECTORIES[0]}")
    return found


def _found() -> Path | None:
    paths = [Path(path) for path in os.environ.get("PATH", "").split(os.pathsep) if path]
    for pattern in _DIRECTORIES:
        paths += sorted(Path("/").glob(pattern.removeprefix("/")), reverse=True)
    return next((path for path in paths if (path / "initdb").is_file() and (path / "postgres").is_file()), None)


def _user() -> pwd.struct_passwd | None:
    """Whom the server runs as, where it may not run as we do."""
    if os.geteuid() != 0:
        return None
    for name in _USERS:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise PostgresUnavailableError(f"the server refuses to run as root, and there is no user of {', '.join(_USERS)}")


class PostgresServer:
    """A server on a free port of 127.0.0.1 with a password, in a directory that goes with it."""

    def __init__(self) -> None:
        self.port = 0
        self.password = secrets.token_hex(8)
        self._process: subprocess.Popen[bytes] | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    @property
    def url(self) -> str:
        """The address of its database, password included."""
        return f"postgresql://fastlane:{self.password}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start it, with the data and on the port that it had before, if it had. Raises PostgresUnavailableError."""
        programs = directory()
        if self._directory is None:
            self._make(programs)
        for _ in range(1 if self.port else 5):
            port = self.port or free_port()
            if self._starts(programs, port):
                self.port = port
                return
        raise PostgresUnavailableError(f"{programs / 'postgres'} does not start: {_last(self._path / 'log')}")

    @property
    def _path(self) -> Path:
        assert self._directory is not None, "the server has not been started"
        return Path(self._directory.name)

    def _make(self, programs: Path) -> None:
        # The user that it runs as may be kept out of the usual place of temporary files by the TMPDIR of ours.
        self._directory = tempfile.TemporaryDirectory(prefix="postgres-", dir="/tmp" if _user() else None)
        user = _user()
        secret = self._path / "password"
        secret.write_text(self.password, encoding="ascii")
        if user is not None:
            for path in (self._path, secret):
                os.chown(path, user.pw_uid, user.pw_gid)
        command = [
            str(programs / "initdb"), f"--pgdata={self._path / 'data'}", "--username=fastlane", f"--pwfile={secret}",
            "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions",
        ]  # fmt: skip
        with (self._path / "log").open("wb") as log:
            made = subprocess.run(command, stdout=log, stderr=log, check=False, **self._as_user())
        if made.returncode:
            raise PostgresUnavailableError(f"{command[0]} does not work: {_last(self._path / 'log')}")

    def _as_user(self) -> dict[str, Any]:
        user = _user()
        if user is None:
            return {"cwd": self._path}
        return {"cwd": self._path, "user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def _starts(self, programs: Path, port: int) -> bool:
        settings = {**_SETTINGS, "port": str(port), "unix_socket_directories": str(self._path)}
        command = [str(programs / "postgres"), "-D", str(self._path / "data")]
        command += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self._path / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self._as_user()
            )
        until = time.monotonic() + _START_S
        while self._process.poll() is None and time.monotonic() < until:
            # The last line of this file says how it is.
            state = self._path / "data" / "postmaster.pid"
            with contextlib.suppress(OSError):
                if state.read_text().rstrip().endswith("ready") and self._accepts(port):
                    return True
            time.sleep(0.01)
        self.kill()
        return False

    def _accepts(self, port: int) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", port), 1.0):
                return True
        except OSError:
            return False

    def kill(self) -> None:
        """End it at once, as a crash does: what was committed is there when it starts again."""
        # All of its processes end, and none leaves a part of memory behind, as after the loss of its first one alone.
        self._end(signal.SIGQUIT)

    def stop(self) -> None:
        """End it, and remove what it has left."""
        self._end(signal.SIGINT)
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(_STOP_S)
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


def _last(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    return next((line for line in reversed(lines) if line.strip()), "it says nothing")


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code."""
    try:
        if arguments in (["--help"], ["-h"]):
            print(__doc__)
            return 0
        if arguments == ["--install"]:
            print(directory())
            return 0
        with PostgresServer() as server, contextlib.suppress(KeyboardInterrupt):
            if arguments:
                return subprocess.run(arguments, env={**os.environ, "POSTGRES_URL": server.url}, check=False).returncode
            print(server.url, flush=True)
            signal.pause()
    except PostgresUnavailableError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
