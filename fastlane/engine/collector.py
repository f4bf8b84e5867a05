"""Stream an answer to us that the application wants whole, so that its first token is seen, and put it together."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from .._clock import now_ns
from ..knowledge import timer
from ..knowledge.tokens import counter
from ..protocol.assembly import Assembly, assembly_of
from ..protocol.content import error_status
from ..protocol.endpoints import GENERATING, RESPONSES
from ..protocol.events import INVALID_JSON, EventReader, parse_event
from ..protocol.request_fields import is_kept
from ..protocol.usage import answer_tokens, estimated_usage, prompt_tokens
from ..transport.protocols.exchange import PHASES
from .call import Call
from .effects import Close, Flow, Next, ReadBody

if TYPE_CHECKING:
    from .call_state import CallState

_KINDS: Any = frozenset({"content", "reasoning", "tool_call", "refusal"})
# As long as openai's own asynchronous streams wait for the end of a body whose last event has come.
_DRAIN_S = 0.1
# They describe the bytes that came, and not those that are handed on.
_OF_THE_BYTES = frozenset({b"content-encoding", b"content-length", b"content-type", b"transfer-encoding"})
# How the first line of an event stream begins; nothing in JSON does.
_EVENTS = (b"data:", b"event:", b"id:", b"retry:", b":")


# The request


def streamed(call: Call) -> Call:
    """The call with its answer streamed to us, and with the count of its tokens, if it need not come at once.

    So it does where the application reads it itself or streams it already, where the provider works on it in the
    background or keeps it for later, where its stream would bring something else (audio; the best of several
    completions), and where the provider has refused to stream.
    """
    body = call.body
    if call.endpoint not in GENERATING or call.stream or call.unread or body.get("stream"):
        return call
    if body.get("background") or is_kept(body) or _comes_otherwise(body):
        return call
    if "stream" in call.refused:
        return call
    added: dict[str, Any] = {"stream": True}
    if call.endpoint != RESPONSES and "stream_options" not in body and _takes_usage(call):
        added["stream_options"] = {"include_usage": True}
    streamed_call = call.replaced(
        body={**body, **added},
        changes=(*call.changes, f"{call.streams_for} had the answer streamed underneath"),
        optional=(*call.optional, *added),
    )
    if call.collector is not None:
        return streamed_call
    return streamed_call.replaced(collector=partial(Collector, streamed_call))


def _comes_otherwise(body: Mapping[str, Any]) -> bool:
    modalities = body.get("modalities")
    speaks = body.get("audio") is not None or (isinstance(modalities, list) and "audio" in modalities)
    return speaks or body.get("best_of") not in (None, 1)


def _takes_usage(call: Call) -> bool:
    known = call.facts.parameters.get("stream_options.include_usage") if call.facts is not None else None
    if known is not None and known.value is False:
        return False
    return "stream_options" not in call.refused


# The answer


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


class Collector:
    """The answer of one attempt while it arrives; where no play has a collector of its own."""

    stop_reason = None
    """Nothing in an answer makes us close its stream."""
    has_all = False
    """An answer has ended when it says so itself."""

    def __init__(self, call: Call) -> None:
        self._call = call
        body = call.body
        assembly = assembly_of(call.endpoint, choices=_count(body.get("n")) * _prompts(body))
        assert assembly is not None
        self.assembly: Assembly = assembly

    def take(self, event: Mapping[str, Any]) -> tuple[bool, list[Any]]:
        """Look at one event; whether the stream is to be closed, and what kinds of output it brought."""
        return False, [delta.kind for delta in self.assembly.take(event)]

    def assembled(self) -> dict[str, Any]:
        """The answer as the API gives it without streaming; its usage is estimated where the provider told none."""
        call, body = self._call, self.assembly.body()
        if "choices" in body and body.get("usage") is None:
            counting = counter(call.model, origin=call.origin, wait=False)
            body["usage"] = estimated_usage(
                call.endpoint,
                input_tokens=prompt_tokens(call.body, counting),
                output_tokens=answer_tokens(body, call.endpoint, counting),
            )
        return body

    def checked(self, body: dict[str, Any]) -> dict[str, Any]:
        """The answer as it is."""
        return body


def _prompts(body: Mapping[str, Any]) -> int:
    """How many prompts a legacy completion has: texts, or lists of tokens. Each has its own choices."""
    prompt = body.get("prompt")
    return len(prompt) if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int) else 1


def _count(n: Any) -> int:
    return n if isinstance(n, int) and not isinstance(n, bool) and n > 0 else 1


def is_event_stream(response: Any) -> bool:
    """Whether an answer is one that succeeds, event by event."""
    content_type: str = response.headers.get("content-type", "")
    return 200 <= response.status_code < 300 and content_type.lower().startswith("text/event-stream")


def collect(collector: Callable[[], Collecting], state: CallState, response: Any, *, asynchronous: bool) -> Flow:
    """Read a response to its end. Returns one with the whole answer as the collector leaves it; others as they came."""
    reading = _Reading(collector(), state, response)
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
        state.attempt_failed(error)
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
        deadline = _shut_down_later(response)
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


def _shut_down_later(response: Any) -> Any:
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

    def __init__(self, collector: Collecting, state: CallState, response: Any) -> None:
        self._collector = collector
        self._state = state
        self._response = response
        self._reader = EventReader()
        self._garbage: bytes | None = None
        # What was read ahead is stamped in the body's own.
        self._phases = getattr(response.stream, "phases", None) or response.extensions.get(PHASES)
        # One that has been read already, by a hook of the application's HTTP client, is looked at all the same.
        self.is_streamed = state.collects and is_event_stream(response)
        # An attempt whose answer broke off may have gone before.
        state.answer.begin_again()
        state.outcome = None
        state.is_done = False
        state.received_bytes = 0

    def check_time(self) -> None:
        """Keep to the read time-out as for an answer that comes at once: all of it has to be there by then."""
        timeout = self._response.request.extensions.get("timeout", {}).get("read")
        attempt = self._state.attempts[-1]
        sent_ns = attempt.phases.send_ended_ns or attempt.started_ns
        if timeout is not None and now_ns() - sent_ns > timeout * 1e9 and not self.has_all:
            raise self._library.ReadTimeout("the answer was not whole in time", request=self._response.request)

    @property
    def _library(self) -> Any:
        """httpx2, or the legacy httpx of the application's own client."""
        return sys.modules[type(self._response).__module__.partition(".")[0]]

    def piece(self, piece: bytes) -> bool:
        """Look at some bytes of the answer; True when no more are wanted."""
        state, answer = self._state, self._state.answer
        answer.arrived_ns = getattr(self._phases, "chunk_ns", 0) or now_ns()
        state.received_bytes += len(piece)
        for data in self._reader.feed(piece):
            if data.startswith(b"[DONE]"):
                state.is_done = True
                return True
            event = parse_event(data)
            if event is INVALID_JSON:
                self._garbage = data
                return True
            stop, kinds = self._collector.take(event)
            answer.piece(kind for kind in kinds if kind in _KINDS)
            if stop:
                state.outcome = "stopped"
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
        state = self._state
        if state.transport == "fastlane" and not state.attempts[-1].fell_back:
            return False
        return state.is_done and self._response.http_version.startswith("HTTP/1")

    def read_whole(self) -> Any:
        """The answer that was not streamed, though that was asked for, or where nothing had to be."""
        response, state = self._response, self._state
        if state.collects and response.is_success and response.content.startswith(_EVENTS):
            # Streams go by what they hold, as with openai's code, which does not look at what they are called.
            self.piece(response.content)
            return self.whole()
        state.attempts[-1].response_body_bytes = response.num_bytes_downloaded
        if not 200 <= response.status_code < 300 or "json" not in response.headers.get("content-type", ""):
            return response
        try:
            body = orjson.loads(response.content)
        except orjson.JSONDecodeError:
            return response  # openai's code says what is wrong with that
        if not isinstance(body, dict):
            return response
        checked = self._collector.checked(body)
        return response if checked is body else self._with_body(to_json(checked))

    def whole(self) -> Any:
        """The answer that the events make up."""
        state, collector = self._state, self._collector
        attempt = state.attempts[-1]
        attempt.response_body_bytes = state.received_bytes
        attempt.ended_ns = state.answer.arrived_ns or now_ns()
        if collector.stop_reason is None and not self.has_all:
            error = collector.assembly.error
            if error is not None:
                # Said in the middle of an answer, which an answer without streaming says by its status. But the work
                # had begun: it is no refusal of the request.
                state.optional = ()
                return self._with_body(to_json({"error": error}), status_code=error_status(error))
            if self._garbage is not None:
                # As an answer that is no JSON: what openai's code makes of that, it makes of this.
                return self._with_body(self._garbage)
            if not state.received_bytes:
                # As an empty answer: nothing broke, and the stock client does not have it made again.
                return self._with_body(b"")
            if not state.is_done:
                raise self._ended_early()
        return self._with_body(to_json(collector.checked(collector.assembled())))

    def _ended_early(self) -> Exception:
        """As the HTTP library says it of a body that ends too early: openai's code tries such a call again."""
        error: Exception = self._library.RemoteProtocolError(
            "the server ended the event stream before the answer had a finish reason", request=self._response.request
        )
        self._state.attempt_failed(error)
        return error

    def _with_body(self, content: bytes, *, status_code: int | None = None) -> Any:
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
