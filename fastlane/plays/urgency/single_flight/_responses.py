"""A shared answer as each call gets it: a response of the HTTP library of its own, which openai decodes itself."""

from __future__ import annotations

import sys
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from fastlane._clock import now_ns
from fastlane.compat.bodies import OBSERVER, family, unwrapped
from fastlane.transport.drivers.requests import bound_expansion
from fastlane.transport.protocols.exchange import PATIENCE, PHASES, Phases

from ._flight import Flight, Seat, depart

if TYPE_CHECKING:
    from fastlane.engine.observation import Observation

_SENT_NOTHING = "The server sent nothing in time."
_NO_ANSWER = "The server did not answer in time."
_CLOSED = "The answer was closed."


def upstream_of(request: Any, flight: Flight) -> Any:
    """The request that is sent: without a time-out of one call's for the answer, because each keeps to its own."""
    kind: Any = type(request)
    upstream = kind.__new__(kind)
    upstream.__dict__.update(request.__dict__)
    timeouts = dict(request.extensions.get("timeout") or {})
    upstream.extensions = {**request.extensions, "timeout": {**timeouts, "read": None}, PATIENCE: flight.patience}
    return upstream


def read_timeout_s(request: Any) -> float | None:
    """Seconds for which a call waits for the head of an answer, and for each piece of its body; None for ever."""
    timeout: float | None = (request.extensions.get("timeout") or {}).get("read")
    return timeout


def timed_out(request: Any, *, has_head: bool) -> Exception:
    """The HTTP library's error over an answer that did not come in time for this call."""
    made: Exception = _library(request).ReadTimeout(_SENT_NOTHING if has_head else _NO_ANSWER, request=request)
    return made


def closed(request: Any) -> Exception:
    """The HTTP library's error over an answer that was closed while it was read."""
    made: Exception = _library(request).ReadError(_CLOSED, request=request)
    return made


def is_timeout(error: Exception) -> bool:
    """Whether this is our own transport's word that nothing came in time."""
    return type(error).__name__ == "ReadTimeout"


def own_body(response: Any, name: str) -> Any:
    """Our own transport's body, which can be read on after a time-out or a cancellation; None with any other."""
    bodies = sys.modules.get("fastlane.transport.drivers.engines")
    body = unwrapped(response.stream, name)
    return body if bodies is not None and isinstance(body, getattr(bodies, name)) else None


def answer_for(seat: Seat, observation: Observation, request: Any, started_ns: int, form: Any) -> Any:
    """The answer as this call's own, its body unread; its attempt is told of it."""
    flight = seat.flight
    head = flight.head
    assert head is not None
    came = head.response
    # (The attempt of whoever sent it has the transport's.)
    phases = Phases() if seat.leads else _shared_attempt(observation, request, started_ns, head.came_ns, came)
    base = "AsyncByteStream" if form.is_asynchronous else "SyncByteStream"
    body = _body_class(form, family(type(came.stream), base))(seat, request, phases, started_ns)
    extensions = {name: value for name, value in came.extensions.items() if name != PHASES}
    response = type(came)(
        came.status_code,
        headers=came.headers.raw,
        stream=body,
        request=request,
        extensions={**extensions, PHASES: phases},
        history=came.history,
        default_encoding=came.default_encoding,
    )
    if "content-encoding" in response.headers:
        bound_expansion(response, _library(request))
    request.extensions[OBSERVER] = observation
    if not seat.leads:
        observation.attempt_answered(response)
    return response


def shared_failure(observation: Observation, request: Any, started_ns: int, error: Exception) -> None:
    """Take down that the request failed which this call shared."""
    _shared_attempt(observation, request, started_ns, None, None)
    observation.attempt_failed(error)


def _shared_attempt(
    observation: Observation, request: Any, started_ns: int, came_ns: int | None, response: Any
) -> Phases:
    observation.next_kind = "shared"
    attempt = observation.begin_attempt(None)
    attempt.url = request.url
    attempt.started_ns = started_ns
    phases = attempt.phases
    phases.started_ns, phases.first_byte_ns = started_ns, came_ns
    if response is not None and isinstance(version := response.extensions.get("http_version"), bytes):
        phases.http_version = version.decode("ascii", "replace")
    return phases


def _library(request: Any) -> Any:
    """httpx2, or legacy httpx."""
    return sys.modules[type(request).__module__.partition(".")[0]]


class SharedBody:
    """What the bodies of both forms have in common."""

    is_asynchronous: bool

    def __init__(self, seat: Seat, request: Any, phases: Phases, started_ns: int) -> None:
        self._seat = seat
        self._request = request
        self._phases = phases
        self._started_ns = started_ns
        self._taken = 0
        self.elapsed: timedelta | None = None
        """Asked by the response, which says it to the application."""

    def _next_piece(self) -> bytes:
        """The next of those that have come."""
        piece, came_ns = self._seat.flight.pieces[self._taken]
        self._taken += 1
        phases = self._phases
        phases.chunk_ns = came_ns
        phases.data_ns.append(came_ns)
        return piece

    def _has_ended(self) -> None:
        self._phases.answer_ended_ns = self._seat.flight.last_ns
        self._takes_no_more()

    def _takes_no_more(self) -> None:
        if self.elapsed is None:
            self.elapsed = timedelta(seconds=(now_ns() - self._started_ns) / 1e9)

    def __del__(self) -> None:
        # Dropped without being closed: nobody reads the rest.
        seat = getattr(self, "_seat", None)
        if seat is not None and not seat.has_left:
            self._depart()

    def _depart(self) -> None:
        depart(self._seat)


@cache
def _body_class(form: Any, base: Any) -> Any:
    """The body as the response's own library knows its streams."""
    return type(form.__name__, (form, base), {})
