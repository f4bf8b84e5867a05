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

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from .._clock import now_ns
from ..compat.send import async_send, send
from ..transport.protocols.exchange import PATIENCE, Patience
from .closing import until_closed
from .effects import Acquire, Await, Close, Compute, Flow, Next, Race, Racer, ReadBody, Send, Sleep
from .flow_log import log, logged
from .race import async_run_race, run_race

# Of one event loop, at once: a thread that computes keeps a core busy.
_MOST_THREADS = 4

_NO_LIMIT: AbstractContextManager[Any] = nullcontext()


def run(flow: Flow, racer: Racer | None = None) -> Any:
    """Run a flow in the calling thread. Returns what it returns, raises what it raises.

    `racer`: the flow takes part in a race. Its cancellation, from any thread, raises Cancelled in the flow.
    """
    actions = _ACTIONS if racer is None else _RacerActions(racer)
    if log.isEnabledFor(logging.DEBUG):
        flow = logged(flow)
    resume: Callable[[Any], Any] = flow.send
    value: Any = None
    try:
        while True:
            try:
                effect = resume(value)
            except StopIteration as end:
                return end.value
            try:
                value, resume = actions[type(effect)](effect), flow.send
            except BaseException as error:  # noqa: BLE001 - the flow raises it again
                value, resume = error, flow.throw
    finally:
        flow.close()  # an interrupt may have come between two effects
        del value, resume  # the traceback of an error refers to this frame


async def async_run(flow: Flow, racer: Racer | None = None) -> Any:
    """Run a flow in the running task. See `run`."""
    actions = _ASYNC_ACTIONS if racer is None else _AsyncRacerActions(racer)
    if log.isEnabledFor(logging.DEBUG):
        flow = logged(flow)
    resume: Callable[[Any], Any] = flow.send
    value: Any = None
    try:
        while True:
            try:
                effect = resume(value)
            except StopIteration as end:
                return end.value
            try:
                value, resume = await actions[type(effect)](effect), flow.send
            except BaseException as error:  # noqa: BLE001 - the flow raises it again
                value, resume = error, flow.throw
    finally:
        flow.close()
        del value, resume


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
    # It must not end before that moment.
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


def _sleep(effect: Sleep, racer: Racer | None = None) -> None:
    if effect.sleep is not None:
        effect.sleep(effect.seconds)
    elif effect.seconds > 0:
        pause = ThreadPause()
        if racer is not None:
            racer.waits(pause.call_off)
        with until_closed(effect.http, pause):
            pause.wait(effect.seconds)


async def _async_sleep(effect: Sleep, racer: Racer | None = None) -> None:
    if effect.http is not None and effect.http.is_closed:
        return
    with anyio.CancelScope() as scope:
        pause = TaskPause(scope)
        if racer is not None:
            racer.waits(pause.call_off)
        with until_closed(effect.http, pause):
            await (effect.sleep or anyio.sleep)(effect.seconds)


def _acquire(effect: Acquire, racer: Racer | None = None) -> bool:
    ticket, pause = effect.ticket, ThreadPause()
    ticket.start(pause.call_off)
    if not ticket.is_granted and effect.timeout_s != 0:
        if racer is not None:
            racer.waits(pause.call_off)
        with until_closed(effect.http, pause):
            pause.wait(effect.timeout_s)
    return _granted(effect)


async def _async_acquire(effect: Acquire, racer: Racer | None = None) -> bool:
    ticket, scope = effect.ticket, anyio.CancelScope()
    pause = TaskPause(scope)
    ticket.start(pause.call_off)
    if not ticket.is_granted and effect.timeout_s != 0:
        if racer is not None:
            racer.waits(pause.call_off)
        if effect.timeout_s is not None:
            scope.deadline = anyio.current_time() + effect.timeout_s
        with scope, until_closed(effect.http, pause):
            await anyio.sleep_forever()
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
    # The threads of the application may all be waiting for calls like this one: these are others.
    limiter = _limiter_of_loop().get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(_MOST_THREADS)
        _limiter_of_loop().set(limiter)
    return await anyio.to_thread.run_sync(effect.function, limiter=limiter)


