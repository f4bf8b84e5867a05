"""Send a request in the form that pays, as a flow."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fastlane._clock import now_ns
from fastlane.compat.clients import transport_for
from fastlane.engine.effects import Close, Compute, Flow, Next, Send as SendRequest
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


def send_encoded(
    sending: Sending,
    request: Any,
    http: Any,
    send: Callable[[Send], Flow],
    ask: Callable[..., Any],
    arguments: dict[str, Any],
    *,
    asynchronous: bool,
) -> Flow:
    """Send a request in the form that pays. Returns its response, raises what sending it raises.

    `send` sends an attempt; `ask` with `arguments` sends a request of a probe by the HTTP client `http`.
    """
    steps = sending.steps(request, lambda each: path_of(http, each))
    resume: Callable[[Any], Any] = steps.send
    value: Any = None
    try:
        while True:
            try:
                step = resume(value)
            except StopIteration as end:
                return end.value
            try:
                value = None
                match step:
                    case Send():
                        value = yield from send(step)
                    case Ask():
                        asked = SendRequest(http, _prepared(step.request), True, ask, arguments)
                        value = yield from _ask(asked, asynchronous=asynchronous)
                    case Write():
                        value = (yield Compute(step.run)) if len(step.plain) >= _LARGE_BYTES else step.run()
                    case Drop():
                        with suppress(Exception):  # whatever becomes of it, the body is to be sent again
                            yield Close(step.response)
                resume = steps.send
            except BaseException as error:  # noqa: BLE001 - the steps raise it again
                value, resume = error, steps.throw
    finally:
        steps.close()
        del value, resume  # the traceback of an error refers to this frame


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


def _ask(asked: SendRequest, *, asynchronous: bool) -> Flow:
    """Send a request of a probe. Returns the Answer."""
    asked.until_ns = until_ns = now_ns() + round(_MOST_ASKING_S * 1e9)
    try:
        response = yield asked
        if response.is_closed:  # something between here and there has read it
            return Answer(response.status_code, response.content)
        received = _Received()
        pieces = response.aiter_raw() if asynchronous else response.iter_raw()
        try:
            while (piece := (yield Next(pieces, until_ns))) is not None and received.wants_more_than(piece):
                pass
        except GeneratorExit:
            raise
        except BaseException:
            yield Close(response)
            raise
        yield Close(response)
        return Answer(response.status_code, received.decoded(response))
    except Exception as error:  # noqa: BLE001 - whatever it is, the server has not read the body for certain
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
