"""Flights of the tasks of one event loop: one request, sent by a task of its own, and read by whoever needs more."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from fastlane._clock import now_ns
from fastlane.transport.protocols.exchange import PHASES

from ._flight import Flight, Head, Seat, Send, depart, leave, lock, swept
from ._head_wait import Entrance, HeadWait
from ._joining import again, left_s, stand_down
from ._responses import SharedBody, closed, is_timeout, own_body, read_timeout_s, timed_out, upstream_of

if TYPE_CHECKING:
    from fastlane.engine.observation import Observation


class _TaskWaiter:
    """A task that waits."""

    __slots__ = ("__weakref__", "_future", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[bool] = self._loop.create_future()

    def wake(self) -> None:
        with suppress(RuntimeError):  # the loop has ended, and nobody waits any more
            self._set(True)

    def call_off(self) -> None:
        """Have it look, from any thread."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._set, True)

    def _set(self, has_happened: bool) -> None:
        if not self._future.done():
            self._future.set_result(has_happened)

    async def wait(self, timeout_s: float | None) -> bool:
        """Wait until something has happened; False where nothing has within the time."""
        timer = None if timeout_s is None else self._loop.call_later(timeout_s, self._set, False)
        try:
            return await self._future
        finally:
            if timer is not None:
                timer.cancel()


async def async_shared(
    seat: Seat, observation: Observation, request: Any, send: Send, place: Entrance, *, streams: bool, unread: bool
) -> Any:
    """See `shared`; `send` and `place.enter` are coroutine functions."""
    wait = HeadWait(seat, observation, request, is_read_at_once=not streams)
    loop = asyncio.get_running_loop()
    try:
        while (step := wait.step(place.http)) != "look":
            if step == "send":
                # A task of its own, which outlasts the call where others wait too.
                carry = _carry(seat.flight, send, upstream_of(request, seat.flight))
                seat.flight.task = loop.create_task(carry, name="fastlane flight")
            elif step == "stand":
                await place.enter()
            elif step == "give back":
                stand_down(seat)
                place.give_back()
            else:
                waiter = _TaskWaiter()
                with wait.until_closed(place.http, waiter):
                    if wait.begin(waiter) and not await waiter.wait(wait.left_s):
                        wait.time_is_up()
        response = wait.answer(AsyncSharedBody)
        if not unread:
            try:
                await response.aread()
            except BaseException as error:
                observation.attempt_failed(error)
                raise
            wait.was_read(response)
    except GeneratorExit:
        _collected(loop, seat)
        raise
    except BaseException:
        await _leave(seat)
        raise
    return response


async def _carry(flight: Flight, send: Send, upstream: Any) -> None:
    try:
        response = await send(upstream)
    except BaseException as error:  # noqa: BLE001 - for the calls that wait
        _fail(flight, error)
        return
    body = own_body(response, "AsyncBody")
    with swept, lock:
        flight.head = Head(response, now_ns())
        flight.last_ns = flight.head.came_ns
        if body is None:
            flight.is_read_at_once = True
        if not flight.is_read_at_once:
            flight.body = flight.source = body
        is_deserted = flight.is_deserted
        flight.wake()
    if is_deserted:
        await response.aclose()
    elif flight.is_read_at_once:
        await _read_all(flight, response, response.stream if body is None else body)
    flight.task = None


async def _read_all(flight: Flight, response: Any, body: Any) -> None:
    """Read the whole answer on behalf of all."""
    phases = response.extensions.get(PHASES)
    try:
        async for piece in body:
            came_ns = getattr(phases, "chunk_ns", 0) or now_ns()
            flight.last_ns = came_ns
            with swept, lock:
                flight.pieces.append((piece, came_ns))
                flight.wake()
    except BaseException as error:  # noqa: BLE001 - for the calls that wait
        _fail(flight, error)
    else:
        with swept, lock:
            flight.ends()
    await response.aclose()


def _fail(flight: Flight, error: BaseException) -> None:
    flight.task = None
    if not isinstance(error, Exception):
        error = RuntimeError(f"the task that sent the request ended with {type(error).__name__}")
    with swept, lock:
        flight.fails(error)


async def _leave(seat: Seat) -> None:
    """The call needs no more of the answer: with the last one, the server is told to stop."""
    if leave(seat):
        flight = seat.flight
        if flight.head is None or flight.is_read_at_once:
            _give_up(flight)
        else:
            # Where all but the end of the stream has come, that is waited for a moment.
            await flight.head.response.aclose()


def _collected(loop: asyncio.AbstractEventLoop, seat: Seat) -> None:
    """`_leave` by a finaliser, which waits for nothing."""
    try:
        loop.call_soon_threadsafe(_left, seat)
    except RuntimeError:  # the loop has ended
        depart(seat)


def _left(seat: Seat) -> None:
    """`_leave` of a call that was garbage-collected, in a turn of its own."""
    if leave(seat):
        _give_up(seat.flight)


def _give_up(flight: Flight) -> None:
    flight.patience.give_up()
    task = flight.task
    if task is not None:
        task.cancel()


class AsyncSharedBody(SharedBody):
    """The body of a shared answer, as one asynchronous call reads it."""

    is_asynchronous = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._loop = asyncio.get_running_loop()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._taken < len(self._seat.flight.pieces) or await self._has_more():
            return self._next_piece()
        self._has_ended()
        await _leave(self._seat)
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """The call reads no more of it."""
        self._takes_no_more()
        await _leave(self._seat)

    def _depart(self) -> None:
        _collected(self._loop, self._seat)

    async def _has_more(self) -> bool:
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
                    waiter = _TaskWaiter()
                    flight.waiters.append(waiter)
                else:
                    flight.is_reading = True
            if waiter is None:
                await self._read(flight, until_ns)
            elif not await waiter.wait(left_s(until_ns)):
                # Another call reads: what it got last is what counts.
                until_ns = flight.last_ns + int((timeout_s or 0.0) * 1e9)
                if now_ns() >= until_ns:
                    raise timed_out(self._request, has_head=True)
        if flight.error is not None:
            raise again(flight.error, self._request)
        if not flight.is_whole:
            raise closed(self._request)
        return False

    async def _read(self, flight: Flight, until_ns: int | None) -> None:
        """Read the next piece for all. Our transport's body stands a cancelled read: the next one goes on with it."""
        flight.patience.until_ns = until_ns
        piece: bytes | None = None
        try:
            piece = await flight.body.__anext__()
        except StopAsyncIteration:
            pass
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
            await flight.head.response.aclose()

    @staticmethod
    def _let_others_read(flight: Flight) -> None:
        flight.is_reading = False
        flight.wake()
