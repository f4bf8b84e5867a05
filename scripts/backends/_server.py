"""A backend's server on free ports of 127.0.0.1, in a directory that goes with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar

from scripts.distribution import UnavailableError
from scripts.servers import LocalServer

_ASK_S = 60.0


class Server(LocalServer):
    """One server, as a context manager, which ends with all processes that it has started."""

    health: ClassVar[str]
    """A path that is answered with 200 once the server can be used."""
    start_s = 120.0

    def environment(self) -> Mapping[str, str]:
        """What the server's environment has beside that of this process."""
        return {}

    def options(self) -> dict[str, Any]:
        """Return the environment, and a session of its own, which ends as a whole and does not see Ctrl-C."""
        # What exporters of this process are told is not meant for the server, which may have some of its own.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        variables = {**inherited, **self.environment()}
        return {"cwd": self.directory, "env": variables, "start_new_session": True}

    def is_ready(self) -> bool:
        """Return whether the server answers."""
        try:
            with urllib.request.urlopen(self.url + self.health, timeout=5.0):
                return True
        except OSError:
            return False

    def _signal(self, process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)

    def ask(self, path: str, body: Any = None) -> Any:
        """The JSON with which the server answers a GET, or a POST of `body`. Raises UnavailableError."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers={"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=_ASK_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            raise UnavailableError(f"{self.name} answers {error.code} to {path}: {text:.500}") from error
