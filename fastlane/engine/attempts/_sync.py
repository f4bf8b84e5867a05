"""Race a second way of a synchronous call beside one that is late, and wait for the first content of a way."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from fastlane._clock import now_ns
from fastlane.knowledge import timer
from fastlane.transport.drivers.thread_driver import start

from ._begun import begun
from ._journey import Journey
from ._judged import judged, received, whole_answer
from ._left import Left
from ._leg import Leg
from ._race import Race

if TYPE_CHECKING:
    from ..observation import Observation

Run = Callable[[Leg], Any]
"""Runs one way to its result."""


def can_hedge(journey: Journey, leg: Leg) -> bool:
    """Whether it can be seen that this way is late, and be given up from outside; if not, the record says so."""
    if leg.observation.transport != "fastlane":
        journey.account.no_hedge("fastlane's transport does not carry the call: client.explain() says why")
    elif not leg.shows_first_token:
        journey.account.no_hedge("the answer comes at once")
    else:
        return True
    return False


def may_enter(journey: Journey, first: Leg) -> bool:
    """Whether the second attempt beside a late one may be made now; the record says why not."""
    hedge = first.hedge
    why_not: str | None = "the call is over"
    if hedge is not None:
        why_not = hedge.governor.take(hedge.input_tokens + hedge.output_tokens, now_ns())
    if why_not is not None:
        journey.account.why_not = why_not
    return why_not is None


def raced(journey: Journey, leg: Leg, run: Run) -> tuple[Any, Leg]:
    """The result of a way, or of the second one that was begun beside it because it was late."""
    hedge = leg.hedge
    if hedge is None or hedge.delay_s is None or not can_hedge(journey, leg):
        return run(leg), leg
    second = _Second(journey, leg, run)
    alarms: list[timer.Handle] = []
    leg.when_placed(partial(_set_alarm, leg, hedge.delay_s, second.start, alarms))
    try:
        return run(leg), leg
    except (Exception, Left) as error:
        if not second.goes_on():
            raise
        return second.result(error)
    except BaseException:
        second.give_up()
        raise
    finally:
        for alarm in alarms:
            alarm.cancel()
        second.close()


def _set_alarm(leg: Leg, delay_s: float, act: Callable[[], None], alarms: list[timer.Handle]) -> None:
    with suppress(RuntimeError):  # no thread to be had
        alarms.append(timer.call_at(leg.started_ns + int(delay_s * 1e9), act))


class _Second:
    """The second way of a call, in a thread of its own once it is begun."""

    def __init__(self, journey: Journey, first: Leg, run: Run) -> None:
        self._journey = journey
        self._first = first
        self._run: Run | None = run
        self._race = Race(first)
        self._context = contextvars.copy_context()
        self._ended = threading.Event()
        self._leg: Leg | None = None
        self._result: Any = None
        self._error: BaseException | None = None

    def start(self) -> None:
        """The first one is late."""
        try:
            start(threading.Thread(target=self._context.run, args=(self._go,), name="fastlane hedge", daemon=True))
        except RuntimeError:  # no thread to be had
            self._journey.account.why_not = "no thread could be started"

    def _go(self) -> None:
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
            self._result = run(leg)
        except BaseException as error:  # noqa: BLE001 - for the thread of the call to look at
            if failed_beside(journey, race, leg, error):
                self._error = error
        finally:
            self._ended.set()
            del journey, run, first, race, leg

    def goes_on(self) -> bool:
        """The first one has ended without an answer: whether this one goes on, or has ended it."""
        return self._race.ended(self._first) or self._first.is_lost

    def result(self, first_error: BaseException) -> tuple[Any, Leg]:
        """Wait for its result. Raises the first one's error where both have failed."""
        try:
            self._ended.wait()
        except BaseException:
            self.give_up()
            raise
        try:
            return result_of(self._first, self._leg, self._result, first_error, self._error)
        finally:
            del first_error

    def give_up(self) -> None:
        """Nobody waits for it any more."""
        leg = self._leg
        if leg is not None:
            leg.lose()

    def close(self) -> None:
        """The call has its result, or its error."""
        self._race.close()
        # The traceback of its error leads to itself.
        self._run = self._error = None


def forgone(leg: Leg | None) -> None:
    """A second attempt was planned, and is not made any more."""
    if leg is not None:
        leg.observation.set_aside()
        leg.let_go()


def failed_beside(journey: Journey, race: Race, leg: Leg | None, error: BaseException) -> bool:
    """The second way has ended with an error: whether the call has still to see that."""
    if leg is None:
        journey.account.why_not = f"planning it raised {type(error).__name__}"
        return False
    if leg.is_lost:
        return False
    race.ended(leg)
    # What fails after its content has come first is the call's own error.
    if not leg.was_claimed and isinstance(error, Exception | Left):
        journey.failed_beside(leg, error)
    return True


def result_of(
    first: Leg, second: Leg | None, result: Any, first_error: BaseException, error: BaseException | None
) -> tuple[Any, Leg]:
    """What comes of two ways of which the first has failed. Raises its error where the second has failed too."""
    try:
        if second is not None and error is None and not second.is_lost:
            return result, second
        if error is not None and first.is_lost:
            first.instead = second
            raise error
        raise first_error
    finally:
        del first_error, error


def begun_by(leg: Leg, observation: Observation, send: Callable[[], Any], *, unread: bool) -> Any:
    """The answer to one attempt of a way, its first content seen. Raises Left where the way ends here."""
    leg.check()
    is_answered = False
    try:
        response = send()
        if not received(response):
            return response
        if not unread:
            return whole_answer(leg, observation, response)
        is_answered = True
        verdict = begun(response, observation.endpoint)
    except Exception as error:
        left = leg.left_by(error)
        if left is None and is_answered and not leg.may_leave:
            # It was begun, and may be billed: the application sees it break, as the stock client has it. openai's loop
            # would try it again.
            error.with_traceback(None)  # it leads to the answer, which has the error to raise
            return response
        if is_answered:
            response.close()
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
        response.close()
        raise
    return response
