"""Run a coroutine in virtual time: where nothing is ready, the clock jumps to the next timer instead of waiting.

Client and provider (`fastlane.emulator.Server`) run on the same event loop and speak over real sockets, so an hour of
limits, pauses and timeouts takes milliseconds, and a busy machine changes nothing. The clock stands still while a
thread of the loop works.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import wraps
from math import ceil
from typing import Any, cast

from fastlane import _clock
from fastlane.knowledge import timer

# Loopback hands bytes on at once, though not always within the same system call.
_SETTLE_S = 0.001
_MOST_WAIT_S = 10.0


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is virtual."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000_000
        self._in_threads = 0
        selector: Any = selectors.DefaultSelector()
        super().__init__(selector)
        # A timer a nanosecond before its time would be set again, and time would stand still.
        self._clock_resolution = 0.5e-9
        self._wait, selector.select = selector.select, self._select

    def time(self) -> float:
        """Return virtual seconds."""
        return self.now_ns / 1e9

    def run_in_executor(self, *arguments: Any) -> Any:  # type: ignore[override]
        """Stop the clock while a thread works."""
        self._in_threads += 1
        future = super().run_in_executor(*arguments)
        future.add_done_callback(self._came_back)
        return future

    def _came_back(self, _: object) -> None:
        self._in_threads -= 1

    def _select(self, timeout: float | None = None) -> Any:
        if timeout == 0:
            return self._wait(0)
        in_threads = self._in_threads or timeout is None
        ready = self._wait(_MOST_WAIT_S if in_threads else _SETTLE_S)
        if not ready and in_threads:
            raise AssertionError(f"nothing has happened in {_MOST_WAIT_S:g} s, and no timer is set")
        if not ready:
            self.now_ns += ceil((timeout or 0.0) * 1e9)
        return ready


@contextmanager
def _clock_of(loop: VirtualLoop) -> Iterator[None]:
    """Have all of fastlane read the loop's clock, and its timer use the loop."""

    def now_ns() -> int:
        return loop.now_ns

    def call_at(at_ns: int, do: Callable[[], object], *, in_thread: bool = False) -> asyncio.TimerHandle:
        return loop.call_at(at_ns / 1e9, do)

    real_now_ns, real_call_at = _clock.now_ns, timer.call_at
    _replace("now_ns", real_now_ns, now_ns)
    timer.call_at = call_at  # type: ignore[assignment]
    try:
        yield
    finally:
        _replace("now_ns", now_ns, real_now_ns)
        timer.call_at = real_call_at


def _replace(name: str, old: object, new: object) -> None:
    """Replace a function in each module of fastlane that has imported it."""
    for module in list(sys.modules.values()):
        if module.__name__.partition(".")[0] == "fastlane" and vars(module).get(name) is old:
            vars(module)[name] = new


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test that is a coroutine function in virtual time."""

    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            loop = cast(VirtualLoop, runner.get_loop())
            with _clock_of(loop):
                runner.run(test(*arguments, **named))

    return run
