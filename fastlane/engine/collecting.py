"""Read an answer that is streamed to us for an application that does not stream, and hand it on as a whole one."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from .._clock import now_ns
from ..knowledge import timer
from ..protocol.content import error_status
from ..protocol.events import INVALID_JSON, EventReader, parse_event
from ..transport.protocols.exchange import PHASES
from .effects import Close, Flow, Next, ReadBody

if TYPE_CHECKING:
    from ..protocol.assembly import Assembly
    from .observation import Observation

_KINDS: Any = frozenset({"content", "reasoning", "tool_call", "refusal"})
# As long as openai's own asynchronous streams wait for the end of a body whose last event has come.
_DRAIN_S = 0.1
# They describe the bytes that came, and not those that are handed on.
_OF_THE_BYTES = frozenset({b"content-encoding", b"content-length", b"content-type", b"transfer-encoding"})
# How the first line of an event stream begins; nothing in JSON does.
_EVENTS = (b"data:", b"event:", b"id:", b"retry:", b":")


class Collecting(Protocol):
    """Puts the answer of one attempt together while it is read."""

    @property
    def assembly(self) -> Assembly:
        """The answer so far."""

    @property
    def stop_reason(self) -> str | None:
        """Why the stream was closed before its end; None where it was not."""

    @property
    def has_all(self) -> bool:
        """Whether nothing is missing of the answer, though it has not ended."""

    def take(self, event: Mapping[str, Any]) -> tuple[bool, list[Any]]:
        """Look at one event; whether the stream is to be closed, and what kinds of output it brought."""

    def assembled(self) -> dict[str, Any]:
        """The answer as the API gives it without streaming."""

    def checked(self, body: dict[str, Any]) -> dict[str, Any]:
        """The answer as it is to be handed out."""


def is_event_stream(response: Any) -> bool:
    """Whether an answer is one that succeeds, event by event."""
    content_type: str = response.headers.get("content-type", "")
    return 200 <= response.status_code < 300 and content_type.lower().startswith("text/event-stream")


def collect(
    collector: Callable[[], Collecting], observation: Observation, response: Any, *, asynchronous: bool
) -> Flow:
    """Read a response to its end. Returns one with the whole answer as the collector leaves it; others as they came."""
    reading = _Reading(collector(), observation, response)
    try:
        if not reading.is_streamed:
            yield ReadBody(response)
            return reading.read_whole()
        try:
            yield from _read(reading, response, asynchronous=asynchronous)
        except GeneratorExit:
            raise
        except BaseException as error:
            yield Close(response)
            if not isinstance(error, Exception) or not reading.has_all:
                raise
            # All of the answer has come, and is not to be paid for twice.
        else:
            # Before its end that resets the stream, so that the server stops.
            yield Close(response)
    except BaseException as error:
        observation.attempt_failed(error)
        raise
    return reading.whole()


def _read(reading: _Reading, response: Any, *, asynchronous: bool) -> Flow:
    pieces = response.aiter_bytes() if asynchronous else response.iter_bytes()
    while (piece := (yield Next(pieces))) is not None:
        reading.check_time()
        if reading.piece(piece):
            if reading.drains:
                yield from _drain(response, pieces, asynchronous=asynchronous)
            return


def _drain(response: Any, pieces: Any, *, asynchronous: bool) -> Flow:
    """Read the end of the body, so that its connection can serve again, for a moment."""
    until_ns, deadline = now_ns() + int(_DRAIN_S * 1e9), None
    if not asynchronous:
        # A thread that reads is woken by the end of its connection alone.
        deadline = _shut_later(response)
        if deadline is None:
            return
    try:
        while (yield Next(pieces, until_ns)) is not None:
            pass
    except Exception:  # noqa: BLE001 - the answer is whole, whatever becomes of its connection
        pass
    finally:
        if deadline is not None:
            deadline.cancel()


def _shut_later(response: Any) -> Any:
    """Shut the connection of a response in a moment; None where that cannot be done."""
    network = response.extensions.get("network_stream")
    sock = None if network is None else network.get_extra_info("socket")
    if sock is None:
        return None

    def shut() -> None:
        with suppress(OSError):  # the peer was faster
            sock.shutdown(socket.SHUT_RDWR)

    try:
        return timer.call_later(_DRAIN_S, shut)
    except RuntimeError:  # no thread to be had
        return None


class _Reading:
    """Sans-IO: one answer while it is read."""

    def __init__(self, collector: Collecting, observation: Observation, response: Any) -> None:
        self._collector = collector
        self._observation = observation
        self._response = response
        self._reader = EventReader()
        self._garbage: bytes | None = None
        self._phases = response.extensions.get(PHASES)
        # One that has been read already, by a hook of the application's HTTP client, is looked at all the same.
        self.is_streamed = observation.collects and is_event_stream(response)
        # An attempt whose answer broke off may have gone before.
        observation.answer.begin_again()
        observation.outcome = None
        observation.is_done = False
        observation.received_bytes = 0

    def check_time(self) -> None:
        """Keep to the read time-out as for an answer that comes at once: all of it has to be there by then."""
        timeout = self._response.request.extensions.get("timeout", {}).get("read")
        attempt = self._observation.attempts[-1]
        sent_ns = attempt.phases.send_ended_ns or attempt.started_ns
        if timeout is not None and now_ns() - sent_ns > timeout * 1e9 and not self.has_all:
            raise self._library.ReadTimeout("the answer was not whole in time", request=self._response.request)

    @property
    def _library(self) -> Any:
        """httpx2, or the legacy httpx of the application's own client."""
        return sys.modules[type(self._response).__module__.partition(".")[0]]

    def piece(self, piece: bytes) -> bool:
        """Look at some bytes of the answer; True when no more are wanted."""
        observation, answer = self._observation, self._observation.answer
        answer.arrived_ns = getattr(self._phases, "chunk_ns", 0) or now_ns()
        observation.received_bytes += len(piece)
        for data in self._reader.feed(piece):
            if data.startswith(b"[DONE]"):
                observation.is_done = True
                return True
            event = parse_event(data)
            if event is INVALID_JSON:
                self._garbage = data
                return True
            stop, kinds = self._collector.take(event)
            answer.piece(kind for kind in kinds if kind in _KINDS)
            if stop:
                observation.outcome = "stopped"
                return True
            if self._collector.assembly.error is not None:
                return True
        return False

    @property
    def has_all(self) -> bool:
        """Whether nothing is missing of the answer, whatever becomes of its stream."""
        return self._collector.has_all or self._collector.assembly.finished

    @property
    def drains(self) -> bool:
        """Whether the end of the body is to be read too, so that its connection can serve again.

        HTTP/2 needs none of that, our own transport waits for that end a moment where it closes a body, and a stream
        that was stopped is to be closed.
        """
        observation = self._observation
        if observation.transport == "fastlane" and not observation.attempts[-1].fell_back:
            return False
        return observation.is_done and self._response.http_version.startswith("HTTP/1")

    def read_whole(self) -> Any:
        """The answer that was not streamed, though that was asked for, or where nothing had to be."""
        response, observation = self._response, self._observation
        if observation.collects and response.is_success and response.content.startswith(_EVENTS):
            # Streams go by what they hold, as with openai's code, which does not look at what they are called.
            self.piece(response.content)
            return self.whole()
        observation.attempts[-1].response_body_bytes = response.num_bytes_downloaded
        if not 200 <= response.status_code < 300 or "json" not in response.headers.get("content-type", ""):
            return response
        try:
            body = orjson.loads(response.content)
        except orjson.JSONDecodeError:
            return response  # openai's code says what is wrong with that
        if not isinstance(body, dict):
            return response
        checked = self._collector.checked(body)
        return response if checked is body else self._handed_on(to_json(checked))

    def whole(self) -> Any:
        """The answer that the events make up."""
        observation, collector = self._observation, self._collector
        attempt = observation.attempts[-1]
        attempt.response_body_bytes = observation.received_bytes
        attempt.ended_ns = observation.answer.arrived_ns or now_ns()
        if collector.stop_reason is None and not self.has_all:
            error = collector.assembly.error
            if error is not None:
                # Said in the middle of an answer, which an answer without streaming says by its status. But the work
                # had begun: it is no refusal of the request.
                observation.optional = ()
                return self._handed_on(to_json({"error": error}), status_code=error_status(error))
            if self._garbage is not None:
                # As an answer that is no JSON: what openai's code makes of that, it makes of this.
                return self._handed_on(self._garbage)
            if not observation.received_bytes:
                # As an empty answer: nothing broke, and the stock client does not have it made again.
                return self._handed_on(b"")
            if not observation.is_done:
                raise self._broken_off()
        return self._handed_on(to_json(collector.checked(collector.assembled())))

    def _broken_off(self) -> Exception:
        """As the HTTP library says it of a body that ends too early: openai's code tries such a call again."""
        error: Exception = self._library.RemoteProtocolError(
            "the server ended the event stream before the answer had a finish reason", request=self._response.request
        )
        self._observation.attempt_failed(error)
        return error

    def _handed_on(self, content: bytes, *, status_code: int | None = None) -> Any:
        response = self._response
        headers = [pair for pair in response.headers.raw if pair[0].lower() not in _OF_THE_BYTES]
        whole = type(response)(
            status_code if status_code is not None else response.status_code,
            headers=[*headers, (b"content-type", b"application/json")],
            content=content,
            request=response.request,
            extensions=response.extensions,
            history=response.history,
            default_encoding=response.default_encoding,
        )
        try:
            whole.elapsed = response.elapsed
        except RuntimeError:
            pass  # the application's own transport did not take the time
        return whole


def to_json(value: Any) -> bytes:
    """JSON of an answer."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value).encode()  # half of a surrogate pair, or a number beyond 64 bits
