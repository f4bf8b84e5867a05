"""Warn once per origin and process if something between the provider and this process buffers streams."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any, Literal

from .._clock import now_ns
from ..knowledge import timer
from ..records.bursts import BUFFERING_ADVICE, LEAST_EVENTS, bursts_of

log = logging.getLogger("fastlane")

_TICK_S = 0.05
# Much less than the pause between two bursts, and more than the lag of a busy process.
_MAX_LAG_NS = 100_000_000

_MOST_ORIGINS = 1_000

suspects: dict[str, Literal["suspected", "warned"]] = {}
"""By origin: whether its last stream came in bursts, or the warning was logged."""


class LagMonitor:
    """Measures the lag of this process while a stream is read: a blocked event loop reads in bursts, too."""

    def __init__(self, *, asynchronous: bool) -> None:
        self._call_later = timer.call_later
        if asynchronous:
            with suppress(RuntimeError):  # trio
                self._call_later = asyncio.get_running_loop().call_later  # type: ignore[assignment]
        self._lag_ns = self._due_ns = 0
        self._is_over = False
        self._plan()

    def _plan(self) -> None:
        self._due_ns = now_ns() + round(_TICK_S * 1e9)
        with suppress(RuntimeError):  # no thread can be started: late from now on
            self._call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        self._lag_ns = max(self._lag_ns, now_ns() - self._due_ns)
        if not self._is_over:
            self._plan()

    def end(self) -> bool:
        """Stop measuring, and return whether the process never lagged."""
        self._is_over = True
        return max(self._lag_ns, now_ns() - self._due_ns) < _MAX_LAG_NS


def watch(call: Any) -> None:
    """Begin to measure the lag of this process, if the last stream of the call's origin came in bursts."""
    if call.lag_monitor is None and suspects.get(call.origin) == "suspected":
        call.lag_monitor = LagMonitor(asynchronous=call.client._asynchronous)


def note_stream(call: Any) -> None:
    """Judge a stream that has ended by the arrival of its events; warn at the second in a row that was buffered."""
    lag_monitor, call.lag_monitor = call.lag_monitor, None
    never_lagged = lag_monitor is not None and lag_monitor.end()
    token_ns, phases = call.answer.token_ns, call.attempts[-1].phases
    if len(token_ns) < LEAST_EVENTS or not phases.data_ns or suspects.get(call.origin) == "warned":
        return  # without arrivals of bytes, the events have the times at which the application read them
    bursts = bursts_of(token_ns, phases.send_ended_ns)
    if bursts is None:
        suspects.pop(call.origin, None)
    elif lag_monitor is None:
        if len(suspects) < _MOST_ORIGINS:
            suspects[call.origin] = "suspected"
    elif never_lagged:
        suspects[call.origin] = "warned"
        log.warning(
            "Streams from %s are held back: %d events came in %s. %s (logged once)",
            call.origin,
            len(token_ns),
            "one burst" if bursts == 1 else f"{bursts} bursts",
            BUFFERING_ADVICE,
        )
