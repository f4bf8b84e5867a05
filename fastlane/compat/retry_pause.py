"""The wait of openai's loop before it tries again, which ends when the client is closed."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from ..engine.closing import until_closed


class _ThreadPause:
    """A thread that pauses."""

    __slots__ = ("__weakref__", "_signal")

    def __init__(self) -> None:
        self._signal = threading.Lock()
        self._signal.acquire()

    def call_off(self) -> None:
        try:
            self._signal.release()
        except RuntimeError:  # somebody else has
            pass

    def wait(self, seconds: float) -> None:
        self._signal.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))


def pause(http: Any, seconds: float) -> None:
    """Sleep for so long, or until the HTTP client is closed."""
    if seconds > 0:
        wait = _ThreadPause()
        with until_closed(http, wait):
            wait.wait(seconds)


class _Time:
    """The module `time`, whose sleep the end of the client ends."""

    def __init__(self, http: Any, clock: Any) -> None:
        self._http = http
        self._clock = clock

    def sleep(self, seconds: float) -> None:
        pause(self._http, seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)


def stock_pause(stock: Any, http: Any) -> Callable[..., None]:
    """What openai's own method does that sleeps before a retry, its sleep ended by the end of the client.

    Where somebody has put another function, or another sleep, into its place, that is what is called.
    """
    # (A wrapper may say that it is what it wraps.)
    function = stock.__func__ if type(stock) is MethodType else None
    if type(function) is not FunctionType or function.__closure__ is not None:
        return stock  # type: ignore[no-any-return]
    clock = function.__globals__.get("time")
    if getattr(clock, "__name__", None) != "time" or not isinstance(getattr(clock, "sleep", None), BuiltinFunctionType):
        return stock  # type: ignore[no-any-return]
    # Its messages in the log are openai's, and differ between its versions.
    names = {**function.__globals__, "time": _Time(http, clock)}
    ended_early = FunctionType(function.__code__, names, function.__name__, function.__defaults__)
    ended_early.__kwdefaults__ = function.__kwdefaults__
    return ended_early.__get__(stock.__self__)


class _TaskPause:
    """A task that pauses, on asyncio's loop or on trio's."""

    __slots__ = ("__weakref__", "_scope", "_soon")

    def __init__(self, scope: Any) -> None:
        self._scope = scope
        try:
            self._soon: Callable[..., object] = asyncio.get_running_loop().call_soon_threadsafe
        except RuntimeError:
            self._soon = sys.modules["trio"].lowlevel.current_trio_token().run_sync_soon

    def call_off(self) -> None:
        try:
            self._soon(self._scope.cancel)
        except RuntimeError:  # its loop has ended (trio's error is one as well)
            pass


async def async_pause(http: Any, sleep: Callable[[], Awaitable[object]]) -> None:
    """Await what sleeps, or until the HTTP client is closed."""
    if http.is_closed:
        return
    from anyio import CancelScope

    with CancelScope() as scope, until_closed(http, _TaskPause(scope)):
        await sleep()
