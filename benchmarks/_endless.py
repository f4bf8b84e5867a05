"""A server of its own process that writes prepared events without end, as fast as its clients take them.

Over TLS, HTTP/2 or HTTP/1.1. Every event is a DATA frame or a chunk of its own, as servers write that flush each; the
frames of one connection's streams take turns. Prints its port and its certificate authority, and ends when
its stdin does.
"""

from __future__ import annotations

import json
import select
from typing import Any

import h2.config
import h2.connection
import h2.events

from benchmarks._serving import serve

_CHOICE = {"index": 0, "delta": {"content": " word"}, "logprobs": None, "finish_reason": None}
_CHUNK = {
    "id": "chatcmpl-9a1c63d2b7f84e05",
    "object": "chat.completion.chunk",
    "created": 1_700_000_000,
    "model": "prepared-1",
    "service_tier": "default",
    "system_fingerprint": "fp_b1a7e9c240",
    "choices": [_CHOICE],
    "obfuscation": "0123456789abcdef",
}
EVENT = b"data: " + json.dumps(_CHUNK, separators=(",", ":")).encode() + b"\n\n"
_EVENTS_AT_ONCE = 64
_HEADERS = [(":status", "200"), ("content-type", "text/event-stream")]
_HTTP1_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_HTTP1_CHUNK = b"%x\r\n%s\r\n" % (len(EVENT), EVENT)


def _frame(stream_id: int) -> bytes:
    return len(EVENT).to_bytes(3, "big") + b"\x00\x00" + stream_id.to_bytes(4, "big") + EVENT


class _Http2:
    """One connection. One thread reads and writes: a TLS socket is not for two."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self._streams: list[int] = []
        self._http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        self._http.initiate_connection()

    def serve(self) -> None:
        idle = False
        while True:
            if self._sock.pending() or select.select([self._sock], [], [], 0.05 if idle else 0)[0]:
                data = self._sock.recv(65_536)
                if not data:
                    return
                for event in self._http.receive_data(data):
                    self._take(event)
            data = self._round()
            idle = not data
            self._sock.sendall(data)

    def _take(self, event: Any) -> None:
        if isinstance(event, h2.events.RequestReceived):
            self._http.send_headers(event.stream_id, _HEADERS)
            self._streams.append(event.stream_id)
        elif isinstance(event, h2.events.StreamReset) and event.stream_id in self._streams:
            self._streams.remove(event.stream_id)

    def _round(self) -> bytes:
        """One event of every stream that may go on, behind what the protocol has to say."""
        said: bytes = self._http.data_to_send()
        going = [
            number for number in self._streams if self._http.streams[number].outbound_flow_control_window >= len(EVENT)
        ]
        times = min(_EVENTS_AT_ONCE // max(1, len(going)) or 1, 4)
        frames = b"".join(map(_frame, going)) * times
        size = len(EVENT) * times
        if not going or self._http.outbound_flow_control_window < size * len(going):
            return said
        if any(self._http.streams[number].outbound_flow_control_window < size for number in going):
            return said
        self._http.outbound_flow_control_window -= size * len(going)
        for number in going:
            self._http.streams[number].outbound_flow_control_window -= size
        return said + frames


def _serve_http1(sock: Any) -> None:
    asked = b""
    while b"\r\n\r\n" not in asked:
        data = sock.recv(65_536)
        if not data:
            return
        asked += data
    sock.sendall(_HTTP1_HEAD)
    while True:
        sock.sendall(_HTTP1_CHUNK * _EVENTS_AT_ONCE)


if __name__ == "__main__":
    serve(lambda sock: _Http2(sock).serve(), _serve_http1)
