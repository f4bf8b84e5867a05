"""Flights of threads: one request, sent by a thread of its own, and read by whoever needs more of its answer."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fastlane._clock import now_ns
from fastlane.compat.context import in_finalizer
from fastlane.transport.drivers.thread_driver import lock_timeout, start
from fastlane.transport.protocols.exchange import PHASES

from ._flight import Flight, Head, Seat, Send, leave, lock, swept
from ._head_wait import Entrance, HeadWait
from ._joining import again, left_s, stand_down
from ._responses import SharedBody, closed, is_timeout, own_body, read_timeout_s, timed_out, upstream_of

if TYPE_CHECKING:
    from fastlane.engine.observation import Observation


class _ThreadWaiter:
    """A thread that waits."""

    __slots__ = ("__weakref__", "_signal")

    def __init__(self) -> None:
        self._signal = threading.Lock()
        self._signal.acquire()

    def wake(self) -> None:
        try:
            self._signal.release()
        except RuntimeError:  # it was woken already, and has not looked yet
            pass

    call_off = wake

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until something has happened; False where nothing has within the time."""
        return self._signal.acquire(True, lock_timeout(timeout_s))


def shared(
    seat: Seat, observation: Observation, request: Any, send: Send, place: Entrance, *, streams: bool, unread: bool
) -> Any:
    """The answer of a flight as this call's own, unread if it is to be; one of its calls sends the request.

    `streams`: whether the body asks for a stream. Raises the HTTP library's errors, and what `place.enter` raises.
    """
    try:
        wait = HeadWait(seat, observation, request, is_read_at_once=not streams)
        while (step := wait.step(place.http)) != "look":
            if step == "send":
                _start(seat.flight, send, upstream_of(request, seat.flight))
            elif step == "stand":
                place.enter()
            elif step == "give back":
                stand_down(seat)
                place.give_back()
            else:
                waiter = _ThreadWaiter()
                with wait.until_closed(place.http, waiter):
                    if wait.begin(waiter) and not waiter.wait(wait.left_s):
                        wait.time_is_up()
        response = wait.answer(SyncSharedBody)
        if not unread:
            try:
                response.read()
            except BaseException as error:
                observation.attempt_failed(error)
                raise
            wait.was_read(response)
    except BaseException:
        if seat.leads and seat.flight.is_to_be_sent():
            # Ctrl-C came before there was a thread that sends it: whoever waits tries again.
            _fail(seat.flight, closed(request))
        _leave(seat)
        raise
    return response


def _start(flight: Flight, send: Send, upstream: Any) -> None:
    """Send the request, in a thread that may outlast the call's own wait for it."""
    run = contextvars.copy_context().run
    try:
        start(threading.Thread(target=run, args=(_carry, flight, send, upstream), name="fastlane flight", daemon=True))
    except RuntimeError:  # no thread to be had
        _carry(flight, send, upstream, is_own_thread=False)


def _carry(flight: Flight, send: Send, upstream: Any, *, is_own_thread: bool = True) -> None:
    """Send it, unless that has been begun."""
    if not flight.is_to_be_sent():
        return
    try:
        response = send(upstream)
    except Exception as error:  # noqa: BLE001 - for the calls that wait
        _fail(flight, error)
        return
    except BaseException:
        _fail(flight, closed(upstream))
        if is_own_thread:
            return
        raise  # Ctrl-C, in the thread of a call
    body = own_body(response, "SyncBody")
    with swept, lock:
        flight.head = Head(response, now_ns())
        flight.last_ns = flight.head.came_ns
        if body is None:
            flight.is_read_at_once = True
        if not flight.is_read_at_once:
            flight.body, flight.source = body, iter(body)
        is_deserted = flight.is_deserted
        flight.wake()
    if is_deserted:
        response.close()
    elif flight.is_read_at_once:
        _read_all(flight, response, response.stream if body is None else body, is_own_thread=is_own_thread)


