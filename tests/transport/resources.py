"""What this process holds: memory, file descriptors, threads."""

from __future__ import annotations

import os
import threading
from pathlib import Path


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
