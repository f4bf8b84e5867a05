"""One call's way over a WebSocket: its request as a command, and the events as the answer that HTTP would give."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx2

from fastlane._clock import now_ns
from fastlane.compat.clients import given_headers, given_query
from fastlane.compat.context import is_asyncio
from fastlane.compat.response_sockets import open_socket
from fastlane.compat.send import layers_to_bypass
from fastlane.engine.call import Call
from fastlane.engine.drivers import async_run, run
from fastlane.engine.effects import Flow, Perform
from fastlane.engine.session import CallOutcome, SendAttempt, Session
from fastlane.providers.facts import value_of

from .answer import LoopBody, SocketAnswer, ThreadBody, async_receive, async_send, receive, send
from .conversation import SocketTurn, turn_of
from .section import ResponseSocketSection
from .sockets import Lane, fits, lanes_for, may_open, not_opened, too_large

if TYPE_CHECKING:
    from fastlane.compat.responses import RequestAttempt

    from .play import ResponseSocket

log = logging.getLogger("fastlane")

_NOT_FOUND = "previous_response_not_found"
_TOO_OLD = "websocket_connection_limit_reached"
_TOO_LARGE = 1009
_TOO_MUCH = object()
_OF_OPENAI = "x-stainless-"
_RAW = "x-stainless-raw-response"
# A lane that is gone when it is used is followed by another one, in the end by a new one.
_MOST_LANES = 3


class ResponseSocketSession(Session):
    """Sends the attempts of one call over WebSockets, where that is certainly the same as over HTTP."""

    def __init__(self, play: ResponseSocket, call: Call) -> None:
        self._play = play
        self._call = call
        self._is_async = call.caller.client._asynchronous
        self._streams = call.stream
        self._section = ResponseSocketSection(sent="http")

    def around_attempt(self, send: SendAttempt) -> SendAttempt:
        """Send an attempt over a WebSocket, or over HTTP as it is."""

        def send_attempt(attempt: RequestAttempt) -> Flow:
            turn = self._why_http(attempt) or turn_of(
                {**attempt.options.json_data, **(attempt.options.extra_json or {})}
            )
            if isinstance(turn, str):
                self._section = ResponseSocketSection(sent="http", why=turn)
                return send(attempt)
            self._streams = attempt.options.json_data.get("stream") is True
            exchange = partial(self._exchange, attempt, turn)
            # With an argument of its own it does not bypass the layers of the HTTP client.
            return send(replace(attempt, send_request=self._send, arguments={"exchange": exchange}))

        return send_attempt

    def _why_http(self, attempt: RequestAttempt) -> str | None:
        """Return why an attempt can only go over HTTP, without a look at its body; None if it need not."""
        call, client, options = self._call, self._call.caller.client, attempt.options
        if value_of(None if call.facts is None else call.facts.response_sockets) is not True:
            return "the provider is not known to take WebSockets"
        if not may_open(call.origin):
            return "the provider has refused a WebSocket, or was out of reach"
        if call.upstream is not None:
            return "a play may send the call elsewhere"
        if call.unread or type(options.json_data) is not dict:
            return "the application reads the response itself"
        if not hasattr(client.responses, "connect"):
            return "this version of openai opens no WebSockets"
        names = {name.lower() for name in options.headers} if isinstance(options.headers, Mapping) else set()
        if _RAW in names or not all(name.startswith(_OF_OPENAI) for name in names) or options.params:
            return "it has headers or a query of its own"
        if self._is_async and not is_asyncio():
            return "another event loop than asyncio's runs it"
        is_usual = attempt.is_stock and not attempt.arguments and isinstance(attempt.request, httpx2.Request)
        if not is_usual or layers_to_bypass(client, attempt.http, attempt.request, {}) is None:
            return "the HTTP client is not the usual one"
        return None

    def _send(self, request: Any, *, stream: bool, exchange: Any) -> Any:
        flow: Flow = exchange(request, stream=stream)
        return async_run(flow) if self._is_async else run(flow)

    # One attempt

    def _exchange(self, attempt: RequestAttempt, turn: SocketTurn, request: Any, *, stream: bool) -> Flow:
        """Send a turn, and return the response that HTTP would bring. Raises errors as the HTTP client does."""
        lanes = lanes_for(attempt.http)
        for _ in range(_MOST_LANES):
            lane, start = lanes.take(self._key(), turn, self._play.max_sockets)
            if lane is None:
                self._section = ResponseSocketSection(sent="http", why="all sockets were busy")
                break
            try:
                is_new = lane.socket is None
                if is_new and not (yield from self._open(lane, request)):
                    break
                response = yield from self._ask(SocketAnswer(lane, turn, request, streams=self._streams), start, is_new)
            except BaseException:
                lane.drop()
                raise
            if response is _TOO_MUCH:
                self._section = ResponseSocketSection(sent="http", why="the provider takes no message of this size")
                break
            if response is not None:
                return response
            self._section = ResponseSocketSection(sent="http", why="the provider closes its sockets")
        return (yield Perform(partial(attempt.send_request, request, stream=stream)))

    def _key(self) -> Any:
        """What lanes must have in common: the address, the account, the headers and the query, the event loop."""
        client = self._call.caller.client
        loop = asyncio.get_running_loop() if self._is_async else None
        headers = tuple(sorted((str(name), str(value)) for name, value in given_headers(client).items()))
        query = repr(sorted(given_query(client).items()))
        return str(client.base_url), self._call.caller.account.here, headers, query, loop

    def _open(self, lane: Lane, request: Any) -> Flow:
        """Open the socket of a lane. Returns whether it is open."""
        call = self._call
        try:
            timeout_s = request.extensions.get("timeout", {}).get("connect")
            lane.socket = yield Perform(partial(open_socket, call.caller.client, timeout_s))
        except Exception as error:  # noqa: BLE001 - the call goes over HTTP, and meets what hinders that too
            lane.drop()
            status = getattr(getattr(error, "response", None), "status_code", None)
            why = f"status {status}" if status else type(error).__name__
            if not_opened(call.origin, refused=status is not None):
                log.warning("%s opens no WebSocket for responses (%s): calls go over HTTP", call.origin, why)
            self._section = ResponseSocketSection(sent="http", why=f"no WebSocket could be opened: {why}")
            return False
        return True

    def _ask(self, answer: SocketAnswer, start: int, is_new: bool) -> Flow:
        """Send a turn on an open lane. Returns the response; None if the lane is gone, _TOO_MUCH if HTTP is needed."""
        lane, why = answer.lane, "no socket has seen the beginning of the history"
        while True:
            command = answer.command(start)
            if not fits(self._call.origin, len(command)):
                lane.release(lane.seen)
                return _TOO_MUCH
            answer.begin(reused=not is_new)
            self._note(answer.turn, start, len(command), why)
            is_sent, first = False, b""
            try:
                yield from self._io(answer, async_send if self._is_async else send, command)
                is_sent, answer.phases.send_ended_ns = True, now_ns()
                while not (answer.is_created or answer.is_over):
                    first += yield from self._receive(answer)
            except Exception:
                if answer.closed_with == _TOO_LARGE:
                    too_large(self._call.origin, len(command))
                    return _TOO_MUCH
                if is_sent or answer.closed_with is None:
                    raise
                return None
            if answer.code == _TOO_OLD:
                lane.drop()
                return None
            if not (answer.code == _NOT_FOUND and start):
                break
            start, why = 0, "the provider had forgotten the history"
        if answer.status >= 400:
            answer.lane.release(None)
        elif self._streams:
            body = LoopBody if self._is_async else ThreadBody
            return answer.response(stream=body(answer, first))
        while not answer.is_over:
            yield from self._receive(answer)
        return answer.response(content=answer.whole)

    def _receive(self, answer: SocketAnswer) -> Flow:
        return answer.read((yield from self._io(answer, async_receive if self._is_async else receive)))

    @staticmethod
    def _io(answer: SocketAnswer, function: Any, *arguments: Any) -> Flow:
        try:
            return (yield Perform(partial(function, answer, *arguments)))
        except Exception as error:  # noqa: BLE001 - whatever it is, the socket is not used again
            raise answer.error_of(error) from None

    def _note(self, turn: SocketTurn, start: int, size: int, why: str) -> None:
        """Keep what was sent for the record."""
        self._section = ResponseSocketSection(
            sent="delta" if start else "full",
            why=None if start else why,
            items=len(turn.items),
            items_sent=len(turn.items) - start,
            sent_bytes=size,
            saved_bytes=sum(map(len, turn.items[:start])),
        )

    def close(self, outcome: CallOutcome) -> ResponseSocketSection:
        """Say how it was sent."""
        return self._section
