"""Run Python, and servers, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from scripts.servers import UnavailableError

ROOT = Path(__file__).parent.parent


def run_python(
    *arguments: str, cwd: Path = ROOT, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python to its end, with `environment` added to the variables of this process."""
    command, variables = [sys.executable, *arguments], {**os.environ, **(environment or {})}
    return subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=390, check=False)


def printed_by(*arguments: str, cwd: Path = ROOT, environment: Mapping[str, str] | None = None) -> str:
    """Return what Python prints. Raises AssertionError, which quotes its stderr, if it fails."""
    ran = run_python(*arguments, cwd=cwd, environment=environment)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout


def running(server: Any) -> Iterator[Any]:
    """Run a server of `scripts.servers` as long as a fixture lasts; skip the test if there is no such server here."""
    try:
        server.start()
    except UnavailableError as error:
        server.stop()
        pytest.skip(str(error))
    yield server
    server.stop()
