"""Start a truth server in a process of its own, tell it how to answer, and read what it did."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastlane.errors import ConfigurationError, FastlaneError

from .log import TruthLog, read_log

_SOURCE = Path(__file__).with_name("truth_server.c")


class TruthServerError(FastlaneError):
    """The truth server could not be built or started, or did not obey: the message says what happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPace:
    """How a truth server answers. Times in seconds."""

    time_to_first_token_s: float
    """From the whole request to the first content."""
    token_s: float
    """From each chunk with content to the next, one token each."""
    tokens: int
    stall_every_s: float = 0.0
    """Once in each period of this length, in its middle, the whole server stops; 0 for never."""
    stall_s: float = 0.0

    @property
    def answer_s(self) -> float:
        """Seconds from the whole request to the last content, without a stall."""
        return self.time_to_first_token_s + self.token_s * (self.tokens - 1)

    @property
    def command(self) -> str:
        """As a command to the server."""
        micro = round(self.time_to_first_token_s * 1e6), round(self.token_s * 1e6)
        milli = round(self.stall_every_s * 1e3), round(self.stall_s * 1e3)
        return f"set {micro[0]} {micro[1]} {self.tokens} {milli[0]} {milli[1]}"


@dataclass(frozen=True, slots=True)
class TruthServer:
    """A truth server that runs."""

    base_url: str
    _process: subprocess.Popen[str]

    def answer_like(self, pace: ServerPace) -> None:
        """Answer requests that come from now on at this pace. Stalls count from now."""
        self._tell(pace.command)

    def clear(self) -> None:
        """Forget all requests, and hang up on those that are being answered."""
        self._tell("clear")

    def log(self) -> TruthLog:
        """Everything since the server was cleared."""
        return read_log(self._tell("log"))

    def _tell(self, command: str) -> list[str]:
        # No other command may come in between: one thread is to use a server.
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        try:
            asked.write(command + "\n")
            asked.flush()
        except OSError as error:
            raise TruthServerError("the truth server has ended: its stderr says why") from error
        lines: list[str] = []
        for line in answers:
            if line == "ok\n":
                return lines
            lines.append(line)
        raise TruthServerError(f"the truth server ended on {command!r}: {''.join(lines)[:200]}")


def compiler() -> str | None:
    """Return the system's C compiler; None if there is none, or the system isn't Linux."""
    return (shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")) if sys.platform == "linux" else None


@contextmanager
def truth_server() -> Iterator[TruthServer]:
    """Compile a truth server and run it on loopback for as long as the context lasts.

    Raises ConfigurationError if there is no C compiler, and TruthServerError if the server does not start.
    """
    found = compiler()
    if found is None:
        raise ConfigurationError("the self-test needs Linux and a C compiler named cc, gcc or clang: install one")
    with tempfile.TemporaryDirectory() as directory:
        built = Path(directory) / "truth_server"
        done = subprocess.run(
            [found, "-O2", "-o", str(built), str(_SOURCE)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise TruthServerError(f"{found} could not build the truth server: {done.stderr.strip()[:400]}")
        with _running([str(built)]) as server:
            yield server


@contextmanager
def _running(command: list[str]) -> Iterator[TruthServer]:
    pipe: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            first_line = process.stdout.readline()
            if not first_line:
                raise TruthServerError(f"the truth server did not start: {' '.join(command)}")
            yield TruthServer(f"http://127.0.0.1:{json.loads(first_line)['port']}/v1", process)
        finally:
            # It ends with its stdin.
            process.stdin.close()
