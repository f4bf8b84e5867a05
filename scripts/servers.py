"""Servers on loopback: started, waited for, and ended with all that they have left."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from scripts.distribution import UnavailableError

S = TypeVar("S", bound="LocalServer")


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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

    def place(self) -> str | None:
        """Return where the directory is made; None for the usual place."""
        return None

    def prepare(self) -> None:
        """Make what the server needs in its directory before it starts for the first time."""

    def command(self) -> list[str]:
        """Return the command line, once `port` and `directory` are known."""
        raise NotImplementedError

    def options(self) -> dict[str, Any]:
        """Return further arguments of `subprocess.Popen`."""
        return {"cwd": self.directory}

    def is_ready(self) -> bool:
        """Return whether the server answers."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the server, with the data and on the port that it had before, if it had. Raises UnavailableError."""
        if self._home is None:
            self._home = tempfile.TemporaryDirectory(prefix=f"{self.name}-", dir=self.place())
            self.directory = Path(self._home.name)
            self.prepare()
        until = time.monotonic() + self.start_s
        before = self.port
        for port in [before] if before else [free_port() for _ in range(3)]:
            self.port = port
            if self._starts(until):
                return
        self.port = before
        raise UnavailableError(f"{self.name} does not start:\n{self.log()}")

    def _starts(self, until: float) -> bool:
        command = self.command()
        with (self.directory / "log").open("ab") as log:
            given = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, **self.options()}
            self._process = subprocess.Popen(command, **given)
        while self._process.poll() is None and time.monotonic() < until:
            if self.is_ready():
                return True
            time.sleep(0.01)
        self.kill()
        return False

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
        process, self._process = self._process, None
        if process is None:
            return
        self._signal(process, number)
        try:
            process.wait(15.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _signal(self, process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)  # one that is stopped ends only when it goes on

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


def run_script(
    usage: str | None,
    arguments: Sequence[str],
    *,
    install: Callable[[], object],
    server: Callable[[], LocalServer],
    variable: str | None = None,
) -> int:
    """Do what a server's command line says, and return the exit code: install it, or run it and a command beside it.

    The command finds the address in the environment variable `variable`; without one, `server` takes the arguments.
    """
    try:
        if "--help" in arguments or "-h" in arguments[:1]:
            print(usage)
        elif arguments == ["--install"]:
            print(install())
        else:
            with server() as running, contextlib.suppress(KeyboardInterrupt):
                if arguments and variable:
                    return subprocess.run(arguments, env={**os.environ, variable: running.url}, check=False).returncode
                print(running.url, flush=True)
                signal.pause()
    except UnavailableError as error:
        print(error, file=sys.stderr)
        return 1
    return 0
