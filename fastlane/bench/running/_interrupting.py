"""Ctrl-C during a run: the first ends it soon, the second at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ._crew import Crew


@contextmanager
def ctrl_c(crew: Crew) -> Iterator[None]:
    """Have the first Ctrl-C end the cell soon; the next one is what it always is."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        # Somebody else's: what it does is theirs to say.
        yield
        return

    def first(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        crew.interrupted()

    signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
