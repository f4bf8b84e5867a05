"""Who joins a flight, who of them sends its request, and what becomes of their places."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Literal

from fastlane._clock import now_ns
from fastlane.compat.clients import may_name_request

from ._flight import Flight, Key, Place, Seat, Wait, lock, seat_left, swept, under_way

Step = Literal["look", "wait", "send", "stand", "give back"]
"""What a call does next: look at what has come; wait; send the request; get a place, in order to send it; give its
place back, because another one was faster."""


def join(key: Key, call_id: str, level: int) -> Seat:
    """A seat in the flight of those who ask for the same, which is a new one where there is none.

    A call that is more urgent than all that may send it is one more that may, lest it wait behind them.
    """
    with swept, lock:
        flight = under_way.get(key)
        if flight is None or not flight.is_open:
            flight = under_way[key] = Flight(key)
        try:
            return _seat(flight, call_id, level)
        except BaseException:  # Ctrl-C
            if not flight.members:
                under_way.pop(key, None)
            raise


def follow(seat: Seat) -> Seat:
    """A seat for the next attempt of a call whose last one failed for all in its flight: one of them sends it."""
    with swept, lock:
        # (Where a call has only waited for too long, the request is still under way.)
        last, following = seat.flight, seat.flight if seat.flight.is_open else seat.flight.following
        # Whoever is slow may find that the others have failed once more meanwhile.
        while following is not None and following.is_deserted:
            last, following = following, following.following
        if following is None:
            following = under_way.get(last.key)
            if following is None or not following.is_open:
                following = under_way[last.key] = Flight(last.key)
            last.following = following
        new = _seat(following, seat.call_id, seat.level)
        seat_left(seat)  # now, lest the flight be deserted before
        return new


def _seat(flight: Flight, call_id: str, level: int) -> Seat:
    is_candidate = not flight.has_begun and (not flight.candidates or level < flight.most_urgent)
    return Seat(flight, call_id, level, is_candidate=is_candidate)


def _may_send(seat: Seat) -> None:
    flight = seat.flight
    seat.is_candidate = True
    flight.most_urgent = min(flight.most_urgent, seat.level) if flight.candidates else seat.level
    flight.candidates += 1


def stand_for(seat: Seat) -> bool:
    """Under the lock: whether the call is to get a place and send, because those who would have are gone."""
    if seat.flight.candidates or seat.flight.has_begun:
        return False
    _may_send(seat)
    return True


def step(seat: Seat, attempts: Any, *, is_read_at_once: bool) -> Step:
    """Under the lock: what a call that wants the head of the answer is to do next."""
    flight = seat.flight
    if flight.head is not None or flight.error is not None:
        return "look"
    if flight.has_begun:
        return "wait" if seat.leads or not seat.is_candidate else "give back"
    if seat.is_candidate:
        _begin(seat, attempts, is_read_at_once=is_read_at_once)
        return "send"
    return "stand" if stand_for(seat) else "wait"


class until_sent:  # noqa: N801 - a block, not a thing
    """In this block a candidate waits for a place; `wait` is called off once another one has sent the request."""

    __slots__ = ("_flight", "_wait")

    def __init__(self, seat: Seat, wait: Wait) -> None:
        self._flight = seat.flight
        self._wait = wait

    def __enter__(self) -> None:
        with swept, lock:
            if not self._flight.has_begun:
                self._flight.queued.add(self._wait)
                return
        self._wait.call_off()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._flight.queued.discard(self._wait)  # in one step: a finaliser may come here, who waits for no lock


def stand_down(seat: Seat) -> None:
    """Another one was the first: this call needs no place."""
    with swept, lock:
        if seat.is_candidate and not seat.has_left:
            seat.flight.candidates -= 1
        seat.is_candidate = False


def hand_over(seat: Seat, place: Place) -> bool:
    """Whether the request goes on that this call has sent: its place is given back when the answer ends."""
    flight = seat.flight
    if not seat.leads:
        return False
    with swept, lock:
        others = flight.members - (not seat.has_left)
        is_failed = flight.head is not None and flight.head.response.status_code >= 400
        if not others or is_failed or flight.is_whole or flight.error is not None:
            return False
        flight.place = place
    return True


def _begin(seat: Seat, attempts: Any, *, is_read_at_once: bool) -> None:
    """Under the lock: this call is the one that sends the request."""
    flight = seat.flight
    flight.attempts = attempts
    flight.is_read_at_once = is_read_at_once
    flight.begins(seat)


def again(error: Exception, request: Any) -> Exception:
    """The same failure for one more call: an exception that is raised twice mixes up two tracebacks."""
    kind: Any = type(error)
    # (Those of the HTTP library name their request.)
    made: Exception = kind(*error.args, request=request) if may_name_request(error) else kind(*error.args)
    made.__cause__ = error.__cause__
    return made


def left_s(until_ns: int | None) -> float | None:
    """Seconds until then, not below 0; None for ever."""
    return None if until_ns is None else max(0.0, (until_ns - now_ns()) / 1e9)