@cache
def _limiter_of_loop() -> Any:
    return RunVar[Any]("fastlane_compute_threads")


def _race(effect: Race) -> Any:
    return run_race(effect, run)


async def _async_race(effect: Race) -> Any:
    return await async_run_race(effect, async_run)


_Actions = Mapping[type, Callable[[Any], Any]]

_ACTIONS: _Actions = {
    Send: _send, ReadBody: _read, Next: _next, Close: _close, Sleep: _sleep, Acquire: _acquire,
    Compute: _compute, Race: _race,
}  # fmt: skip
_ASYNC_ACTIONS: _Actions = {
    Send: _async_send, ReadBody: _async_read, Next: _async_next, Close: _async_close, Sleep: _async_sleep,
    Acquire: _async_acquire, Compute: _async_compute, Await: _await, Race: _async_race,
}  # fmt: skip


class _RacerActions(dict[type, Callable[[Any], Any]]):
    """The actions of a flow that may be cancelled."""

    def __init__(self, racer: Racer) -> None:
        self._racer = racer

    def __missing__(self, kind: type) -> Callable[[Any], Any]:
        return self._perform

    def _perform(self, effect: Any) -> Any:
        racer, kind = self._racer, type(effect)
        if kind is Close:
            return _close(effect)
        racer.check()
        try:
            if kind is Sleep:
                return _sleep(effect, racer)
            if kind is Acquire:
                return _acquire(effect, racer)
            if kind is Send:
                racer.waits(_patience_of(effect.request).give_up)
            return _ACTIONS[kind](effect)
        except Exception:
            racer.check()  # the error may be that of the connection which the cancellation has closed
            raise


class _AsyncRacerActions(_RacerActions):
    async def _perform(self, effect: Any) -> Any:
        racer, kind = self._racer, type(effect)
        if kind is Close:
            return await _async_close(effect)
        racer.check()
        try:
            if kind is Sleep:
                return await _async_sleep(effect, racer)
            if kind is Acquire:
                return await _async_acquire(effect, racer)
            if kind is Send:
                racer.waits(_patience_of(effect.request).give_up)
            return await _ASYNC_ACTIONS[kind](effect)
        except Exception:
            racer.check()
            raise


def _patience_of(request: Any) -> Patience:
    patience: Patience = request.extensions.setdefault(PATIENCE, Patience())
    return patience


class ThreadPause:
    """A thread that sleeps until its time is up or `call_off` is called."""

    __slots__ = ("__weakref__", "_signal")

    def __init__(self) -> None:
        self._signal = threading.Lock()
        self._signal.acquire()

    def call_off(self) -> bool:
        """Wake the thread. Calling it again does nothing."""
        with suppress(RuntimeError):
            self._signal.release()
        return True

    def wait(self, seconds: float | None) -> None:
        """Sleep; for ever where `seconds` is None."""
        self._signal.acquire(timeout=-1 if seconds is None else min(seconds, threading.TIMEOUT_MAX))


class TaskPause:
    """A task that sleeps inside a cancel scope, on asyncio's loop or on trio's."""

    __slots__ = ("__weakref__", "_call_soon", "_scope")

    def __init__(self, scope: anyio.CancelScope) -> None:
        self._scope = scope
        try:
            self._call_soon: Callable[..., object] = asyncio.get_running_loop().call_soon_threadsafe
        except RuntimeError:
            self._call_soon = sys.modules["trio"].lowlevel.current_trio_token().run_sync_soon

    def call_off(self) -> bool:
        """Wake the task, from any thread. Calling it again does nothing. Returns False where its loop has ended."""
        try:
            self._call_soon(self._scope.cancel)
        except RuntimeError:  # trio's error is one as well
            return False
        return True
