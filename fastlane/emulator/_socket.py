"""Responses over WebSocket: lanes, what a connection remembers, its limits and its faults."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from websockets.frames import Frame, Opcode
from websockets.server import ServerProtocol

from fastlane._clock import now_ns
from fastlane.emulator._answer import AnswerEnded, AnswerStream, strike_before_answer
from fastlane.emulator._endpoints import read_request
from fastlane.emulator._http import Headers, Http1, ServedExchange, Stamp
from fastlane.emulator._log import RequestLog
from fastlane.emulator._provider import Provider
from fastlane.emulator._reply import ResponsesReply, compact
from fastlane.emulator._request import ApiError, read_overrides

TARGET = "WS responses"
"""What `Fault.on` names a response on a WebSocket; the upgrade is "GET responses"."""
MOST_ACTIVE = 16
MOST_NAMES = 32
_GOING_AWAY, _INTERNAL_ERROR = 1001, 1011
_TERMINAL = ("response.completed", "response.incomplete", "response.failed")
# Headers of the upgrade that are not about each of its responses.
_OF_UPGRADE = ("x-emulator-fault", "x-emulator-tag")
_PREFIX = "x-emulator-"


class ResponsesSocket:
    """One WebSocket. `await socket.run()` serves it until either side closes it."""

    def __init__(self, exchange: ServedExchange, provider: Provider, key: str, *, reads_after_s: float) -> None:
        assert isinstance(exchange.connection, Http1)
        self.exchange = exchange
        self.connection: Http1 = exchange.connection
        self.provider = provider
        self._key = key
        self._reads_after_s = reads_after_s
        self._protocol = ServerProtocol(max_size=provider.model.socket_message_bytes)
        self._fragments: list[bytes] = []
        self._closed = asyncio.Event()
        self._remembered: dict[str, list[Any]] = {}
        """The items of each conversation that can be continued here, by the id of its last response."""
        self._names: set[str] = set()
        self._lanes: dict[str | None, asyncio.Lock] = {}
        self._slots = asyncio.Semaphore(MOST_ACTIVE)
        self._running: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Agree to the upgrade, and answer what comes. Raises ApiError for a request that is no valid upgrade."""
        lines = [f"GET {self.exchange.record.path} HTTP/1.1", *(f"{n}: {v}" for n, v in self.exchange.headers.items())]
        self._protocol.receive_data("\r\n".join([*lines, "", ""]).encode())
        request: Any = next(iter(self._protocol.events_received()), None)
        response = self._protocol.accept(request)
        if response.status_code != 101:
            raise ApiError(response.status_code, response.body.decode().strip(), code="invalid_upgrade")
        response.headers["x-request-id"] = self.exchange.record.request_id
        self._protocol.send_response(response)
        self.exchange.record.status = 101
        self.connection.socket = self
        self._flush()
        if self._reads_after_s:
            self.connection.pause_reading(self._reads_after_s)
        try:
            async with asyncio.timeout(self.provider.model.socket_lifetime_s):
                await self._closed.wait()
        except TimeoutError:
            message = "Responses websocket connection limit reached. Create a new websocket connection to continue."
            self.send_error(ApiError(400, message, code="websocket_connection_limit_reached"), None)
            self.close(_GOING_AWAY)
        finally:
            for task in self._running:
                task.cancel()

    def receive(self, data: bytes) -> None:
        """Take bytes of the client's."""
        self._protocol.receive_data(data)
        for frame in self._protocol.events_received():
            assert isinstance(frame, Frame)
            if frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                self._fragments.append(bytes(frame.data))
                if frame.fin:
                    message, self._fragments = b"".join(self._fragments), []
                    self._take(message)
        self._flush()

    def close(self, code: int) -> None:
        """Begin the closing handshake, unless it has begun."""
        if not self._protocol.close_expected():
            self._protocol.send_close(code)
            self._flush()

    def send_text(self, text: bytes) -> None:
        """Send a message."""
        if not self._protocol.close_expected():
            self._protocol.send_text(text)
            self._flush()

    def send_error(self, error: ApiError, lane: str | None) -> None:
        """Send an error event."""
        event = {"type": "error", "status": error.status, **json.loads(error.body())}
        event["error"]["headers"] = dict(error.headers) or None
        self.send_text(compact(event if lane is None else {**event, "stream_id": lane}).encode())

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self.connection.write(data)
            else:
                self.connection.close()
                self._closed.set()

    # Commands

    def _take(self, message: bytes) -> None:
        lane = None
        try:
            try:
                command = json.loads(message)
            except ValueError as error:
                raise ApiError(400, "The message is not valid JSON.", code="invalid_json") from error
            kind = command.get("type") if isinstance(command, dict) else None
            if kind == "response.steer":
                steer = {"input": command.get("input"), "previous_response_id": command.get("previous_response_id")}
                message_ = "The emulated model does not support steering."
                error_ = {"type": "invalid_request_error", "code": "steering_not_supported", "message": message_}
                self.send_text(compact({"type": "response.steer.failed", "steer": steer, "error": error_}).encode())
                return
            if kind != "response.create":
                raise ApiError(400, f"Invalid value: {kind!r:.80}.", param="type", code="invalid_value")
            lane = command.get("stream_id")
            if not isinstance(lane, str | None):
                raise ApiError(400, "'stream_id' must be a string.", param="stream_id", code="invalid_type")
            if lane is not None and lane not in self._names:
                if len(self._names) >= MOST_NAMES:
                    message_ = f"This connection has {MOST_NAMES} stream ids already: use one of them."
                    raise ApiError(400, message_, param="stream_id", code="too_many_stream_ids")
                self._names.add(lane)
        except ApiError as error:
            self.send_error(error, lane)
            return
        record = self._record(command, len(message))
        task = asyncio.get_running_loop().create_task(self._respond(command, lane, record))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def _record(self, command: Mapping[str, Any], size: int) -> RequestLog:
        number, upgrade = self.provider.next_number(), self.exchange.record
        metadata = command.get("metadata")
        record = RequestLog(
            sequence_number=number,
            request_id=f"req_{self.provider.seed:x}_{number:012d}",
            method="WS",
            path=upgrade.path.partition("?")[0],
            http_version="WebSocket",
            connection_id=upgrade.connection_id,
            stream_id=upgrade.stream_id,
            connection_request_number=upgrade.connection_request_number + 1 + len(self._running),
            header_names=(),
            received_ns=now_ns(),
            tag=metadata.get("x-emulator-tag") if isinstance(metadata, dict) else None,
            content_type="application/json",
            body_complete_ns=now_ns(),
            bytes_in=size,
            bytes_in_decoded=size,
        )
        self.provider.records.append(record)
        return record

    async def _respond(self, command: dict[str, Any], lane: str | None, record: RequestLog) -> None:
        async with self._lanes.setdefault(lane, asyncio.Lock()), self._slots:  # first come, first served
            previous = command.get("previous_response_id")
            answer = _Answer(self, lane, record)
            try:
                await self._answer(command, answer)
            except ApiError as error:
                # A continuation that fails with 4xx or 5xx takes its parent along.
                self._remembered.pop(str(previous), None)
                record.status = error.status
                self.send_error(error, lane)
            except (AnswerEnded, ConnectionError):
                pass

    async def _answer(self, command: dict[str, Any], answer: _Answer) -> None:
        provider, record = self.provider, answer.record
        exchange: Any = answer
        metadata = command.get("metadata")
        own = {n: v for n, v in metadata.items() if n.startswith(_PREFIX)} if isinstance(metadata, dict) else {}
        overrides = read_overrides({n: v for n, v in answer.headers.items() if n not in _OF_UPGRADE} | own)
        faults = provider.faults.striking(
            overrides.fault, tag=overrides.tag, random=provider.fault_random, encoded=False, target=TARGET
        )
        record.fault = ",".join(map(str, faults)) or None
        answer.kill_after = next((fault.after_events for fault in faults if fault.after_events is not None), None)
        faults = tuple(fault for fault in faults if fault.after_events is None)
        if any(fault.kind == "evict" for fault in faults):
            self._remembered.clear()
        await strike_before_answer(exchange, [fault for fault in faults if fault.strikes_unread])
        body = {name: value for name, value in command.items() if name not in ("type", "stream_id", "generate")}
        given = body.get("input") or []
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        previous = body.get("previous_response_id")
        if previous is not None:
            if previous not in self._remembered:
                message = f"Previous response with id '{previous}' not found."
                raise ApiError(400, message, param="previous_response_id", code="previous_response_not_found")
            items = [*self._remembered[previous], *items]
        body |= {"stream": True, "input": items}
        if command.get("generate") is False:
            body["prompt_cache_options"] = {**(body.get("prompt_cache_options") or {}), "prewarm": True}
        prompt = read_request("responses", body, provider)
        await AnswerStream(exchange, provider, prompt, faults, ResponsesReply).run(self._key, overrides)
        if answer.response is not None:
            self._remembered[answer.response["id"]] = [*items, *answer.response["output"]]


