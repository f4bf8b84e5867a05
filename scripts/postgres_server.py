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
from pathlib import Path
from typing import Any

from scripts import distribution
from scripts.distribution import UnavailableError
from scripts.servers import LocalServer, run_script

_PACKAGE = "postgresql"
# Distributions keep the programs of a version in a directory of its own, off the path.
_DIRECTORIES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin")
_USERS = ("postgres", "nobody")
# Nothing here outlives a crash of the machine, only one of the server: what a flush costs is not what is tested.
_SETTINGS = {"fsync": "off", "listen_addresses": "127.0.0.1", "max_connections": "60", "shared_buffers": "16MB"}


def directory() -> Path:
    """Return where the server's programs are; they are installed first where they are missing.

    Raises UnavailableError.
    """
    if (found := _found()) is not None:
        return found
    # Its own name for what is in the path, which the package puts there.
    distribution.program(("pg_ctlcluster", "initdb"), package=_PACKAGE)
    if (found := _found()) is None:
        raise UnavailableError(f"the package {_PACKAGE} is installed, and has no initdb in {_DIRECTORIES[0]}")
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
    raise UnavailableError(f"the server refuses to run as root, and there is no user of {', '.join(_USERS)}")


class PostgresServer(LocalServer):
    """A server on a free port of 127.0.0.1 with a password, in a directory that goes with it."""

    name = "postgres"
    start_s = 30.0
    # All of its processes end, and none leaves a part of memory behind, as after the loss of its first one alone.
    kill_signal = signal.SIGQUIT
    stop_signal = signal.SIGINT

    def __init__(self) -> None:
        super().__init__()
        self.password = secrets.token_hex(8)

    @property
    def url(self) -> str:
        """The address of its database, password included."""
        return f"postgresql://fastlane:{self.password}@127.0.0.1:{self.port}/postgres"

    def place(self) -> str | None:
        """Return a place that the user whom the server runs as is not kept out of, as by our TMPDIR."""
        return "/tmp" if _user() else None

    def prepare(self) -> None:
        """Make the database."""
        user = _user()
        secret = self.directory / "password"
        secret.write_text(self.password, encoding="ascii")
        if user is not None:
            for path in (self.directory, secret):
                os.chown(path, user.pw_uid, user.pw_gid)
        command = [
            str(directory() / "initdb"),
            f"--pgdata={self.directory / 'data'}", "--username=fastlane", f"--pwfile={secret}",
            "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions",
        ]  # fmt: skip
        with (self.directory / "log").open("wb") as log:
            made = subprocess.run(command, stdout=log, stderr=log, check=False, **self.options())
        if made.returncode:
            raise UnavailableError(f"{command[0]} does not work:\n{self.log()}")

    def options(self) -> dict[str, Any]:
        """Return the user that the server runs as."""
        user = _user()
        if user is None:
            return {"cwd": self.directory}
        return {"cwd": self.directory, "user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def command(self) -> list[str]:
        """Return the command line."""
        settings = {**_SETTINGS, "port": str(self.port), "unix_socket_directories": str(self.directory)}
        command = [str(directory() / "postgres"), "-D", str(self.directory / "data")]
        return command + [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]

    def is_ready(self) -> bool:
        """Return whether the server takes connections."""
        # The last line of this file says how it is.
        with contextlib.suppress(OSError):
            if (self.directory / "data" / "postmaster.pid").read_text().rstrip().endswith("ready"):
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
                return True
        return False


if __name__ == "__main__":
    sys.exit(run_script(__doc__, sys.argv[1:], install=directory, server=PostgresServer, variable="POSTGRES_URL"))
