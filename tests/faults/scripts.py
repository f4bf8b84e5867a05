"""What scripted servers do wrong: a function for each fault, the same for both protocols."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from typing import Any

from tests.faults.wire import DRIP_S, Wire

CONTENT = '{"river":"Rhine, from the Alps to the North Sea"}'
"""What the model says: an object, so that a schema can be asked for."""
USAGE = {"prompt_tokens": 900, "completion_tokens": 12, "total_tokens": 912}
_PIECES = ('{"river":', '"Rhine, from', " the Alps to", ' the North Sea"}')
_COMMON: dict[str, Any] = {"id": "chatcmpl-1", "created": 1, "model": "m"}
_LARGE_PIECE = 64 << 10
HELD_BACK_S = 0.5
"""Between two parts of a stream that is held back: twice the least that counts as such."""
_BOMB_BYTES = 68 << 20
"""The least that a decompression bomb comes to: transports let smaller answers pass."""


def whole(content: str = CONTENT, *, usage: bool = True) -> bytes:
    """A whole answer."""
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    body = {**_COMMON, "object": "chat.completion", "choices": [choice]}
    return json.dumps({**body, "usage": USAGE} if usage else body).encode()


def event(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> bytes:
    """One event of a stream; without a delta it has no choice."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    body = {**_COMMON, "object": "chat.completion.chunk", "choices": choices, **more}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def events(wire: Wire, *, usage: bool = True, done: int = 1) -> Iterator[bytes]:
    """The events of a whole answer."""
    yield event({"role": "assistant", "content": ""})
    for piece in _PIECES:
        yield event({"content": piece})
    yield event({}, "stop")
    if usage and wire.with_usage:
        yield event(None, usage=USAGE)
    for _ in range(done):
        yield b"data: [DONE]\n\n"


def body_of(wire: Wire) -> bytes:
    """All bytes of a good answer, in the requested form."""
    return b"".join(events(wire)) if wire.streamed else whole()


def answer(wire: Wire) -> None:
    """A good answer."""
    wire.begin()
    wire.head()
    for piece in events(wire) if wire.streamed else (whole(),):
        wire.send(piece)
    wire.end()


def first_half(wire: Wire) -> bytes:
    """What comes of an answer before it goes wrong."""
    return b"".join(list(events(wire))[:3]) if wire.streamed else whole()[:100]


def _sent(data: bytes, wire: Wire, kind: str | None = None, headers: tuple[tuple[str, str], ...] = ()) -> None:
    wire.begin()
    wire.head(200, kind, headers)
    wire.send(data)
    wire.end()


def reset_before_headers(wire: Wire) -> None:
    wire.begin()
    wire.reset_connection()


def reset_mid_body(wire: Wire) -> None:
    wire.begin()
    wire.head()
    wire.send(first_half(wire))
    time.sleep(0.05)
    wire.reset_connection()


def reset_once(wire: Wire) -> None:
    """The first request is broken off, the next one answered."""
    if wire.server.counts.requests == 1:
        wire.reset_connection()
    else:
        answer(wire)


def stall_before_headers(wire: Wire) -> None:
    wire.begin()
    wire.stall()


def stall_mid_body(wire: Wire) -> None:
    wire.begin()
    wire.head()
    wire.send(first_half(wire))
    wire.stall()


def truncated(wire: Wire) -> None:
    """The message ends in the middle of a chunk (HTTP/1.1), or of what its length says (HTTP/2)."""
    wire.begin()
    wire.head(length=4_096 if type(wire).__name__ == "WireH2" else None)
    wire.send(first_half(wire))
    wire.cut_short()


def malformed_events(wire: Wire) -> None:
    """An event whose data is not JSON; in place of a whole answer the bytes of an event stream."""
    _sent(first_half(wire) + b'data: {"choices": [\n\n: a comment\nretry: soon\ndata\n\n', wire)


def invalid_json(wire: Wire) -> None:
    """A quote too many in the midst of the text: of an event, or of the whole answer."""
    _sent(body_of(wire).replace(b"the Alps to", b'the Alps" to'), wire)


def invalid_utf8(wire: Wire) -> None:
    _sent(body_of(wire).replace(b"the Alps", b"the \xff\xfe\xc3\x28lps"), wire)


def wrong_content_type(wire: Wire) -> None:
    _sent(body_of(wire), wire, "application/json" if wire.streamed else "text/plain")


def a_page(wire: Wire) -> None:
    """What stands before a provider answers with a page, and a 200."""
    wire.head(200, "text/html")
    wire.send(b"<html><body>Sign in</body></html>")
    wire.end()


def empty(wire: Wire) -> None:
    wire.begin()
    wire.head(length=0)
    wire.end()


def duplicate_done(wire: Wire) -> None:
    _sent(b"".join(events(wire, done=2)) if wire.streamed else whole(), wire)


def held_back(wire: Wire) -> None:
    """A stream of which a gateway passes on a part of the events at a time."""
    wire.begin()
    wire.head()
    begun, *events_, end, done = events(wire, usage=False)
    wire.send(begun)
    for piece in events_:
        time.sleep(HELD_BACK_S)
        wire.send(piece + event({"content": " "}) * 15)
    wire.send(end + done)
    wire.end()


def dripped_body(wire: Wire) -> None:
    """All behind the beginning in forty pieces with pauses: longer in all than the read timeout."""
    wire.begin()
    wire.head()
    data = body_of(wire)
    begun = len(first_half(wire))
    wire.send(data[:begun])
    size = (len(data) - begun) // 40 + 1
    for at in range(begun, len(data), size):
        wire.send(data[at : at + size])
        time.sleep(DRIP_S)
    wire.end()


def dripped_head(wire: Wire) -> None:
    """The head, a few bytes at a time, and then the answer at once."""
    wire.begin()
    wire.head_dripped()
    for piece in events(wire) if wire.streamed else (whole(),):
        wire.send(piece)
    wire.end()


def _long_text(wire: Wire, least_bytes: int = 0) -> Iterator[bytes]:
    """An answer of so many bytes, in pieces."""
    piece = "x" * _LARGE_PIECE
    count = max(wire.large_bytes, least_bytes) // _LARGE_PIECE
    if wire.streamed:
        yield event({"role": "assistant", "content": '{"river":"'})
        for _ in range(count):
            yield event({"content": piece})
        yield event({"content": '"}'})
        yield event({}, "stop")
        if wire.with_usage:
            yield event(None, usage=USAGE)
        yield b"data: [DONE]\n\n"
    else:
        before, after = whole('{"river":"HERE"}').split(b"HERE")
        yield before
        for _ in range(count):
            yield piece.encode()
        yield after


def large(wire: Wire) -> None:
    wire.begin()
    wire.head()
    for piece in _long_text(wire):
        wire.send(piece)
    wire.end()


def gzip_bomb(wire: Wire) -> None:
    """As large, in a thousandth of the bytes on the wire."""
    wire.begin()
    wire.head(headers=(("content-encoding", "gzip"),))
    wire.send(gzip.compress(b"".join(_long_text(wire, _BOMB_BYTES)), 6))
    wire.end()


def reset_stream(wire: Wire, *, code: int) -> None:
    """RST_STREAM in place of an answer."""
    wire.reset_stream(code)


def redirect(wire: Wire, *, status: int, elsewhere: bool) -> None:
    """A redirect to an answer, at the same origin or at another one."""
    if wire.path.endswith("/moved"):
        answer(wire)
        return
    server = wire.server.other if elsewhere else wire.server
    assert server is not None
    wire.head(status, "text/plain", (("location", f"{server.url}/v1/moved"),), length=0)
    wire.end()
