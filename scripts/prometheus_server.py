"""Start a real Prometheus on loopback that scrapes what it is told to, and disappears when it is not needed any more.

    python -m scripts.prometheus_server 127.0.0.1:9464     scrapes this address until Ctrl-C, and says where it is seen
    python -m scripts.prometheus_server --install          sees to it that the server is installed, and nothing else

Where no server is installed, the distribution's package is, by apt-get and only as root.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import urlencode

from scripts import distribution
from scripts.backends._server import Server
from scripts.distribution import UnavailableError
from scripts.servers import run_script


class Series(TypedDict):
    """One time series of an answer."""

    metric: dict[str, str]
    value: tuple[float, str]


def program(name: str = "prometheus") -> str:
    """Path of `prometheus`, or of its `promtool`, which are installed first where they are missing.

    Raises UnavailableError.
    """
    return distribution.program((name,), package="prometheus")


class Prometheus(Server):
    """Prometheus with an empty database."""

    name = "prometheus"
    health = "/-/ready"

    def __init__(self, targets: Sequence[str], *, rules: Path | None = None, interval_s: int = 1) -> None:
        super().__init__()
        self._targets = list(targets)
        self._rules = rules
        self._interval_s = interval_s

    def command(self) -> list[str]:
        """The server's command line; its configuration is written before."""
        every = f"{self._interval_s}s"
        # JSON is YAML.
        settings: dict[str, Any] = {
            "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
            "scrape_configs": [{"job_name": "application", "static_configs": [{"targets": self._targets}]}],
        }
        if self._rules is not None:
            shutil.copy(self._rules, self.directory / "rules.yml")
            settings["rule_files"] = ["rules.yml"]
        file = self.directory / "prometheus.yml"
        file.write_text(json.dumps(settings), encoding="utf-8")
        return [
            program(),
            f"--config.file={file}",
            f"--storage.tsdb.path={self.directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    def query(self, expression: str) -> list[Series]:
        """What the expression comes to now. Raises UnavailableError where Prometheus does not take it."""
        return list(self._data(f"/api/v1/query?{urlencode({'query': expression})}")["result"])

    def value(self, expression: str) -> float:
        """The same for an expression that comes to one number. Raises UnavailableError where it does not."""
        found = self.query(expression)
        if len(found) != 1:
            raise UnavailableError(f"{expression} should come to one number, and comes to {len(found)}")
        return float(found[0]["value"][1])

    def rules(self) -> list[dict[str, Any]]:
        """Every rule that was loaded, with its health and its last error."""
        return [rule for group in self._data("/api/v1/rules")["groups"] for rule in group["rules"]]

    def wait_for(self, expression: str, at_least: float, *, within_s: float = 30.0) -> None:
        """Wait until the expression has come to so much. Raises UnavailableError where that takes too long."""
        until = time.monotonic() + within_s
        while True:
            found = sum(float(series["value"][1]) for series in self.query(expression))
            if found >= at_least:
                return
            if time.monotonic() > until:
                raise UnavailableError(f"{expression} should come to {at_least}, and is {found} after {within_s:.0f} s")
            time.sleep(0.25)

    def _data(self, path: str) -> Mapping[str, Any]:
        return dict(self.ask(path)["data"])


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(run_script(__doc__, given or ["--help"], install=program, server=lambda: Prometheus(given)))
