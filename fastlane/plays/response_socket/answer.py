"""One response on a WebSocket, as the answer that HTTP would give: its status, its body, its errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from threading import Event, Timer
from typing import Any

import httpx2
import openai
import orjson

from fastlane._clock import now_ns
from fastlane.protocol.content import RESPONSE_ENDS
from fastlane.protocol.events import INVALID_JSON, parse_event
from fastlane.transport import PATIENCE, PHASES, Patience, Phases

from .conversation import SocketTurn, seen_after
from .sockets import Lane

_SERVER_ERROR = 500
_MAY_BLOCK_BYTES = 16_384
"""A socket takes less without waiting for the server: what was sent before has been read."""
_OF_BODY = ("content-type", "content-length", "content-encoding", "transfer-encoding")


class SocketAnswer:
    """One response on the socket of a lane. Does no I/O."""

    def __init__(self, lane: Lane, turn: SocketTurn, request: Any, *, streams: bool) -> None:
        self.lane = lane
        self.turn = turn
        self.request = request
        self.streams = streams
        self.phases: Phases = request.extensions.get(PHASES) or Phases()
        self._patience: Patience = request.extensions.get(PATIENCE) or Patience()
        limits = request.extensions.get("timeout", {})
        self.write_s: float | None = limits.get("write")
        self._read_s: float | None = limits.get("read")
        self._until_ns: int | None = None
        """When a whole answer has to be there."""
        self._items: dict[int, Any] = {}
        self.is_created = False
        """Whether the provider has begun: from then on the turn must not be sent again."""
        self.is_over = False
        self.closed_with: int | None = None
        """The code with which the socket was closed amid the answer: 1006 if there was none."""
        self.status = 200
        self.headers: dict[str, str] = {}
        """Those of the provider's error."""
        self.code: str | None = None
        """The code of the provider's error."""
        self.whole = b""
        """The whole response, or the provider's error, as the body of an answer that is not streamed."""

    def command(self, start: int) -> str:
        """Return the message that requests the response to the items from `start` on."""
        turn, seen = self.turn, self.lane.seen
        parts = [turn.fields[:-1]]
        if start and seen is not None:
            parts.append(b'"previous_response_id":' + orjson.dumps(seen.response_id))
        parts.append(b'"input":[' + b",".join(turn.items[start:]) + b"]}")
        self.status, self.headers, self.code, self.is_over, self.whole = 200, {}, None, False, b""
        return b",".join(parts).decode()

    def begin(self, *, reused: bool) -> None:
        """Stamp the moment at which a message is handed to the socket."""
        phases = self.phases
        if phases.started_ns is None:
            phases.started_ns = now_ns()
        phases.opening, phases.reused, phases.http_version = self.lane.socket.opening, reused, "WebSocket"
        phases.send_started_ns = now_ns()
        if not self.streams and self._read_s is not None:
            self._until_ns = phases.send_started_ns + int(self._read_s * 1e9)

    @property
    def wait_s(self) -> float | None:
        """How many seconds the next event may take; None for any number."""
        now = now_ns()
        left_s = self._read_s if self._until_ns is None else max(0.0, (self._until_ns - now) / 1e9)
        return self._patience.within(left_s, now)

    def read(self, message: bytes) -> bytes:
        """Read an event. Returns it as a server-sent event."""
        phases, now = self.phases, now_ns()
        phases.first_byte_ns = phases.first_byte_ns or now
        phases.data_ns.append(now)
        phases.chunk_ns = now
        event = parse_event(message)
        if event is INVALID_JSON:
            if not self.streams:
                raise self.error_of(ValueError())
            # openai's stream raises its error for it.
            self.is_over = True
            self.lane.drop()
        kind = event.get("type") if isinstance(event, dict) else None
        if isinstance(kind, str):
            self._read(kind, event)
        return b"data: " + b" ".join(message.splitlines()) + b"\n\n"

    def _read(self, kind: str, event: dict[str, Any]) -> None:
        if kind == "error":
            self._failed(event)
        elif kind in RESPONSE_ENDS:
            self._ended(kind, event)
        else:
            self.is_created = self.is_created or kind.startswith("response.")
            if kind == "response.output_item.done":
                self._items[event.get("output_index", 0)] = event.get("item")

    def _failed(self, event: dict[str, Any]) -> None:
        error, status = event.get("error"), event.get("status")
        error = error if isinstance(error, dict) else event
        code, headers = error.get("code"), error.get("headers")
        self.status = status if isinstance(status, int) and status >= 400 else _SERVER_ERROR
        self.code = code if isinstance(code, str) else None
        if isinstance(headers, dict):  # such as Retry-After
            of_error = {name: str(value) for name, value in headers.items() if name.lower() not in _OF_BODY}
            self.headers = {n: v for n, v in of_error.items() if (n + v).isascii() and (n + v).isprintable()}
        self.is_over, self.whole = True, orjson.dumps({"error": error})
        if self.is_created:
            self.headers["x-should-retry"] = "false"
            self.lane.drop()

    def _ended(self, kind: str, event: dict[str, Any]) -> None:
        response = event.get("response")
        response = response if isinstance(response, dict) else {}
        if not response.get("output") and self._items:  # some providers leave it out, or empty
            response["output"] = [item for _, item in sorted(self._items.items())]
        self.is_created = self.is_over = True
        self.phases.answer_ended_ns = now_ns()
        if not self.streams:
            self.whole = json.dumps(response).encode()
        self.lane.release(seen_after(self.turn, response) if kind == "response.completed" else None)

    def response(self, **body: Any) -> Any:
        """Return a response of the HTTP library with this status."""
        kind = "text/event-stream" if "stream" in body else "application/json"
        headers = {**self.headers, "content-type": kind}
        extensions = {"http_version": b"WebSocket", PHASES: self.phases}
        return httpx2.Response(self.status, headers=headers, request=self.request, extensions=extensions, **body)

    def error_of(self, error: Exception) -> Exception:
        """Close the socket, and return an error of it as the HTTP client would raise it.

        openai's rules retry the call, unless a response that is not streamed has begun. What the provider says when it
        closes the socket is left out: it may quote the prompt.
        """
        self.lane.drop()
        found: httpx2.TransportError
        if isinstance(error, TimeoutError):
            found = httpx2.ReadTimeout("The server sent nothing in time.", request=self.request)
        elif isinstance(error, ValueError):
            found = httpx2.RemoteProtocolError("An event of the WebSocket is not valid JSON.", request=self.request)
        else:
            self.closed_with = getattr(getattr(error, "rcvd", None), "code", 1006)
            message = f"The server closed the WebSocket amid the answer, with code {self.closed_with}."
            found = httpx2.RemoteProtocolError(message, request=self.request)
        if self.streams or not self.is_created:
            return found
        if isinstance(error, TimeoutError):
            return openai.APITimeoutError(request=self.request)
        return openai.APIConnectionError(message=str(found), request=self.request)


