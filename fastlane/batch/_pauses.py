"""Wait for jobs that others work off: how often to look, and until when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._clock import now_ns
from ._checked import check_seconds
from ._errors import QueueWaitTimeoutError

if TYPE_CHECKING:
    from ._storage import Storage

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0
_FOR_EVER_S = 1e9


class Watch:
    """How many jobs are left, counted again only when some other was over."""

    def __init__(self, storage: Storage, keys: Sequence[str] | None) -> None:
        self._storage = storage
        self._keys = keys
        self._finished = -1
        self._left = 0

    def left(self) -> int:
        finished = self._storage.finished()
        if finished != self._finished:
            # The count is at least as new as what it stands beside.
            self._left = self._storage.unfinished(self._keys)
            self._finished = finished
        return self._left


class Pauses:
    """How long to wait before the next look: ever longer, and not past a time."""

    def __init__(self, timeout_s: float | None) -> None:
        if timeout_s is not None:
            check_seconds("timeout_s", timeout_s)
        for_ever = timeout_s is None or timeout_s > _FOR_EVER_S
        self._until = None if for_ever else now_ns() + int((timeout_s or 0.0) * 1e9)
        self._timeout_s = timeout_s
        self._pause = _FIRST_PAUSE_S

    def next_s(self) -> float:
        pause = self._pause
        self._pause = min(_LONGEST_PAUSE_S, pause * 1.5)
        if self._until is None:
            return pause
        left = (self._until - now_ns()) / 1e9
        if left <= 0.0:
            raise QueueWaitTimeoutError(f"not all jobs were over within {self._timeout_s:g} s: they go on")
        return min(pause, left)
