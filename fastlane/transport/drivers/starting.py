"""How a thread is started by one that Ctrl-C may come to meanwhile."""

from __future__ import annotations

import sys
import threading


def start(thread: threading.Thread) -> None:
    """Start it. Raises RuntimeError where there is no thread to be had, and what a signal raises.

    `threading` waits for a new thread with a lock of its own. What a signal raises amid that may be followed by an
    error over this lock, which is a RuntimeError too, though the thread has begun.
    """
    handled = sys.exception()
    try:
        thread.start()
    except RuntimeError as error:
        raised = error.__context__
        if raised is None or raised is handled:
            raise
        raise raised from None