class _Answer:
    """One response on a WebSocket, sent as `AnswerStream` sends the events of HTTP."""

    def __init__(self, socket: ResponsesSocket, lane: str | None, record: RequestLog) -> None:
        self._socket = socket
        self.record = record
        self.headers = socket.exchange.headers
        self.connection = socket.connection
        self.response: dict[str, Any] | None = None
        """The response at its end."""
        self.kill_after: int | None = None
        """After how many events the connection breaks."""
        self._events = 0
        self._text = b""
        self._lane = b"}" if lane is None else f',"stream_id":{json.dumps(lane)}}}'.encode()

    @property
    def gone(self) -> bool:
        return self._socket.exchange.gone

    @property
    def writable(self) -> bool:
        return self._socket.exchange.writable

    async def drained(self) -> None:
        await self._socket.exchange.drained()

    def send_headers(self, status: int, headers: Headers) -> None:
        self.record.status = status
        self.record.stamp_headers(now_ns())

    def send(self, data: bytes, stamp: Stamp | None = None) -> None:
        self._text += data
        *events, self._text = self._text.split(b"\n\n")
        for event in events:
            if self._events == self.kill_after:
                self.abort()
            if self.gone:
                raise AnswerEnded
            self._event(event)
        if stamp is not None:
            stamp(now_ns())

    def _event(self, event: bytes) -> None:
        text = event.rpartition(b"data: ")[2]
        if text.startswith(b":"):
            return  # a comment
        kind = event.partition(b"\n")[0].removeprefix(b"event: ").decode()
        if kind in _TERMINAL:
            self.response = json.loads(text)["response"]
        if text.endswith(b"}"):
            text = text[:-1] + self._lane
        self._events += 1
        self.record.bytes_out += len(text)
        self._socket.send_text(text)

    def end(self) -> None:
        if self._events == self.kill_after:
            self.abort()
            return
        self.record.stamp_finished(now_ns())
        if self.response is None:
            self._socket.close(_INTERNAL_ERROR)

    def abort(self) -> None:
        if self._text:  # amid an event: the frame breaks off too
            frame = Frame(Opcode.TEXT, self._text.rpartition(b"data: ")[2] + bytes(1_024))
            self.connection.write(frame.serialize(mask=False)[:-1_024])
        self._socket.exchange.abort()

    def reset(self, code: int) -> None:
        self.record.reset_code = code
        self.abort()

    def go_away(self, last: int | None, *, hard: bool) -> None:
        self._socket.close(_GOING_AWAY)