def _read_all(flight: Flight, response: Any, body: Any, *, is_own_thread: bool) -> None:
    """Read the whole answer on behalf of all."""
    phases = response.extensions.get(PHASES)
    try:
        for piece in body:
            came_ns = getattr(phases, "chunk_ns", 0) or now_ns()
            flight.last_ns = came_ns
            if flight.is_deserted:
                break
            with swept, lock:
                flight.pieces.append((piece, came_ns))
                flight.wake()
    except Exception as error:  # noqa: BLE001 - for the calls that wait
        _fail(flight, error)
    except BaseException:
        _fail(flight, closed(response.request))
        response.close()
        if not is_own_thread:
            raise
    else:
        with swept, lock:
            flight.ends()
    response.close()


def _fail(flight: Flight, error: Exception) -> None:
    with swept, lock:
        flight.fails(error)


def _leave(seat: Seat) -> None:
    """The call needs no more of the answer: with the last one, the server is told to stop."""
    flight = seat.flight
    try:
        if leave(seat):
            if flight.head is None or flight.is_read_at_once:
                flight.patience.give_up()
            else:
                # Where all but the end of the stream has come, that is waited for a moment.
                flight.head.response.close()
    except BaseException:
        # Ctrl-C: nobody else sees that nobody is left.
        if flight.is_deserted:
            flight.patience.give_up()
        raise


class SyncSharedBody(SharedBody):
    """The body of a shared answer, as one synchronous call reads it."""

    is_asynchronous = False

    def __iter__(self) -> Iterator[bytes]:
        pieces = self._seat.flight.pieces
        while self._taken < len(pieces) or self._has_more():
            yield self._next_piece()
        self._has_ended()
        _leave(self._seat)

    def close(self) -> None:
        """The call reads no more of it."""
        self._takes_no_more()
        if in_finalizer():
            self._depart()
        else:
            _leave(self._seat)

    def _has_more(self) -> bool:
        """Wait for the next piece, or read it for all; False at the end."""
        seat, flight, timeout_s = self._seat, self._seat.flight, read_timeout_s(self._request)
        until_ns = None if timeout_s is None else now_ns() + int(timeout_s * 1e9)
        while True:
            waiter = None
            with swept, lock:
                if self._taken < len(flight.pieces):
                    return True
                if flight.error is not None or flight.is_whole or seat.has_left:
                    break
                if flight.source is None or flight.is_reading:
                    waiter = _ThreadWaiter()
                    flight.waiters.append(waiter)
                else:
                    flight.is_reading = True
            if waiter is None:
                self._read(flight, until_ns)
            elif not waiter.wait(left_s(until_ns)):
                # Another call reads: what it got last is what counts.
                until_ns = flight.last_ns + int((timeout_s or 0.0) * 1e9)
                if now_ns() >= until_ns:
                    raise timed_out(self._request, has_head=True)
        if flight.error is not None:
            raise again(flight.error, self._request)
        if not flight.is_whole:
            raise closed(self._request)
        return False

    def _read(self, flight: Flight, until_ns: int | None) -> None:
        """Read the next piece for all."""
        flight.patience.until_ns = until_ns
        try:
            piece = next(flight.source, None)
        except Exception as error:  # noqa: BLE001 - everybody's, or this call's time is up
            with swept, lock:
                if not is_timeout(error):
                    flight.fails(error)
                    return
                self._let_others_read(flight)
            raise timed_out(self._request, has_head=True) from None
        except BaseException:
            with swept, lock:
                self._let_others_read(flight)
            raise
        assert flight.head is not None
        with swept, lock:
            flight.came(piece)
        if piece is None:
            flight.head.response.close()

    @staticmethod
    def _let_others_read(flight: Flight) -> None:
        # The answer stands: only this wait for it has ended, and with it the generator that waited.
        flight.source = iter(flight.body)
        flight.is_reading = False
        flight.wake()
