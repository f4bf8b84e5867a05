"""A server of the benchmarks' own, in a process of its own and, where the system allows it, on another core."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class Server(NamedTuple):
    """A server that runs."""

    base_url: str
    process_id: int
    cores: str
    """How the cores are shared with it."""

    def cpu_ns(self) -> int | None:
        """CPU nanoseconds of its process so far, as coarse as the system counts them; None where it does not."""
        return process_cpu_ns(self.process_id)


def process_cpu_ns(process_id: int) -> int | None:
    """CPU nanoseconds of a process so far, as coarse as the system counts them; None where it does not."""
    try:
        fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


@contextmanager
def server_on_another_core(module: str) -> Iterator[Server]:
    """Start `python -m module`, and keep it and this process apart as far as there is a second core and a way to."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    apart = len(cores) >= 2
    if apart:
        os.sched_setaffinity(0, cores[1:])  # which the server inherits
    with subprocess.Popen(
        [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if apart:
            os.sched_setaffinity(0, cores[:1])
        ready = json.loads(process.stdout.readline())
        before = os.environ.get("SSL_CERT_FILE")
        os.environ["SSL_CERT_FILE"] = ready["authority"]
        try:
            where = "client pinned to one, server to the others" if apart else "not pinned"
            yield Server(f"https://127.0.0.1:{ready['port']}/v1", process.pid, where)
        finally:
            if before is None:
                del os.environ["SSL_CERT_FILE"]
            else:
                os.environ["SSL_CERT_FILE"] = before
            process.stdin.close()
            if apart:
                os.sched_setaffinity(0, cores)
