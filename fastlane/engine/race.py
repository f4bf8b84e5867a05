"""Perform a Race: the first flow in the caller's thread or task, the second one in a new thread or task."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

import openai

from ..knowledge import timer
from ..transport.protocols.exchange import PATIENCE, Patience
from .effects import Acquire, Cancelled, Close, Flow, Perform, Race, Racer, Send, Sleep

# An event loop holds only weak references to its tasks.
_tasks: set[asyncio.Task[None]] = set()


def racing(flow: Flow, racer: Racer) -> Flow:
    """Run a flow in a race. Cancelling its racer, from any thread, raises Cancelled in the flow."""
    resume: Callable[[Any], Any] = flow.send
    value: Any = None
    try:
        while True:
            try:
                effect = resume(value)
            except StopIteration as end:
                return end.value
            may_end = not isinstance(effect, Close)
            try:
                if may_end:
                    racer.check()
                if isinstance(effect, Sleep | Acquire):
                    effect.racer = racer
                elif isinstance(effect, Send):
                    racer.set_wait(effect.request.extensions.setdefault(PATIENCE, Patience()).give_up)
                value, resume = (yield effect), flow.send
            except BaseException as error:  # noqa: BLE001 - the flow raises it again
                # The error may come from the connection that the cancellation closed.
                is_cancelled = may_end and racer.is_cancelled and isinstance(error, Exception)
                value, resume = Cancelled() if is_cancelled else error, flow.throw
    finally:
        flow.close()
        del value, resume  # the traceback of an error refers to this frame


class _Second:
    """The second flow of a race, and its result."""

    def __init__(self, race: Race, *, asynchronous: bool) -> None:
        self.race = race
        self.context = contextvars.copy_context()
        self._is_for_loop = (KeyboardInterrupt, SystemExit) if asynchronous else ()
        self._is_awaited = True
        self._value: Any = None
        self._error: BaseException | None = None

    def flow(self) -> Flow:
        """Run the flow, unless the race is closed, and keep its result."""
        try:
            make = self.race.make_second
            flow = None if make is None or not self.race.is_open else make(self.race.second)
            if flow is not None:
                value = yield from flow
                with suppress(Cancelled):
                    self.race.win(self.race.second)
                    self._value = value
        except self._is_for_loop:
            raise
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread or task
            self.race.leave(self.race.second)
            if self._is_awaited and not self.race.second.is_cancelled:
                self._error = error

    def forget(self) -> None:
        """Drop the result: the caller does not wait for the flow any more."""
        self._is_awaited = False
        # The traceback refers to this object.
        self._error = self._value = None

    def result(self, first_error: BaseException) -> Any:
        """Return the result of the flow, after the first one has failed. Raises the error of the race."""
        error, self._error = self._error, None
        try:
            if self.race.winner is not self.race.second:
                raise first_error
            if error is not None:
                raise error
            return self._value
        finally:
            del first_error, error


def _race_flow(
    race: Race,
    second: _Second,
    run: Callable[..., Any],
    await_second: Callable[[], Any],
    cancel_second: Callable[[], object],
) -> Flow:
    """Run a race whose second flow an alarm starts. Returns its result."""
    first_error: BaseException | None = None
    try:
        try:
            assert race.make_first is not None
            value = yield Perform(partial(run, race.make_first(race.first), race.first))
            race.win(race.first)
        except (openai.OpenAIError, Cancelled) as error:
            # The first flow has no result: the second one decides, if it is running or has won.
            if not race.leave(race.first) and not race.first.is_cancelled:
                raise
            first_error = error
        else:
            return value
        race.close()
        yield Perform(await_second)
        return second.result(first_error)
    except BaseException:
        if race.abandon():
            cancel_second()
        raise
    finally:
        race.close()
        second.forget()
        del first_error  # its traceback refers to this frame


def run_race(race: Race, run: Callable[..., Any]) -> Any:
    """Run a race in threads. `run` runs a flow until it ends or its racer is cancelled."""
    second, ended = _Second(race, asynchronous=False), threading.Event()

    def run_second() -> None:
        try:
            run(second.flow(), race.second)
        finally:
            ended.set()

    def begin_second() -> None:
        # Imported with the first race, not with `import fastlane`.
        from ..transport.drivers.thread_driver import start

        with suppress(RuntimeError):  # no thread can be started
            start(threading.Thread(target=second.context.run, args=(run_second,), name="fastlane race", daemon=True))

    def set_alarm(delay_s: float) -> Callable[[], object]:
        try:
            return timer.call_later(delay_s, begin_second).cancel
        except RuntimeError:  # no thread can be started
            return bool

    race.set_alarm = set_alarm
    return run(_race_flow(race, second, run, ended.wait, bool))


async def async_run_race(race: Race, run: Callable[..., Coroutine[Any, Any, Any]]) -> Any:
    """Run a race in tasks. `run` runs a flow until it ends or its racer is cancelled."""
    second, loop = _Second(race, asynchronous=True), asyncio.get_running_loop()
    tasks: list[asyncio.Task[Any]] = []

    def begin_second() -> None:
        task = loop.create_task(run(second.flow(), race.second), context=second.context)
        tasks.append(task)
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)

    def cancel_second() -> None:
        tasks[0].cancel()

    race.set_alarm = lambda delay_s: loop.call_later(delay_s, begin_second).cancel
    return await run(_race_flow(race, second, run, lambda: asyncio.wait(tasks), cancel_second))
