"""Perform the effects of a flow: in the calling thread for sync clients, in the running task for async clients."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from typing import Any
from weakref import ref

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from .._clock import now_ns
from .._fork import in_child
from ..compat.send import async_send, send
from .effects import Acquire, Await, Close, Compute, Flow, Next, Perform, Race, Racer, ReadBody, Send, Sleep
from .flow_log import log, logged

# The limit for `Compute` on one event loop: each thread keeps a core busy.
_MOST_THREADS = 4

_NO_LIMIT: AbstractContextManager[Any] = nullcontext()


def run(flow: Flow, racer: Racer | None = None) -> Any:
    """Run a flow in the calling thread. Returns what it returns, raises what it raises.

    `racer`: the flow takes part in a race. Its cancellation, from any thread, raises Cancelled in the flow.
    """
    if racer is not None or log.isEnabledFor(logging.DEBUG):
        flow = _wrapped(flow, racer)
    resume: Callable[[Any], Any] = flow.send
    value: Any = None
    try:
        while True:
            try:
                effect = resume(value)
            except StopIteration as end:
                return end.value
            try:
                value, resume = _ACTIONS[type(effect)](effect), flow.send
            except BaseException as error:  # noqa: BLE001 - the flow raises it again
                value, resume = error, flow.throw
    finally:
        flow.close()  # an interrupt may come between two effects
        del value, resume  # the traceback of an error refers to this frame


async def async_run(flow: Flow, racer: Racer | None = None) -> Any:
    """Run a flow in the running task. See `run`."""
    if racer is not None or log.isEnabledFor(logging.DEBUG):
        flow = _wrapped(flow, racer)
    resume: Callable[[Any], Any] = flow.send
    value: Any = None
    try:
        while True:
            try:
                effect = resume(value)
            except StopIteration as end:
                return end.value
            try:
                value, resume = await _ASYNC_ACTIONS[type(effect)](effect), flow.send
            except BaseException as error:  # noqa: BLE001 - the flow raises it again
                value, resume = error, flow.throw
    finally:
        flow.close()
        del value, resume


def _wrapped(flow: Flow, racer: Racer | None) -> Flow:
    if log.isEnabledFor(logging.DEBUG):
        flow = logged(flow)
    if racer is None:
        return flow
    from .race import racing  # with the first race, not with `import fastlane`

    return racing(flow, racer)


def _send(effect: Send) -> Any:
    if effect.layers is not None:
        return send(effect.layers, effect.http, effect.request, stream=effect.stream)
    return effect.send_request(effect.request, stream=effect.stream, **effect.arguments)


async def _async_send(effect: Send) -> Any:
    with _within(effect.until_ns):
        if effect.layers is not None:
            return await async_send(effect.layers, effect.http, effect.request, stream=effect.stream)
        return await effect.send_request(effect.request, stream=effect.stream, **effect.arguments)


def _within(until_ns: int | None) -> AbstractContextManager[Any]:
    # Not earlier than `until_ns`, because the flow compares it with the clock.
    return _NO_LIMIT if until_ns is None else anyio.fail_after(max(0.0, (until_ns - now_ns()) / 1e9) + 0.001)


def _next(effect: Next) -> bytes | None:
    return next(effect.pieces, None)


async def _async_next(effect: Next) -> bytes | None:
    with _within(effect.until_ns):
        return await anext(effect.pieces, None)


def _read(effect: ReadBody) -> None:
    if not effect.response.is_closed:
        effect.response.read()


async def _async_read(effect: ReadBody) -> None:
    if not effect.response.is_closed:
        await effect.response.aread()


def _close(effect: Close) -> None:
    effect.response.close()


async def _async_close(effect: Close) -> None:
    await effect.response.aclose()


def _sleep(effect: Sleep) -> None:
    if effect.sleep is not None:
        effect.sleep(effect.seconds)
    elif effect.seconds > 0:
        ThreadPause().wait(effect.seconds, effect.http, effect.racer)


async def _async_sleep(effect: Sleep) -> None:
    if effect.sleep is not None:
        await effect.sleep(effect.seconds)
    elif effect.seconds > 0:
        await TaskPause().wait(effect.seconds, effect.http, effect.racer)


def _acquire(effect: Acquire) -> bool:
    pause = ThreadPause()
    effect.ticket.start(pause.call_off)
    if not effect.ticket.is_granted and effect.timeout_s != 0:
        pause.wait(effect.timeout_s, effect.http, effect.racer)
    return _granted(effect)


async def _async_acquire(effect: Acquire) -> bool:
    pause = TaskPause()
    effect.ticket.start(pause.call_off)
    if not effect.ticket.is_granted and effect.timeout_s != 0:
        await pause.wait(effect.timeout_s, effect.http, effect.racer)
    return _granted(effect)


def _granted(effect: Acquire) -> bool:
    if effect.ticket.is_granted:
        return True
    if effect.http is not None and effect.http.is_closed:
        return False
    raise TimeoutError(f"No slot was free within {effect.timeout_s} s")


async def _await(effect: Await) -> Any:
    return await effect.awaitable


def _compute(effect: Compute) -> Any:
    return effect.function()


async def _async_compute(effect: Compute) -> Any:
    # Not anyio's default limiter: the application's threads may all be waiting for such calls.
    limiter = _limiter_of_loop().get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(_MOST_THREADS)
        _limiter_of_loop().set(limiter)
    return await anyio.to_thread.run_sync(effect.function, limiter=limiter)


@cache
def _limiter_of_loop() -> Any:
    return RunVar[Any]("fastlane_compute_threads")


def _race(effect: Race) -> Any:
    from .race import run_race

    return run_race(effect, run)


async def _async_race(effect: Race) -> Any:
    from .race import async_run_race

    return await async_run_race(effect, async_run)


def _perform(effect: Perform) -> Any:
    return effect.function()


async def _async_perform(effect: Perform) -> Any:
    return await effect.function()


_Actions = Mapping[type, Callable[[Any], Any]]

_ACTIONS: _Actions = {
    Send: _send, ReadBody: _read, Next: _next, Close: _close, Sleep: _sleep, Acquire: _acquire,
    Compute: _compute, Race: _race, Perform: _perform,
}  # fmt: skip
_ASYNC_ACTIONS: _Actions = {
    Send: _async_send, ReadBody: _async_read, Next: _async_next, Close: _async_close, Sleep: _async_sleep,
    Acquire: _async_acquire, Compute: _async_compute, Await: _await, Race: _async_race, Perform: _async_perform,
}  # fmt: skip


# The running waits, each with the id() of the HTTP client whose closing ends it. Copies of a client share its HTTP
# client: closing one closes all, as in openai. Each change is one atomic step of a dictionary, without a lock. The
# references are weak, because a waiting task may be garbage-collected.
_waits: dict[ref[Pause], int] = {}
in_child(_waits.clear)


def waiting_on(http: Any) -> list[Pause]:
    """Return the waits that the closing of an HTTP client ends."""
    waits = [wait() for wait, address in _waits.copy().items() if address == id(http)]
    return [wait for wait in waits if wait is not None]


def call_off_waits(http: Any) -> None:
    """End the waits on an HTTP client that has been closed. Any thread may call this.

    The waiting flows go on to send their request, which raises the HTTP library's error for a closed client.
    """
    for wait in waiting_on(http):
        wait.call_off()


class Pause:
    """A wait that ends when its time is up, when `call_off` is called, or when the HTTP client is closed."""

    __slots__ = ("__weakref__", "_ref")

    def call_off(self) -> bool:
        """End the wait, from any thread. Calling it again does nothing. Returns False if the event loop has ended."""
        raise NotImplementedError

    def _begin(self, http: Any, racer: Racer | None) -> None:
        if racer is not None:
            racer.set_wait(self.call_off)
        self._ref = ref(self, _forget)
        _waits[self._ref] = id(http)
        # The client may have been closed before this wait was registered.
        if http is not None and http.is_closed:
            self.call_off()

    def _end(self) -> None:
        _forget(self._ref)


def _forget(wait: ref[Pause]) -> None:
    _waits.pop(wait, None)


class ThreadPause(Pause):
    """A wait of a thread."""

    __slots__ = ("_signal",)

    def __init__(self) -> None:
        self._signal = threading.Lock()
        self._signal.acquire()

    def call_off(self) -> bool:
        """See `Pause`."""
        with suppress(RuntimeError):
            self._signal.release()
        return True

    def wait(self, seconds: float | None, http: Any = None, racer: Racer | None = None) -> None:
        """Sleep; for ever where `seconds` is None. The cancellation of `racer` ends the wait as well."""
        self._begin(http, racer)
        try:
            self._signal.acquire(timeout=-1 if seconds is None else min(seconds, threading.TIMEOUT_MAX))
        finally:
            self._end()


class TaskPause(Pause):
    """A wait of a task, on asyncio's or trio's event loop."""

    __slots__ = ("_ended", "_loop", "_thread", "_token")

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._ended: Any
        try:
            self._loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = None
            self._token = sys.modules["trio"].lowlevel.current_trio_token()
            self._ended = anyio.Event()
        else:
            # anyio.Event takes longer than the rest of an acquisition.
            self._ended = self._loop.create_future()

    def call_off(self) -> bool:
        """See `Pause`. Returns False where the loop of the task has ended."""
        try:
            if self._loop is None:
                self._token.run_sync_soon(self._ended.set)
            elif threading.get_ident() == self._thread:  # writing to the loop's socket costs several times as much
                self._wake()
            else:
                self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:  # trio's error is one as well
            return False
        return True

    def _wake(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    async def wait(self, seconds: float | None, http: Any = None, racer: Racer | None = None) -> None:
        """Sleep; for ever where `seconds` is None. The cancellation of `racer` ends the wait as well."""
        timer = None
        self._begin(http, racer)
        try:
            if self._loop is None:
                with anyio.move_on_after(seconds):
                    await self._ended.wait()
                return
            if seconds is not None:
                timer = self._loop.call_later(seconds, self._wake)
            await self._ended
        finally:
            self._end()
            if timer is not None:
                timer.cancel()
