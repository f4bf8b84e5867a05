"""What this process holds: memory, file descriptors, threads."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.transport.peer import HANG_S


def resident() -> int:
    """Bytes of memory that this process occupies."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors() -> set[str]:
    """What the open file descriptors lead to."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{entry.name} {entry.readlink()}")
        except OSError:
            pass  # the one that lists them
    return found


def threads() -> set[threading.Thread]:
    """The threads that run, apart from the scripted peers' own."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith("peer")}


def comes_true(predicate: Callable[[], bool]) -> bool:
    """Whether it is so before it counts as hanging."""
    deadline = time.monotonic() + HANG_S
    while not predicate():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
