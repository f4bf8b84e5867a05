"""Requests and frames for the protocol's own code, without any network."""

from __future__ import annotations

from hpack.hpack import Encoder
from hyperframe.frame import HeadersFrame

from fastlane.transport import Phases
from fastlane.transport.protocols.exchange import Exchange, RequestHead

Fields = list[tuple[bytes, bytes]]

OK: Fields = [(b":status", b"200")]


class WokenExchange(Exchange):
    """An exchange that counts how often it was woken."""

    def __init__(self, head: RequestHead) -> None:
        super().__init__(head, Phases())
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1

    @property
    def body(self) -> bytes:
        return b"".join(data for _, data in self.chunks)


def request_head(method: bytes = b"POST", headers: Fields | None = None, target: bytes = b"/v1/chat") -> RequestHead:
    return RequestHead(
        method=method,
        scheme=b"https",
        authority=b"llm.test",
        target=target,
        headers=[(b"Host", b"llm.test"), (b"Accept", b"*/*")] if headers is None else headers,
    )


def raw_frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """A frame that hyperframe would refuse to make."""
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream_id.to_bytes(4) + payload


def head_bytes(stream_id: int, fields: Fields = OK, *, end: bool = False) -> bytes:
    """A head that h2 would refuse to send. The static table alone is used, so that the server's encoder stays out."""
    frame = HeadersFrame(stream_id, Encoder().encode([(*field, True) for field in fields]))
    frame.flags.add("END_HEADERS")
    if end:
        frame.flags.add("END_STREAM")
    return frame.serialize()
