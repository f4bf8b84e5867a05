"""Perform a Race: the first flow in the caller's thread or task, the second in one of its own, once it begins."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from ..knowledge import timer
from .effects import Cancelled, Flow, Race, Racer

# A loop keeps no task alive.
_tasks: set[asyncio.Task[None]] = set()


class _Second:
    """The second flow of a race, and how it has ended."""

    def __init__(self, race: Race) -> None:
        self.race = race
        self.context = contextvars.copy_context()
        self.is_awaited = True
        self._value: Any = None
        self._error: BaseException | None = None

    def flow(self) -> Flow | None:
        """Make the flow. None when it is not to begin."""
        make = self.race.make_second
        return None if make is None or not self.race.is_open else make(self.race.second)

    def returned(self, value: Any) -> None:
        """Take what the flow has returned."""
        with suppress(Cancelled):
            self.race.win(self.race.second)
            self._value = value

    def failed(self, error: BaseException) -> None:
        """Take the error of the flow."""
        self.race.leave(self.race.second)
        if self.is_awaited and not self.race.second.is_cancelled:
            self._error = error

    def forget(self) -> None:
        """Keep nothing: nobody waits for the flow any more."""
        self.is_awaited = False
        # Its traceback leads to this object.
        self._error = self._value = None

    def result(self, first_error: BaseException) -> Any:
        """Return what the flow has returned, when the first one has failed. Raises the error of the race."""
        error, self._error = self._error, None
        try:
            if self.race.winner is not self.race.second:
                raise first_error
            if error is not None:
                raise error
            return self._value
        finally:
            del first_error, error


def run_race(race: Race, run: Callable[[Flow, Racer], Any]) -> Any:
    """Run a race in threads. `run` runs a flow until it ends or its racer is cancelled."""
    second, ended = _Second(race), threading.Event()

    def run_second() -> None:
        try:
            flow = second.flow()
            if flow is not None:
                second.returned(run(flow, race.second))
        except BaseException as error:  # noqa: BLE001 - for the caller's thread
            second.failed(error)
        finally:
            ended.set()

    def begin_second() -> None:
        # With the first hedge, not with `import fastlane`.
        from ..transport.drivers.thread_driver import start

        with suppress(RuntimeError):  # no thread can be started
            start(threading.Thread(target=second.context.run, args=(run_second,), name="fastlane hedge", daemon=True))

    def set_alarm(delay_s: float) -> Callable[[], object]:
        try:
            return timer.call_later(delay_s, begin_second).cancel
        except RuntimeError:  # no thread can be started
            return bool

    race.set_alarm = set_alarm
    first_error: BaseException | None = None
    try:
        try:
            assert race.make_first is not None
            value = run(race.make_first(race.first), race.first)
            race.win(race.first)
        except (Exception, Cancelled) as error:
            if not _goes_on(race):
                raise
            first_error = error
        else:
            return value
        race.close()
        ended.wait()
        return second.result(first_error)
    except BaseException:
        race.abandon()
        raise
    finally:
        race.close()
        second.forget()
        del first_error  # its traceback refers to this frame


async def async_run_race(race: Race, run: Callable[[Flow, Racer], Awaitable[Any]]) -> Any:
    """Run a race in tasks. `run` runs a flow until it ends or its racer is cancelled."""
    second, loop = _Second(race), asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []

    async def run_second() -> None:
        try:
            flow = second.flow()
            if flow is not None:
                second.returned(await run(flow, race.second))
        except (KeyboardInterrupt, SystemExit):  # for the loop
            raise
        except BaseException as error:  # noqa: BLE001 - for the caller's task
            second.failed(error)

    def begin_second() -> None:
        task = loop.create_task(run_second(), context=second.context)
        tasks.append(task)
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)

    def set_alarm(delay_s: float) -> Callable[[], object]:
        return loop.call_later(delay_s, begin_second).cancel

    race.set_alarm = set_alarm
    first_error: BaseException | None = None
    try:
        try:
            assert race.make_first is not None
            value = await run(race.make_first(race.first), race.first)
            race.win(race.first)
        except (Exception, Cancelled) as error:
            if not _goes_on(race):
                raise
            first_error = error
        else:
            return value
        race.close()
        await asyncio.wait(tasks)
        return second.result(first_error)
    except BaseException:
        if race.abandon():
            tasks[0].cancel()
        raise
    finally:
        race.close()
        second.forget()
        del first_error


def _goes_on(race: Race) -> bool:
    """Whether the second flow decides the race, when the first one has ended without a result."""
    return race.leave(race.first) or race.first.is_cancelled
