"""Stream a call that the application does not stream, so that its first token is seen, and assemble the answer."""

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
# Seconds to read on after the last event, as in openai's own asynchronous streams.
_DRAIN_S = 0.1
# Headers that describe the bytes as received, not the assembled body.
_BODY_HEADERS = frozenset({b"content-encoding", b"content-length", b"content-type", b"transfer-encoding"})
# Prefixes of the first line of an event stream; no JSON text begins like this.
_EVENTS = (b"data:", b"event:", b"id:", b"retry:", b":")


# The request


def streamed(call: Call) -> Call:
    """Return the call with `stream` set and usage requested, or unchanged if it cannot be streamed.

    It is left unchanged if the application streams it or reads the bytes itself, if the provider runs it in the
    background or stores it, if its stream has other content (audio; `best_of`), and if the provider refused to stream.
    """
    body = call.body
    if call.endpoint not in GENERATING or call.stream or call.unread or body.get("stream"):
        return call
    if body.get("background") or is_kept(body) or _streams_differently(body):
        return call
    if "stream" in call.refused:
        return call
    added: dict[str, Any] = {"stream": True}
    if call.endpoint != RESPONSES and "stream_options" not in body and _takes_usage(call):
        added["stream_options"] = {"include_usage": True}
    streamed_call = call.with_fields(added, (f"{call.streams_for} had the answer streamed underneath",), added)
    if call.collector is not None:
        return streamed_call
    return streamed_call.replaced(collector=partial(Collector, streamed_call))