class _Body:
    """The rest of a response, as a stream of server-sent events."""

    def __init__(self, answer: SocketAnswer, first: bytes) -> None:
        self.answer = answer
        self._first = first

    def __del__(self) -> None:
        self._end()

    def _end(self) -> None:
        if not self.answer.is_over:
            # There is no other way to stop it.
            self.answer.is_over = True
            self.answer.lane.drop()


class ThreadBody(_Body, httpx2.SyncByteStream):
    """For sync clients."""

    def __iter__(self) -> Iterator[bytes]:
        answer = self.answer
        yield self._first
        while not answer.is_over:
            try:
                message = receive(answer)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is raised as HTTP raises it
                raise answer.error_of(error) from None
            yield answer.read(message)

    def close(self) -> None:
        """End the response: the provider stops."""
        self._end()


class LoopBody(_Body, httpx2.AsyncByteStream):
    """For async clients."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        answer = self.answer
        yield self._first
        while not answer.is_over:
            try:
                message = await async_receive(answer)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is raised as HTTP raises it
                raise answer.error_of(error) from None
            yield answer.read(message)

    async def aclose(self) -> None:
        """End the response: the provider stops."""
        self._end()


def send(answer: SocketAnswer, command: str) -> None:
    """Send a command. Raises TimeoutError, and websockets' ConnectionClosed."""
    late = Event()

    def give_up() -> None:
        late.set()
        answer.lane.drop()

    timer = None
    if answer.write_s is not None and len(command) > _MAY_BLOCK_BYTES:
        timer = Timer(answer.write_s, give_up)
        timer.daemon = True
        timer.start()
    try:
        answer.lane.socket.send(command)
    except Exception as error:
        if late.is_set():
            raise TimeoutError from error
        raise
    finally:
        if timer is not None:
            timer.cancel()


async def async_send(answer: SocketAnswer, command: str) -> None:
    """See `send`."""
    async with asyncio.timeout(answer.write_s):
        await answer.lane.socket.send(command)


def receive(answer: SocketAnswer) -> bytes:
    """Return the next event. Raises TimeoutError, and websockets' ConnectionClosed."""
    message: bytes = answer.lane.socket.recv(answer.wait_s, False)
    return message


async def async_receive(answer: SocketAnswer) -> bytes:
    """See `receive`."""
    async with asyncio.timeout(answer.wait_s):
        message: bytes = await answer.lane.socket.recv(False)
        return message
