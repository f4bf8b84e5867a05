"""One call's wait for the head of a shared answer, whoever sends the request. Sans-IO."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from fastlane._clock import now_ns
from fastlane.engine.closing import until_closed

from ._flight import Seat, Waiter, lock, swept
from ._joining import Step, again, left_s, step
from ._responses import answer_for, read_timeout_s, shared_failure, timed_out

if TYPE_CHECKING:
    from fastlane.engine.observation import Observation


class Entrance(Protocol):
    """How a call comes to a place among those that are sent: only one in a flight needs one."""

    http: Any
    """The HTTP client that would send it."""

    def enter(self) -> Any:
        """Wait for a place (tasks await it), because those who had one are gone. Raises Refused and ClientClosed."""

    def give_back(self) -> None:
        """Another call was faster: the place is not needed."""


class ClientClosed(Exception):  # noqa: N818 - the error follows
    """The call's client was closed before anybody had sent its request: it finds out by sending it itself."""


class HeadWait:
    """What one call does until its answer has begun."""

    __slots__ = ("_at_once", "_observation", "_request", "_seat", "_started_ns", "_timeout_ns", "_until_ns")

    def __init__(self, seat: Seat, observation: Observation, request: Any, *, is_read_at_once: bool) -> None:
        self._seat = seat
        self._observation = observation
        self._request = request
        self._at_once = is_read_at_once
        self._started_ns = now_ns()
        timeout_s = read_timeout_s(request)
        self._timeout_ns = None if timeout_s is None else max(1, int(timeout_s * 1e9))
        self._until_ns: int | None = None

    def step(self, http: Any) -> Step:
        """What is to be done now. Raises ClientClosed where the call's client was closed and nothing has been sent."""
        if http.is_closed and not self._seat.flight.has_begun:
            raise ClientClosed
        with swept, lock:
            return step(self._seat, self._observation.attempts, is_read_at_once=self._at_once)

    def begin(self, waiter: Waiter) -> bool:
        """Have the waiter woken by what happens next; False where something has happened already."""
        flight = self._seat.flight
        with swept, lock:
            has_begun = flight.has_begun
            if flight.head is not None or flight.error is not None or not (has_begun or flight.candidates):
                return False
            flight.waiters.append(waiter)
        # What goes before the sending, the wait for a place above all, is no lateness of the provider's.
        if has_begun and self._until_ns is None and self._timeout_ns is not None:
            self._until_ns = now_ns() + self._timeout_ns
        return True

    def until_closed(self, http: Any, waiter: Any) -> AbstractContextManager[None]:
        """A block in which the waiter is woken too when the call's client is closed before the request is sent.

        A request that is under way is like any other's then: it breaks off with the connections.
        """
        return nullcontext() if self._seat.flight.has_begun else until_closed(http, waiter)

    @property
    def left_s(self) -> float | None:
        """Seconds for which the wait may last; None for ever."""
        return left_s(self._until_ns)

    def time_is_up(self) -> None:
        """Nothing has happened for so long. Raises the HTTP library's ReadTimeout, unless the request went out later.

        The time-out of each call counts from when it came and the request was sent, and ends nobody else's wait.
        """
        flight, timeout_ns = self._seat.flight, self._timeout_ns
        if timeout_ns is None:
            return
        sent_ns = flight.sent_ns
        if sent_ns is None and flight.is_stamped:
            # A connection is being opened, or the request is on its way there: that has time-outs of its own.
            self._until_ns = now_ns() + timeout_ns
            return
        self._until_ns = max(sent_ns or 0, self._started_ns) + timeout_ns
        if now_ns() >= self._until_ns:
            error = timed_out(self._request, has_head=False)
            self._failed(error)
            raise error

    def answer(self, form: Any) -> Any:
        """The answer as this call's own, its body of this form. Raises what the request failed with."""
        flight, observation = self._seat.flight, self._observation
        if flight.head is None:
            assert flight.error is not None
            error = again(flight.error, self._request)
            if not self._seat.leads:
                self._failed(error)
            raise error
        return answer_for(self._seat, observation, self._request, self._started_ns, form)

    def was_read(self, response: Any) -> None:
        """The whole answer was read."""
        if self._seat.leads:
            for attempt in reversed(self._observation.attempts):
                if attempt.kind != "shared":
                    attempt.response_body_bytes = response.num_bytes_downloaded
                    return

    def _failed(self, error: Exception) -> None:
        if not self._seat.leads:
            shared_failure(self._observation, self._request, self._started_ns, error)
        elif self._observation.attempts:
            self._observation.attempt_failed(error)
