"""A backend's server leaves nothing behind, however the process ends that has started it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts import prometheus_server
from scripts.distribution import UnavailableError
from scripts.environments import ROOT
from scripts.prometheus_server import Prometheus

OWNER = """
import time
from scripts.prometheus_server import Prometheus
server = Prometheus([])
server.start()
print(server.directory, server.port, flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def installed() -> None:
    try:
        prometheus_server.program()
    except UnavailableError as error:
        pytest.skip(str(error))


def is_gone(directory: Path) -> bool:
    until = time.monotonic() + 15.0
    while directory.exists() and time.monotonic() < until:
        time.sleep(0.1)
    return not directory.exists()


def test_a_server_that_is_stopped_leaves_nothing() -> None:
    with Prometheus([]) as server:
        assert server.query("up") == []

    # It goes last: the server has ended before.
    assert is_gone(server.directory)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_server_ends_with_the_process_that_has_started_it(number: signal.Signals) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with owner:
        assert owner.stdout is not None
        directory = Path(owner.stdout.readline().split()[0])
        assert directory.is_dir()

        owner.send_signal(number)

    assert is_gone(directory)
