"""Perform the effects of a flow: in the calling thread for sync clients, in the running task for async clients."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import anyio.to_thread

from ..compat.send import async_send, send
from .closing import until_closed
from .effects import Acquire, Await, Close, Compute, Either, Flow, ReadBody, Send, Sleep


def run(flow: Flow) -> Any:
    """Run a flow in the calling thread. Returns what it returns, raises what it raises."""
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
        flow.close()  # an interrupt may have come between two effects
        del value, resume  # the traceback of an error refers to this frame


async def async_run(flow: Flow) -> Any:
    """Run a flow in the running task. Returns what it returns, raises what it raises."""
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


def _send(effect: Send) -> Any:
    if effect.layers is not None:
        return send(effect.layers, effect.http, effect.request, stream=effect.stream)
    return effect.send_request(effect.request, stream=effect.stream, **effect.arguments)


async def _async_send(effect: Send) -> Any:
    if effect.layers is not None:
        return await async_send(effect.layers, effect.http, effect.request, stream=effect.stream)
    return await effect.send_request(effect.request, stream=effect.stream, **effect.arguments)


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
        pause = ThreadPause()
        with until_closed(effect.http, pause):
            pause.wait(effect.seconds)


async def _async_sleep(effect: Sleep) -> None:
    if effect.http.is_closed:
        return
    with anyio.CancelScope() as scope, until_closed(effect.http, TaskPause(scope)):
        await (effect.sleep or anyio.sleep)(effect.seconds)


def _acquire(effect: Acquire) -> bool:
    ticket, pause = effect.ticket, ThreadPause()
    with until_closed(effect.http, pause):
        ticket.start(pause.call_off)
        if not ticket.is_granted:
            pause.wait(threading.TIMEOUT_MAX if effect.timeout_s is None else effect.timeout_s)
    return _granted(effect)


async def _async_acquire(effect: Acquire) -> bool:
    ticket = effect.ticket
    with anyio.move_on_after(effect.timeout_s) as scope:
        pause = TaskPause(scope)
        with until_closed(effect.http, pause):
            ticket.start(pause.call_off)
            if not ticket.is_granted:
                await anyio.sleep_forever()
    return _granted(effect)


def _granted(effect: Acquire) -> bool:
    if effect.ticket.is_granted:
        return True
    if effect.http.is_closed:
        return False
    raise TimeoutError(f"No slot was free within {effect.timeout_s} s")


async def _await(effect: Await) -> Any:
    return await effect.awaitable


def _compute(effect: Compute) -> Any:
    return effect.function()


async def _async_compute(effect: Compute) -> Any:
    return await anyio.to_thread.run_sync(effect.function)


def _either(effect: Either) -> Any:
    return effect.sync(run)


async def _async_either(effect: Either) -> Any:
    return await effect.asynchronous(async_run)


_ACTIONS: dict[type, Callable[[Any], Any]] = {
    Send: _send, ReadBody: _read, Close: _close, Sleep: _sleep, Acquire: _acquire, Compute: _compute, Either: _either,
}  # fmt: skip
_ASYNC_ACTIONS: dict[type, Callable[[Any], Any]] = {
    Send: _async_send, ReadBody: _async_read, Close: _async_close, Sleep: _async_sleep, Compute: _async_compute,
    Acquire: _async_acquire, Await: _await, Either: _async_either,
}  # fmt: skip


class ThreadPause:
    """A thread that sleeps until its time is up or `call_off` is called."""

    __slots__ = ("__weakref__", "_signal")

    def __init__(self) -> None:
        self._signal = threading.Lock()
        self._signal.acquire()

    def call_off(self) -> None:
        """Wake the thread. Calling it again does nothing."""
        with suppress(RuntimeError):
            self._signal.release()

    def wait(self, seconds: float) -> None:
        """Sleep."""
        self._signal.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))


class TaskPause:
    """A task that sleeps inside a cancel scope, on asyncio's loop or on trio's."""

    __slots__ = ("__weakref__", "_call_soon", "_scope")

    def __init__(self, scope: anyio.CancelScope) -> None:
        self._scope = scope
        try:
            self._call_soon: Callable[..., object] = asyncio.get_running_loop().call_soon_threadsafe
        except RuntimeError:
            self._call_soon = sys.modules["trio"].lowlevel.current_trio_token().run_sync_soon

    def call_off(self) -> None:
        """Wake the task, from any thread. Calling it again does nothing."""
        with suppress(RuntimeError):  # its loop has ended (trio's error is one as well)
            self._call_soon(self._scope.cancel)
