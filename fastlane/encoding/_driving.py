"""Do the steps of a `Sending`, for synchronous and for asynchronous clients."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from .._clock import now_ns
from .._upload import Path
from ._probe import MOST_ANSWER_BYTES, TIMEOUT_S, Answer
from ._sending import Ask, Drop, Send, Sending, Write

_TIMEOUTS = {"connect": TIMEOUT_S, "read": TIMEOUT_S, "write": TIMEOUT_S, "pool": TIMEOUT_S}

# An answer that dribbles in is given up after this long.
_MOST_ANSWER_NS = round(2 * TIMEOUT_S * 1e9)

# Bodies from this size on are compressed in a thread: the event loop would be held up for more than a millisecond.
_LARGE_BYTES = 262_144


def run(sending: Sending, request: Any, http: Any, attempt: Callable[[Send], Any]) -> Any:
    """Send a request in the form that pays; `attempt` sends one. Raises what that raises."""
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
                        result = _ask(http, step.request)
                    case Write():
                        result = step.run()
                    case Drop():
                        step.response.close()
            except BaseException as raised:  # noqa: BLE001 - the steps raise it again
                error = raised
    finally:
        # Its traceback leads here: neither would go before a garbage collection.
        error = None
        steps.close()


async def async_run(sending: Sending, request: Any, http: Any, attempt: Callable[[Send], Awaitable[Any]]) -> Any:
    """Send a request in the form that pays: see `run`."""
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
                        result = await _async_ask(http, step.request)
                    case Write():
                        result = await _write(step)
                    case Drop():
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

    return await anyio.to_thread.run_sync(step.run)


def path_of(http: Any, request: Any) -> Path:
    """What is known of the way that a request of an HTTP client will take; assumptions where nothing is."""
    choose = getattr(http, "_transport_for_url", None)
    transport = choose(request.url) if callable(choose) else None
    look = getattr(transport, "outlook", None)
    outlook = look(request) if callable(look) else None
    known: dict[str, Any] = {"tls": request.url.scheme == "https"}
    if outlook is not None:
        known |= {
            "round_trip_time_s": outlook.round_trip_time_ns / 1e9 if outlook.round_trip_time_ns is not None else None,
            "congestion_window": _room(outlook.congestion_window, outlook.in_flight_segments),
            "segment_bytes": outlook.segment_bytes,
            "receive_window_bytes": outlook.receive_window_bytes,
            "stream_window_bytes": outlook.peer_stream_window,
            "connection_window_bytes": outlook.peer_connection_window,
            "uplink_bytes_per_s": outlook.delivery_rate_bytes_per_s,
            "http2": outlook.http_version != "HTTP/1.1" if outlook.http_version is not None else None,
        }
    return Path(**{name: value for name, value in known.items() if value is not None})


def _room(window: int | None, in_flight: int | None) -> int | None:
    """Segments that may leave at once, beside what is on its way already."""
    return None if window is None else max(1, window - (in_flight or 0))


def _prepared(request: Any) -> Any:
    request.extensions["timeout"] = dict(_TIMEOUTS)
    # A key that stands for one call of the application's must not be used up by something else.
    for name in [name for name in request.headers if name.lower().startswith("idempotency")]:
        del request.headers[name]
    return request


def _ask(http: Any, request: Any) -> Answer:
    try:
        response = http.send(_prepared(request), stream=True, follow_redirects=False)
        started_ns, body = now_ns(), b""
        try:
            for piece in response.iter_bytes():
                body += piece
                if len(body) > MOST_ANSWER_BYTES or now_ns() - started_ns > _MOST_ANSWER_NS:
                    break
        finally:
            response.close()
    except Exception as error:  # noqa: BLE001 - whatever it is, the server has not read the body for certain
        return Answer(None, error=type(error).__name__)
    return Answer(response.status_code, body)


async def _async_ask(http: Any, request: Any) -> Answer:
    try:
        response = await http.send(_prepared(request), stream=True, follow_redirects=False)
        started_ns, body = now_ns(), b""
        try:
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > MOST_ANSWER_BYTES or now_ns() - started_ns > _MOST_ANSWER_NS:
                    break
        finally:
            await response.aclose()
    except Exception as error:  # noqa: BLE001 - see above
        return Answer(None, error=type(error).__name__)
    return Answer(response.status_code, body)
