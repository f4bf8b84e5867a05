"""Run the ways of an asynchronous call: see `_sync`."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from fastlane._clock import now_ns

from ._begun import async_begun
from ._journey import Journey
from ._judged import judged, received, whole_answer
from ._left import Left
from ._leg import Leg
from ._race import Race
from ._sync import can_hedge, failed_beside, forgone, may_enter, result_of

if TYPE_CHECKING:
    from ..observation import Observation

Run = Callable[[Leg], Awaitable[Any]]
"""Runs one way to its result."""

_no_end = nullcontext()
# A loop keeps no task alive.
_under_way: set[asyncio.Task[None]] = set()


async def async_raced(journey: Journey, leg: Leg, run: Run) -> tuple[Any, Leg]:
    """See `_sync.raced`."""
    hedge = leg.hedge
    if hedge is None or hedge.delay_s is None or not can_hedge(journey, leg):
        return await run(leg), leg
    if not _is_asyncio():
        journey.account.no_hedge("the event loop is not asyncio's")
        return await run(leg), leg
    loop = asyncio.get_running_loop()
    second = _Second(journey, leg, run)
    alarms: list[asyncio.TimerHandle] = []
    leg.when_placed(partial(_set_alarm, loop, leg, hedge.delay_s, second.start, alarms))
    try:
        return await run(leg), leg
    except (Exception, Left) as error:
        if not second.goes_on():
            raise
        return await second.result(error)
    except BaseException:
        second.give_up()
        raise
    finally:
        for alarm in alarms:
            alarm.cancel()
        second.close()


def _set_alarm(
    loop: asyncio.AbstractEventLoop,
    leg: Leg,
    delay_s: float,
    act: Callable[[], None],
    alarms: list[asyncio.TimerHandle],
) -> None:
    # (Planning and sending have taken some time already.)
    alarms.append(loop.call_at(loop.time() + delay_s - (now_ns() - leg.started_ns) / 1e9, act))


class _Second:
    """The second way of a call, in a task of its own once it is begun."""

    def __init__(self, journey: Journey, first: Leg, run: Run) -> None:
        self._journey = journey
        self._first = first
        self._run: Run | None = run
        self._race = Race(first)
        self._context = contextvars.copy_context()
        self._task: asyncio.Task[None] | None = None
        self._leg: Leg | None = None
        self._result: Any = None
        self._error: BaseException | None = None

    def start(self) -> None:
        """The first one is late."""
        self._task = asyncio.get_running_loop().create_task(self._go(), context=self._context)
        _under_way.add(self._task)
        self._task.add_done_callback(_under_way.discard)

    async def _go(self) -> None:
        journey, run, first, race = self._journey, self._run, self._first, self._race
        leg: Leg | None = None
        try:
            if run is None or not race.has_room(partial(may_enter, journey, first)):
                return
            leg = self._leg = journey.second(first)
            if leg is None or not race.enter(leg, partial(journey.hedge_begins, first, leg)):
                self._leg = None
                forgone(leg)
                return
            self._result = await run(leg)
        except (KeyboardInterrupt, SystemExit):  # for the loop
            raise
        except BaseException as error:  # noqa: BLE001 - for the task of the call to look at
            if failed_beside(journey, race, leg, error):
                self._error = error
        finally:
            del journey, run, first, race, leg

    def goes_on(self) -> bool:
        """The first one has ended without an answer: whether this one goes on, or has ended it."""
        return self._race.ended(self._first) or self._first.is_lost

    async def result(self, first_error: BaseException) -> tuple[Any, Leg]:
        """Wait for its result. Raises the first one's error where both have failed."""
        try:
            if self._task is not None:
                await asyncio.wait([self._task])
        except BaseException:
            self.give_up()
            raise
        try:
            return result_of(self._first, self._leg, self._result, first_error, self._error)
        finally:
            del first_error

    def give_up(self) -> None:
        """Nobody waits for it any more."""
        if self._leg is not None:
            self._leg.lose()
        if self._task is not None:
            self._task.cancel()

    def close(self) -> None:
        """The call has its result, or its error."""
        self._race.close()
        # The traceback of its error leads to itself.
        self._run = self._error = None


def _within(leg: Leg) -> AbstractContextManager[Any]:
    """Ends an attempt by a TimeoutError when it has gone on without content for too long.

    Our own transport sees to that by itself.
    """
    until_ns = leg.patience.until_ns
    if until_ns is None or (leg.observation.transport == "fastlane" and _is_asyncio()):
        return _no_end
    # (It must not end before that moment.)
    return anyio.fail_after(max(0.0, (until_ns - now_ns()) / 1e9) + 0.001)


def _is_asyncio() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # trio's loop, which our transport does not know either
        return False
    return True


async def async_begun_by(
    leg: Leg, observation: Observation, send: Callable[[], Awaitable[Any]], *, unread: bool
) -> Any:
    """See `begun_by`."""
    leg.check()
    is_answered = False
    try:
        with _within(leg):
            response = await send()
            if not received(response):
                return response
            if not unread:
                return whole_answer(leg, observation, response)
            is_answered = True
            verdict = await async_begun(response, observation.endpoint)
    except Exception as error:
        left = leg.left_by(error)
        if left is None and is_answered and not leg.may_leave:
            # It was begun, and may be billed: the application sees it break, as the stock client has it. openai's loop
            # would try it again.
            error.with_traceback(None)  # as in `begun_by`
            return response
        if is_answered:
            await response.aclose()
        if left is None:
            raise
        observation.attempt_failed(error)
        try:
            raise left from None
        finally:
            del left  # whose traceback leads here
    try:
        judged(leg, verdict, response)
    except Left:
        await response.aclose()
        raise
    return response
