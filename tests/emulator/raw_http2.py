"""A client at the level of frames: what the emulator really puts on an HTTP/2 connection."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Callable
from typing import Any, Self

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, StreamEnded, StreamReset
from h2.settings import SettingCodes
from hyperframe.frame import Frame


class RawHttp2:
    """One connection; `events` is everything that came, `closed` whether the server ended it."""

    def __init__(self, port: int, trust: ssl.SSLContext, *, window_bytes: int | None = None) -> None:
        trust.set_alpn_protocols(["h2"])
        raw = socket.create_connection(("127.0.0.1", port), timeout=40)
        self.socket = trust.wrap_socket(raw, server_hostname="localhost")
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.h2.initiate_connection()
        if window_bytes is not None:
            self.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window_bytes})
        self.events: list[Event] = []
        self.closed = False
        self.goaway_last: int | None = None
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def flush(self) -> None:
        self.socket.sendall(self.h2.data_to_send())

    def post(self, body: dict[str, Any], **headers: str) -> int:
        stream_id = self.h2.get_next_available_stream_id()
        sent = [
            (":method", "POST"),
            (":path", "/v1/chat/completions"),
            (":scheme", "https"),
            (":authority", "localhost"),
            ("authorization", "Bearer any"),
            ("content-type", "application/json"),
            *((name.replace("_", "-"), value) for name, value in headers.items()),
        ]
        self.h2.send_headers(stream_id, sent)
        self.h2.send_data(stream_id, json.dumps(body).encode(), end_stream=True)
        self.flush()
        return stream_id

    def read_until(self, wanted: Callable[[Event], bool], *, acknowledge: bool = True) -> Event | None:
        """Read until an event is as wanted, or the server closes the connection (None)."""
        while not self.closed:
            try:
                data = self.socket.recv(65_536)
            except (ConnectionError, ssl.SSLError):
                data = b""
            if not data:
                self.closed = True
                return None
            data = self._without_goaway(data)
            found = None
            for event in self.h2.receive_data(data) if data else ():
                self.events.append(event)
                if acknowledge and isinstance(event, DataReceived) and event.flow_controlled_length:
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id or 0)
                if found is None and wanted(event):
                    found = event
            self.flush()
            if found is not None:
                return found
        return None

    def _without_goaway(self, data: bytes) -> bytes:
        """Note a GOAWAY and keep it from h2, which would take no frame of the streams still served."""
        kept = b""
        while len(data) >= 9:
            frame, length = Frame.parse_frame_header(memoryview(data[:9]))
            if type(frame).__name__ == "GoAwayFrame":
                self.goaway_last = int.from_bytes(data[9:13], "big")
            else:
                kept += data[: 9 + length]
            data = data[9 + length :]
        return kept + data

    def body(self, stream_id: int) -> bytes:
        return b"".join(
            event.data or b""
            for event in self.events
            if isinstance(event, DataReceived) and event.stream_id == stream_id
        )


def ended(stream_id: int) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, StreamEnded | StreamReset) and event.stream_id == stream_id
