"""A server of its own process that answers every request at once with the same prepared completion.

Over TLS, HTTP/2 or HTTP/1.1, without a look at what is asked: a server that takes milliseconds for each answer has a
client find the processor's caches cold every time. Prints its port and its certificate authority, and ends
when its stdin does.
"""

from __future__ import annotations

import json
from typing import Any

from hpack.hpack import Encoder

from benchmarks._serving import answer_http1, serve

TEXT = "Your reservation has been changed."
_MESSAGE: dict[str, Any] = {"role": "assistant", "content": TEXT, "refusal": None, "annotations": []}
_ANSWER = {
    "id": "chatcmpl-9a1c63d2b7f84e05",
    "object": "chat.completion",
    "created": 1_700_000_000,
    "model": "prepared-1",
    "choices": [{"index": 0, "message": _MESSAGE, "logprobs": None, "finish_reason": "stop"}],
    "usage": {
        "prompt_tokens": 9_000,
        "completion_tokens": 6,
        "total_tokens": 9_006,
        "prompt_tokens_details": {"cached_tokens": 8_960, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    },
    "service_tier": "default",
    "system_fingerprint": "fp_b1a7e9c240",
}
_BODY = json.dumps(_ANSWER).encode()
_HEADERS = [
    ("date", "Tue, 14 Nov 2023 22:13:20 GMT"),
    ("content-type", "application/json"),
    ("content-length", str(len(_BODY))),
    ("openai-processing-ms", "412"),
    ("openai-version", "2020-10-01"),
    ("x-ratelimit-limit-requests", "10000"),
    ("x-ratelimit-remaining-requests", "9999"),
    ("x-request-id", "req_5f1c9e1f4e1b4b0d8d2a7c3b6a9d0e11"),
]
_HTTP1 = (
    b"HTTP/1.1 200 OK\r\n" + b"".join(f"{name}: {value}\r\n".encode() for name, value in _HEADERS) + b"\r\n" + _BODY
)

_DATA, _HEADERS_FRAME, _SETTINGS, _PING = 0, 1, 4, 6
_READ_BYTES = 262_144
_LARGEST_WINDOW = 2**31 - 1
_REFILL_BYTES = 2**30


def _frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream_id.to_bytes(4, "big") + payload


def _window_update(increment: int) -> bytes:
    return _frame(8, 0, 0, increment.to_bytes(4, "big"))


def _serve_http2(sock: Any) -> None:
    encoder = Encoder()
    # No stream's window ends before the largest body does.
    settings = (4).to_bytes(2, "big") + _LARGEST_WINDOW.to_bytes(4, "big")
    sock.sendall(_frame(_SETTINGS, 0, 0, settings) + _window_update(_LARGEST_WINDOW - 65_535))
    buffer = b""
    while len(buffer) < 24:  # the client's preface
        buffer += sock.recv(_READ_BYTES) or b"\0" * 24
    buffer = buffer[24:]
    unsaid = 0
    while True:
        out = b""
        while len(buffer) >= 9:
            length = int.from_bytes(buffer[:3], "big")
            if len(buffer) < 9 + length:
                break
            kind, flags = buffer[3], buffer[4]
            stream_id = int.from_bytes(buffer[5:9], "big")
            payload, buffer = buffer[9 : 9 + length], buffer[9 + length :]
            if kind in (_SETTINGS, _PING) and not flags & 1:
                out += _frame(kind, 1, 0, payload if kind == _PING else b"")
            unsaid += length if kind == _DATA else 0
            if kind in (_DATA, _HEADERS_FRAME) and flags & 1:
                head = encoder.encode([(":status", "200"), *_HEADERS])
                out += _frame(_HEADERS_FRAME, 4, stream_id, head) + _frame(_DATA, 1, stream_id, _BODY)
        if unsaid > _REFILL_BYTES:
            out += _window_update(unsaid)
            unsaid = 0
        if out:
            sock.sendall(out)
        data = sock.recv(_READ_BYTES)
        if not data:
            return
        buffer += data


if __name__ == "__main__":
    serve(_serve_http2, lambda sock: answer_http1(sock, _HTTP1))
