"""Read an answer that is streamed to us for an application that does not stream, and hand it on as a whole one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from ._clock import now_ns
from ._event_data import EventData
from .transport._phases import PHASES

if TYPE_CHECKING:
    from ._observation import Observation
    from .outputs._guard import Guard

_KINDS: Any = frozenset({"content", "reasoning", "tool_call", "refusal"})
# They describe the bytes that came, and not those that are handed on.
_OF_THE_BYTES = frozenset({"content-encoding", "content-length", "content-type", "transfer-encoding"})


def collected(guard: Guard, observation: Observation, response: Any) -> Any:
    """The whole answer as the guard leaves it; any other answer as it came, read."""
    reading = _Reading(guard, observation, response)
    try:
        if not reading.is_streamed:
            response.read()
            return reading.read_whole()
        try:
            for piece in response.iter_bytes():
                if reading.piece(piece):
                    break
        finally:
            # Before its end that resets the stream, so that the server stops.
            response.close()
    except BaseException as error:
        observation.attempt_failed(error)
        raise
    return reading.whole()


async def async_collected(guard: Guard, observation: Observation, response: Any) -> Any:
    """See `collected`."""
    reading = _Reading(guard, observation, response)
    try:
        if not reading.is_streamed:
            await response.aread()
            return reading.read_whole()
        try:
            async for piece in response.aiter_bytes():
                if reading.piece(piece):
                    break
        finally:
            await response.aclose()
    except BaseException as error:
        observation.attempt_failed(error)
        raise
    return reading.whole()


class _Reading:
    """Sans-IO: one answer while it is read."""

    def __init__(self, guard: Guard, observation: Observation, response: Any) -> None:
        self._guard = guard
        self._observation = observation
        self._response = response
        self._data = EventData()
        self._garbage: bytes | None = None
        self._phases = response.extensions.get(PHASES)
        self.is_streamed = (
            not response.is_closed
            and 200 <= response.status_code < 300
            and response.headers.get("content-type", "").startswith("text/event-stream")
        )
        if self.is_streamed:
            # An attempt whose answer broke off may have gone before.
            guard.begin()
            observation.answer.begin_again()
            observation.outcome = None

    def piece(self, piece: bytes) -> bool:
        """Look at some bytes of the answer; True when no more are wanted."""
        observation, answer = self._observation, self._observation.answer
        answer.arrived_ns = getattr(self._phases, "chunk_ns", 0) or now_ns()
        observation.received_bytes += len(piece)
        for data in self._data.feed(piece):
            if data.startswith(b"[DONE]"):
                observation.is_done = True
                return True
            try:
                event = orjson.loads(data)
            except orjson.JSONDecodeError:
                self._garbage = data
                return True
            stop, kinds = self._guard.take(event)
            answer.piece(kind for kind in kinds if kind in _KINDS)
            if stop:
                observation.outcome = "stopped"
                return True
        return False

    def read_whole(self) -> Any:
        """The answer that was not streamed, though that was asked for, or where nothing had to be."""
        response, observation = self._response, self._observation
        observation.attempts[-1].response_body_bytes = response.num_bytes_downloaded
        if not 200 <= response.status_code < 300 or "json" not in response.headers.get("content-type", ""):
            return response
        try:
            body = orjson.loads(response.content)
        except orjson.JSONDecodeError:
            return response  # openai's code says what is wrong with that
        if not isinstance(body, dict):
            return response
        checked = self._guard.checked(body)
        return response if checked is body else self._handed_on(_json(checked))

    def whole(self) -> Any:
        """The answer that the events make up."""
        observation, guard = self._observation, self._guard
        attempt = observation.attempts[-1]
        attempt.response_body_bytes = observation.received_bytes
        attempt.ended_ns = observation.answer.arrived_ns or now_ns()
        if self._garbage is not None:
            # As an answer that is no JSON: what openai's code makes of that, it makes of this.
            return self._handed_on(self._garbage)
        if guard.assembly.error is not None:
            # Said in the middle of an answer, which an answer without streaming says by its status.
            return self._handed_on(_json({"error": guard.assembly.error}), status_code=500)
        return self._handed_on(_json(guard.checked(guard.assembled())))

    def _handed_on(self, content: bytes, *, status_code: int | None = None) -> Any:
        response = self._response
        headers = [(name, value) for name, value in response.headers.multi_items() if name not in _OF_THE_BYTES]
        whole = type(response)(
            status_code if status_code is not None else response.status_code,
            headers=[*headers, ("content-type", "application/json")],
            content=content,
            request=response.request,
            extensions=response.extensions,
            history=response.history,
            default_encoding=response.default_encoding,
        )
        elapsed = getattr(response, "_elapsed", None)
        if elapsed is not None:
            whole.elapsed = elapsed
        return whole


def _json(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:
        import json

        return json.dumps(value).encode()  # half of a surrogate pair, or a number beyond 64 bits
