"""A backend's server on free ports of 127.0.0.1, in a directory that goes with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from scripts.backends._keeper import LOG
from scripts.environments import ROOT
from scripts.ports import free_port

_START_S = 120.0
_STOP_S = 15.0
_ASK_S = 60.0


class BackendError(RuntimeError):
    """A backend does not start, or answers otherwise than it should."""


class Server:
    """One server, as a context manager. It ends with this process, even with one that is killed."""

    name: str
    """For messages."""
    health: str
    """A path that is answered with 200 once the server can be used."""

    def __init__(self) -> None:
        self.port = 0
        self.directory = Path()
        self._keeper: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        """The server's command line, once `port` and `directory` are known."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        """What the server's environment has beside that of this process."""
        return {}

    def start(self) -> None:
        """Start it and wait until it answers. Raises BackendError with the last lines of its log."""
        self.directory = Path(tempfile.mkdtemp(prefix=f"{self.name}-"))
        self.port = free_port()
        # What exporters of this process are told is not meant for the server, which may have some of its own.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", "scripts.backends._keeper", str(self.directory), *self.command()],
            cwd=ROOT,
            env={**inherited, "PYTHONPATH": str(ROOT), **self.environment()},
            stdin=subprocess.PIPE,
            # What ends a whole group of processes, as Ctrl-C does, is to leave it the time to clean up.
            start_new_session=True,
        )
        until = time.monotonic() + _START_S
        while time.monotonic() < until and self._keeper.poll() is None:
            try:
                with urllib.request.urlopen(self.url + self.health, timeout=5.0):
                    return
            except (OSError, urllib.error.URLError):
                time.sleep(0.1)
        raise BackendError(f"{self.name} does not answer on {self.url} within {_START_S:.0f} s:\n{self.log()}")

    def log(self) -> str:
        """The last lines that it has printed."""
        file = self.directory / LOG
        return "\n".join(file.read_text(errors="replace").splitlines()[-30:]) if file.exists() else ""

    def stop(self) -> None:
        """End it, and remove what it has left."""
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        assert keeper.stdin is not None
        keeper.stdin.close()
        try:
            keeper.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            keeper.terminate()
            keeper.wait()

    def ask(self, path: str, body: Any = None) -> Any:
        """The JSON with which the server answers a GET, or a POST of `body`. Raises BackendError."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers={"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=_ASK_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            raise BackendError(f"{self.name} answers {error.code} to {path}: {text:.500}") from error

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
