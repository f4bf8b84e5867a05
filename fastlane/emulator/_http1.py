"""HTTP/1.1 on one connection: bytes to requests, responses to bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Literal

import h11

from fastlane.emulator._connection import Headers, ServerConnection, ServerExchange, Stamp, joined_headers
from fastlane.emulator._log import OpenRecord

_MAXIMUM_HEAD_BYTES = 256 * 1024


class Http1:
    """The connection; its current request and answer are a `_Turn`."""

    http_version = "HTTP/1.1"

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection
        self.h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAXIMUM_HEAD_BYTES)
        self.close_after_turn = False
        self.idle_s: float | None = None
        self._turn: _Turn | None = None
        self._outgoing: list[bytes] = []
        self._idle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Nothing: the client speaks first."""

    def receive(self, data: bytes) -> None:
        self.h11.receive_data(data)
        self._read()

    def _read(self) -> None:
        while not self.connection.closed:
            try:
                event = self.h11.next_event()
            except h11.RemoteProtocolError as error:
                self._refuse(error)
                return
            if isinstance(event, h11.Request):
                self._begin(event)
            elif isinstance(event, h11.Data) and self._turn:
                self._turn.receive(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage) and self._turn:
                self._turn.run()
                return
            elif isinstance(event, h11.ConnectionClosed):
                self.connection.close()
                return
            else:
                return

    def _begin(self, event: h11.Request) -> None:
        headers = joined_headers(list(event.headers))
        if self._idle:
            self._idle.cancel()
        record = self.connection.service.open_record(
            self.connection,
            method=event.method.decode("ascii"),
            path=event.target.decode("ascii", "replace"),
            headers=headers,
            stream_id=self.connection.requests + 1,
        )
        if headers.get("connection", "").lower() == "close":
            record.connection_closed_by = "client"
        self._turn = _Turn(self, record, headers)
        if self.h11.they_are_waiting_for_100_continue:
            self.write(h11.InformationalResponse(status_code=100, headers=[]))

    def _refuse(self, error: h11.RemoteProtocolError) -> None:
        if self.h11.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.write(h11.Response(status_code=error.error_status_hint, headers=[("content-length", "0")]))
            self.write(h11.EndOfMessage())
        self.connection.close()

    def write(self, event: h11.InformationalResponse | h11.Response | h11.Data | h11.EndOfMessage) -> None:
        """Queue an event's bytes."""
        data = self.h11.send(event)
        if data:
            self._outgoing.append(data)

    def outgoing(self) -> bytes:
        if not self._outgoing:
            return b""
        data, self._outgoing = b"".join(self._outgoing), []
        return data

    def writable_again(self) -> None:
        if self._turn:
            self._turn.room.set()

    def lost(self) -> None:
        if self._idle:
            self._idle.cancel()
        if self._turn:
            self._turn.client_left()

    def turn_over(self) -> None:
        """Make ready for the next request, or close."""
        self._turn = None
        if self.close_after_turn or self.h11.our_state is h11.MUST_CLOSE or self.h11.their_state is not h11.DONE:
            self.connection.close()
            return
        self.h11.start_next_cycle()
        if self.idle_s is not None:
            self._idle = asyncio.get_running_loop().call_later(self.idle_s, self.connection.close)
        asyncio.get_running_loop().call_soon(self._read)


class _Turn(ServerExchange):
    """One request and its response."""

    def __init__(self, http1: Http1, record: OpenRecord, headers: Mapping[str, str]) -> None:
        super().__init__(http1.connection, record, headers)
        self._http1 = http1

    def send_headers(self, status: int, headers: Headers) -> None:
        if self.gone:
            return
        self.record.status = status
        if self._http1.close_after_turn:
            headers = [*headers, ("connection", "close")]
        self._http1.write(h11.Response(status_code=status, headers=list(headers)))
        self.connection.flush_soon(self.record.stamp_headers)

    def send(self, data: bytes, stamp: Stamp | None = None) -> None:
        if self.gone or not data:
            return
        self._http1.write(h11.Data(data=data))
        self.record.bytes_out += len(data)
        self.connection.flush_soon(stamp)

    def end(self) -> None:
        if self.gone:
            return
        self.gone = True
        try:
            self._http1.write(h11.EndOfMessage())
        except h11.LocalProtocolError:
            # A body cut short of its content-length, as a fault asked: only closing can end it.
            self._http1.close_after_turn = True
        self.connection.flush_soon(self.record.stamp_finished)
        self._http1.turn_over()

    def reset(self, code: int) -> None:
        """Abort the connection: HTTP/1.1 has no streams to reset."""
        self.abort()

    def go_away(self, manner: Literal["graceful", "hard"], last: int | None) -> None:
        """Close after this response (graceful) or at once (hard)."""
        self._http1.close_after_turn = True
        if manner == "hard":
            self.gone = True
            self.connection.close()

    def close_when_idle(self, seconds: float, *, silently: bool) -> None:
        """Close the connection once it has been idle for so long."""
        self._http1.idle_s = seconds
