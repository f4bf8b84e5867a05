"""How often something happens, lately."""

from __future__ import annotations

_WINDOW_NS = 30_000_000_000


class Rate:
    """Events in a second, over the last half minute or so: the window that runs and a share of the one before."""

    __slots__ = ("_before", "_count", "_first_ns", "_start_ns", "total")

    def __init__(self) -> None:
        self._first_ns: int | None = None
        self._start_ns = 0
        self._before = 0
        self._count = 0
        self.total = 0
        """Events since the beginning."""

    def add(self, now_ns: int) -> None:
        """It happened."""
        if self._first_ns is None:
            self._first_ns = self._start_ns = now_ns
        if now_ns - self._start_ns >= _WINDOW_NS:
            self._turn(now_ns)
        self._count += 1
        self.total += 1

    def per_s(self, now_ns: int) -> float:
        """Events in a second; 0 before the second one."""
        if self._first_ns is None or self.total < 2:
            return 0.0
        self._turn(now_ns)
        within = now_ns - self._start_ns
        known_ns = min(now_ns - self._first_ns, _WINDOW_NS)
        if known_ns <= 0:
            return 0.0
        events = self._count + self._before * max(0.0, 1 - within / _WINDOW_NS)
        return events * 1e9 / known_ns

    def _turn(self, now_ns: int) -> None:
        passed = (now_ns - self._start_ns) // _WINDOW_NS
        if passed > 0:
            self._before = self._count if passed == 1 else 0
            self._count = 0
            self._start_ns += passed * _WINDOW_NS
