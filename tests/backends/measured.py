"""An application that Prometheus scrapes, and what it knows of its own calls."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.backends._application import Notes, read
from scripts.environments import ROOT
from scripts.servers import Prometheus, free_port
from tests.backends.kept import environment

RULES = ROOT / "docs/dashboards/fastlane.rules.yml"
# Rules are first evaluated at a time of their group's own.
_RULES_S = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the application did, and the server that has scraped it since its last call."""

    notes: Notes
    prometheus: Prometheus

    def rules(self) -> list[dict[str, Any]]:
        """The rules once each of them has been evaluated."""
        until = time.monotonic() + _RULES_S
        while any(rule["health"] == "unknown" for rule in self.prometheus.rules()) and time.monotonic() < until:
            time.sleep(0.5)
        return self.prometheus.rules()


@contextmanager
def measured_by_prometheus(directory: Path) -> Iterator[Measured]:
    """Run the application and the server beside each other until all calls are over and scraped."""
    port = free_port()
    notes = directory / "notes"
    command = [sys.executable, "-m", "scripts.backends", "application", str(notes), "--metrics-port", str(port)]
    with ExitStack() as stack:
        prometheus = stack.enter_context(Prometheus([f"127.0.0.1:{port}"], rules=RULES))
        application = stack.enter_context(
            subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment({}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        assert application.stdin is not None
        assert application.stdout is not None
        # Its end is what the application ends with.
        stack.callback(application.stdin.close)
        line = application.stdout.readline()
        assert line == "done\n", f"the application should have said that it is done, and said {line!r}"
        done = read(notes)
        prometheus.wait_for("sum(gen_ai_client_operation_duration_seconds_count)", len(done.calls))
        yield Measured(notes=done, prometheus=prometheus)
