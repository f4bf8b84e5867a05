"""How the measuring process itself fares, probed while it measures: its CPU, its lag, its pauses, its clock."""

from __future__ import annotations

import asyncio
import threading
from array import array
from collections.abc import Iterable
from typing import Final

from ..._clock import cpu_ns, now_ns, sleep
from ..recorded import Vitals

INTERVAL_S: Final = 0.01
"""How long the probing thread sleeps at a time.

The overshoot of such a sleep was seen to follow the true delay of received chunks (p99 2.5 ms beside 2.1, 19 beside
15, 458 beside 437, with sleeps of 5 ms). On two cores that others kept busy, probing every 5 ms took 0.7 % of a core,
every 10 ms 0.5 %: what measures must not be what loads.
"""
LOOP_INTERVAL_S: Final = 0.04
"""The same where it also rings in an event loop, which wakes two threads each time (every 20 ms took 1.1 %)."""


class Probe:
    """Probes this process while one cell runs: `start` it before, `stop` it after, and start it again for the next.

    A thread sleeps `INTERVAL_S` at a time and notes how late it is woken. If an event loop is watched, each wake-up
    also rings in the loop, as a socket that has become readable does; the lag is then the time until the loop answers.
    """

    def __init__(self, *, shard: int = 0, arm: str | None = None) -> None:
        self._shard = shard
        self._arm = arm
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to probe. Raises RuntimeError if it has begun already."""
        if self._thread is not None:
            raise RuntimeError("this probe has been started already: stop it before the next cell")
        self._over = False
        self._started_ns, self._cpu_ns = now_ns(), cpu_ns()
        self._lags, self._loop_lags = array("q"), array("q")
        self._rung_ns: int | None = None
        self._thread = threading.Thread(target=self._run, name="fastlane-probe", daemon=True)
        self._thread.start()

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Measure an event loop's lag, which is then what the vitals say."""
        self._loop = loop

    def stop(self, cell: str) -> Vitals:
        """End probing, and return how the process fared since `start`. Raises RuntimeError if it was not started."""
        if self._thread is None:
            raise RuntimeError("this probe has not been started: start it before the cell")
        self._over = True
        self._thread.join()
        self._thread = None
        ended_ns, cpu_spent_ns = now_ns(), cpu_ns() - self._cpu_ns
        if self._rung_ns is not None:
            # A loop that has not answered by now is late by at least this.
            self._loop_lags.append(ended_ns - self._rung_ns)
            self._rung_ns = None
        lags, interval_s = (self._loop_lags, LOOP_INTERVAL_S) if self._loop_lags else (self._lags, INTERVAL_S)
        waits = sorted(waiting_times(lags, round(interval_s * 1e9)))
        p50_ms, p99_ms = (waits[int(share * len(waits))] / 1e6 if waits else None for share in (0.5, 0.99))
        return Vitals(
            cell=cell,
            shard=self._shard,
            arm=self._arm,
            duration_s=(ended_ns - self._started_ns) / 1e9,
            cpu_s=cpu_spent_ns / 1e9,
            loop_lag_p50_ms=p50_ms,
            loop_lag_p99_ms=p99_ms,
        )

    def _run(self) -> None:
        while not self._over:
            interval_s = INTERVAL_S if self._loop is None else LOOP_INTERVAL_S
            due_ns = now_ns() + round(interval_s * 1e9)
            sleep(interval_s)
            self._lags.append(now_ns() - due_ns)
            if self._loop is not None and self._rung_ns is None:
                self._rung_ns = due_ns
                try:
                    self._loop.call_soon_threadsafe(self._answered)
                except RuntimeError:  # The loop was closed.
                    self._loop = self._rung_ns = None

    def _answered(self) -> None:
        if self._rung_ns is not None:
            self._loop_lags.append(now_ns() - self._rung_ns)
            self._rung_ns = None


def waiting_times(lags: Iterable[int], interval_ns: int) -> list[int]:
    """Return the lags with those that a late probe could not take: a wake-up 20 ms late has missed three others.

    A quantile of them is of what something that comes at any moment has to wait (Gil Tene's correction).
    """
    waited = []
    for lag in lags:
        waited.append(lag)
        waited += range(lag - interval_ns, 0, -interval_ns)
    return waited
