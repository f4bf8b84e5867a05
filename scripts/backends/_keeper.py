"""Run a server for as long as the process that asked for it lives, and remove the server's directory after it.

    python -m scripts.backends._keeper DIRECTORY PROGRAM [ARGUMENT ...]

Standard input is a pipe that nobody writes to: its end says that the server is not needed any more, also where its
owner was killed.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_PATIENCE_S = 5.0


def keep(directory: Path, command: Sequence[str]) -> int:
    """Run `command` in `directory` until standard input ends, and return the server's exit code."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    server = subprocess.Popen(command, cwd=directory, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        while not select.select([sys.stdin], [], [], 0.2)[0]:
            if (code := server.poll()) is not None:
                return code  # the owner reads its log
    finally:
        _end(server)
    shutil.rmtree(directory, ignore_errors=True)
    return 0


def _stop(number: int, _frame: object) -> None:
    """Leave by way of all that is to be done at the end."""
    raise SystemExit(128 + number)


def _end(server: subprocess.Popen[bytes]) -> None:
    """End the server and whatever it has started: all of them are one process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(server.pid, number)
        except ProcessLookupError:
            break
        try:
            server.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            continue


if __name__ == "__main__":
    sys.exit(keep(Path(sys.argv[1]), sys.argv[2:]))
