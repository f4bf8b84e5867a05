"""Do the steps of a `Sending`, for synchronous and for asynchronous clients."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache, partial
from typing import Any

from fastlane._clock import now_ns
from fastlane.compat.clients import transport_for
from fastlane.transport.protocols.upload import Path

from ._probe import MOST_ANSWER_BYTES, TIMEOUT_S, Answer
from ._sending import Ask, Drop, Send, Sending, Write

_TIMEOUTS = {"connect": TIMEOUT_S, "read": TIMEOUT_S, "write": TIMEOUT_S, "pool": TIMEOUT_S}

# An answer that dribbles in is given up after this long.
_MOST_ANSWER_NS = round(2 * TIMEOUT_S * 1e9)

# And so is one of which not even the head has come, where that can be done: each byte may have come in time.
_MOST_ASKING_S = 5 * TIMEOUT_S

# Bodies from this size on are compressed in a thread: the event loop would be held up for more than a millisecond.
_LARGE_BYTES = 262_144

# Of one event loop, at once: a thread that compresses keeps a core busy.
_MOST_THREADS = 4


def run(
    sending: Sending,
    request: Any,
    http: Any,
    attempt: Callable[[Send], Any],
    ask: Callable[[Any], Any] | None = None,
) -> Any:
    """Send a request in the form that pays; `attempt` sends one. Raises what that raises.

    `ask` sends one of a probe and gives its unread response, without following redirects; None: by `http` itself.
    """
    if ask is None:
        ask = partial(http.send, stream=True, follow_redirects=False)
    steps = sending.steps(request, lambda each: path_of(http, each))
    result: Any = None
    error: BaseException | None = None
    try:
        while True:
            try:
                step = steps.send(result) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            result = error = None
            try:
                match step:
                    case Send():
                        result = attempt(step)
                    case Ask():
                        result = _ask(ask, step.request)
                    case Write():
                        result = step.run()
                    case Drop():
                        with suppress(Exception):  # whatever becomes of it, the body is to be sent again
                            step.response.close()
            except BaseException as raised:  # noqa: BLE001 - the steps raise it again
                error = raised
    finally:
        # Its traceback leads here: neither would go before a garbage collection.
        error = None
        steps.close()


async def async_run(
    sending: Sending,
    request: Any,
    http: Any,
    attempt: Callable[[Send], Awaitable[Any]],
    ask: Callable[[Any], Awaitable[Any]] | None = None,
) -> Any:
    """Send a request in the form that pays: see `run`."""
    if ask is None:
        ask = partial(http.send, stream=True, follow_redirects=False)
    steps = sending.steps(request, lambda each: path_of(http, each))
    result: Any = None
    error: BaseException | None = None
    try:
        while True:
            try:
                step = steps.send(result) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            result = error = None
            try:
                match step:
                    case Send():
                        result = await attempt(step)
                    case Ask():
                        result = await _async_ask(ask, step.request)
                    case Write():
                        result = await _write(step)
                    case Drop():
                        with suppress(Exception):
                            await step.response.aclose()
            except BaseException as raised:  # noqa: BLE001 - the steps raise it again
                error = raised
    finally:
        error = None
        steps.close()


async def _write(step: Write) -> Any:
    if len(step.plain) < _LARGE_BYTES:
        return step.run()
    import anyio.to_thread  # what openai's client stands on, and what knows asyncio from trio

    # The threads of the application may all be waiting for calls like this one: these are others.
    limiter = _limiter_of_the_loop().get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(_MOST_THREADS)
        _limiter_of_the_loop().set(limiter)
    return await anyio.to_thread.run_sync(step.run, limiter=limiter)


@cache
def _limiter_of_the_loop() -> Any:
    from anyio.lowlevel import RunVar

    return RunVar[Any]("fastlane_encoding_threads")


def path_of(http: Any, request: Any) -> Path:
    """What is known of the way that a request of an HTTP client will take; assumptions where nothing is."""
    look = getattr(transport_for(http, request.url), "outlook", None)
    outlook = look(request) if callable(look) else None
    known: dict[str, Any] = {"tls": request.url.scheme == "https"}
    if outlook is not None:
        known |= {
            "round_trip_time_s": outlook.round_trip_time_ns / 1e9 if outlook.round_trip_time_ns is not None else None,
            "congestion_window": outlook.congestion_window,
            "in_flight_segments": outlook.in_flight_segments,
            "segment_bytes": outlook.segment_bytes,
            "receive_window_bytes": outlook.receive_window_bytes,
            "stream_window_bytes": outlook.peer_stream_window,
            "connection_window_bytes": outlook.peer_connection_window,
            "uplink_bytes_per_s": outlook.delivery_rate_bytes_per_s,
            "http2": outlook.http_version != "HTTP/1.1" if outlook.http_version is not None else None,
        }
    return Path(**{name: value for name, value in known.items() if value is not None})


def _prepared(request: Any) -> Any:
    given = request.extensions.get("timeout") or {}
    # The application may wait for less.
    request.extensions["timeout"] = {
        name: most if given.get(name) is None else min(most, given[name]) for name, most in _TIMEOUTS.items()
    }
    # A key that stands for one call of the application's must not be used up by something else.
    for name in [name for name in request.headers if "idempoten" in name.lower()]:
        del request.headers[name]
    return request


def _ask(send: Callable[[Any], Any], request: Any) -> Answer:
    try:
        response = send(_prepared(request))
        try:
            if response.is_closed:  # something between here and there has read it
                return Answer(response.status_code, response.content)
            received = _Received()
            for piece in response.iter_raw():
                if not received.wants_more_than(piece):
                    break
        finally:
            response.close()
        return Answer(response.status_code, received.decoded(response))
    except Exception as error:  # noqa: BLE001 - whatever it is, the server has not read the body for certain
        return Answer(None, error=type(error).__name__)


async def _async_ask(send: Callable[[Any], Awaitable[Any]], request: Any) -> Answer:
    import anyio

    try:
        with anyio.fail_after(_MOST_ASKING_S):
            response = await send(_prepared(request))
            try:
                if response.is_closed:
                    return Answer(response.status_code, response.content)
                received = _Received()
                async for piece in response.aiter_raw():
                    if not received.wants_more_than(piece):
                        break
            finally:
                await response.aclose()
        return Answer(response.status_code, received.decoded(response))
    except Exception as error:  # noqa: BLE001 - see above
        return Answer(None, error=type(error).__name__)


class _Received:
    """The body of an answer as it comes in: so much and for so long."""

    def __init__(self) -> None:
        self._body = b""
        self._until_ns = now_ns() + _MOST_ANSWER_NS

    def wants_more_than(self, piece: bytes) -> bool:
        """Take a piece; whether there is to be another one."""
        self._body += piece
        return len(self._body) <= MOST_ANSWER_BYTES and now_ns() <= self._until_ns

    def decoded(self, response: Any) -> bytes:
        """What was received, decompressed. Raises what the library raises for a body that is cut off or broken."""
        content: bytes = type(response)(200, headers=response.headers, content=self._body).content
        return content