def _streams_differently(body: Mapping[str, Any]) -> bool:
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
    """Assembles the answer of one attempt while it is read."""

    @property
    def assembly(self) -> Assembly:
        """The answer so far."""

    @property
    def stop_reason(self) -> str | None:
        """Why the stream was closed before its end; None if it was not."""

    @property
    def has_all(self) -> bool:
        """Whether the answer is complete, even if its stream has not ended."""

    def take(self, event: Mapping[str, Any]) -> tuple[bool, list[Any]]:
        """Look at one event; whether the stream is to be closed, and what kinds of output it brought."""

    def assembled(self) -> dict[str, Any]:
        """The answer as the API gives it without streaming."""

    def checked(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the body to hand out, checked or repaired; may raise openai's errors."""


class Collector:
    """The default `Collecting`: it never stops a stream, and checks nothing."""

    stop_reason = None
    has_all = False

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
        """The answer as the API gives it without streaming; usage is estimated if the provider sent none."""
        call, body = self._call, self.assembly.body()
        if "choices" in body and body.get("usage") is None:
            counting = counter(call.model, wait=False)
            body["usage"] = estimated_usage(
                call.endpoint,
                input_tokens=prompt_tokens(call.body, counting),
                output_tokens=answer_tokens(body, call.endpoint, counting),
            )
        return body

    def checked(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the body unchanged."""
        return body


def _prompts(body: Mapping[str, Any]) -> int:
    """Return the number of prompts of a legacy completion (texts or token lists). Each has its own choices."""
    prompt = body.get("prompt")
    return len(prompt) if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int) else 1


def _count(n: Any) -> int:
    return n if isinstance(n, int) and not isinstance(n, bool) and n > 0 else 1


def is_event_stream(response: Any) -> bool:
    """Whether a response is successful and an event stream."""
    content_type: str = response.headers.get("content-type", "")
    return 200 <= response.status_code < 300 and content_type.lower().startswith("text/event-stream")


def collect(collector: Callable[[], Collecting], state: CallState, response: Any, *, asynchronous: bool) -> Flow:
    """Read a response to its end. Returns a response with the assembled answer, or the same one if it was not streamed.

    Raises the HTTP library's errors, and what `Collecting.checked` raises.
    """
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
            # The answer is complete: a retry would be billed twice.
        else:
            # Closing before the end resets the stream, so that the provider stops generating.
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
    """Read the rest of the body for at most 0.1 s, so that its connection can be reused."""
    until_ns, deadline = now_ns() + int(_DRAIN_S * 1e9), None
    if not asynchronous:
        # Only shutting the connection down ends a blocking read.
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
    """Shut the connection of a response down in 0.1 s. Returns the timer's handle; None if that is not possible."""
    network = response.extensions.get("network_stream")
    sock = None if network is None else network.get_extra_info("socket")
    if sock is None:
        return None

    def shut() -> None:
        with suppress(OSError):  # the peer has closed it already
            sock.shutdown(socket.SHUT_RDWR)

    try:
        return timer.call_later(_DRAIN_S, shut)
    except RuntimeError:  # no thread can be started
        return None


class _Reading:
    """Sans-IO: one answer while it is read."""

    def __init__(self, collector: Collecting, state: CallState, response: Any) -> None:
        self._collector = collector
        self._state = state
        self._response = response
        self._reader = EventReader()
        self._garbage: bytes | None = None
        # A peeked body has its own timestamps.
        self._phases = getattr(response.stream, "phases", None) or response.extensions.get(PHASES)
        # Also true for a response that a hook of the application's HTTP client has read already.
        self.is_streamed = state.collects and is_event_stream(response)
        # An earlier attempt may have broken off in the middle of its answer.
        state.answer.begin_again()
        state.outcome = None
        state.is_done = False
        state.received_bytes = 0

    def check_time(self) -> None:
        """Raise ReadTimeout if the whole answer has not arrived within the read timeout, as without streaming."""
        timeout = self._response.request.extensions.get("timeout", {}).get("read")
        attempt = self._state.attempts[-1]
        sent_ns = attempt.phases.send_ended_ns or attempt.started_ns
        if timeout is not None and now_ns() - sent_ns > timeout * 1e9 and not self.has_all:
            raise self._library.ReadTimeout(
                "the whole answer did not arrive within the read timeout", request=self._response.request
            )

    @property
    def _library(self) -> Any:
        """httpx2, or the legacy httpx of an `http_client` of yours."""
        return sys.modules[type(self._response).__module__.partition(".")[0]]

    def piece(self, piece: bytes) -> bool:
        """Parse some bytes of the answer. Return True if no more are needed."""
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
        """Whether the answer is complete, whatever happens to its stream."""
        return self._collector.has_all or self._collector.assembly.finished

    @property
    def drains(self) -> bool:
        """Whether to read the end of the body, so that its connection can be reused.

        Not needed for HTTP/2 and for fastlane's transport, which waits briefly for the end when it closes a body. Not
        wanted for a stream that was stopped.
        """
        state = self._state
        if state.transport == "fastlane" and not state.attempts[-1].fell_back:
            return False
        return state.is_done and self._response.http_version.startswith("HTTP/1")

    def read_whole(self) -> Any:
        """Return the response to hand out, if the response was not an event stream."""
        response, state = self._response, self._state
        if state.collects and response.is_success and response.content.startswith(_EVENTS):
            # An event stream with another content type: openai's code does not check the content type either.
            self.piece(response.content)
            return self.whole()
        state.attempts[-1].response_body_bytes = response.num_bytes_downloaded
        if not 200 <= response.status_code < 300 or "json" not in response.headers.get("content-type", ""):
            return response
        try:
            body = orjson.loads(response.content)
        except orjson.JSONDecodeError:
            return response  # openai's code raises the error
        if not isinstance(body, dict):
            return response
        checked = self._collector.checked(body)
        return response if checked is body else self._with_body(to_json(checked))

    def whole(self) -> Any:
        """Return the response to hand out, with the assembled answer as its body."""
        state, collector = self._state, self._collector
        attempt = state.attempts[-1]
        attempt.response_body_bytes = state.received_bytes
        attempt.ended_ns = state.answer.arrived_ns or now_ns()
        if collector.stop_reason is None and not self.has_all:
            error = collector.assembly.error
            if error is not None:
                # An error in the stream: without streaming it would be the status. It is no refusal of a field, because
                # generation had begun.
                state.optional = ()
                return self._with_body(to_json({"error": error}), status_code=error_status(error))
            if self._garbage is not None:
                # Invalid JSON: openai's code handles it as in a response without streaming.
                return self._with_body(self._garbage)
            if not state.received_bytes:
                # An empty body: nothing broke off, and the stock client does not retry it.
                return self._with_body(b"")
            if not state.is_done:
                raise self._ended_early()
        return self._with_body(to_json(collector.checked(collector.assembled())))

    def _ended_early(self) -> Exception:
        """Return the HTTP library's error for a body that ends early, which openai's code retries."""
        error: Exception = self._library.RemoteProtocolError(
            "the server ended the event stream before the answer had a finish reason", request=self._response.request
        )
        self._state.attempt_failed(error)
        return error

    def _with_body(self, content: bytes, *, status_code: int | None = None) -> Any:
        response = self._response
        headers = [pair for pair in response.headers.raw if pair[0].lower() not in _BODY_HEADERS]
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
            pass  # the application's transport does not measure it
        return whole


def to_json(value: Any) -> bytes:
    """Write the JSON of an answer."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value).encode()  # a lone surrogate, or an integer beyond 64 bits
