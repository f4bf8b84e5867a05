"""The filter between an HTTP/2 connection and its socket takes out what it should, however the bytes are cut."""

from __future__ import annotations

from typing import Any

import pytest
from hyperframe.frame import DataFrame, Frame, GoAwayFrame, HeadersFrame, PingFrame, SettingsFrame, WindowUpdateFrame
from hypothesis import given, settings, strategies as st

from fastlane.transport._http2_socket import AsyncSocket, Goodbyes, SyncSocket

STREAM_ID = 5


def goaway(last: int, code: int = 0, reason: bytes = b"") -> bytes:
    return GoAwayFrame(0, last_stream_id=last, error_code=code, additional_data=reason).serialize()


FRAMES: st.SearchStrategy[Frame] = st.one_of(
    st.builds(DataFrame, st.just(STREAM_ID), data=st.binary(max_size=40)),
    st.builds(HeadersFrame, st.just(STREAM_ID), data=st.binary(max_size=40)),
    st.builds(SettingsFrame, st.just(0)),
    st.builds(PingFrame, st.just(0), opaque_data=st.binary(min_size=8, max_size=8)),
    st.builds(WindowUpdateFrame, st.just(0), window_increment=st.integers(1, 1_000)),
)
OTHERS = FRAMES.map(Frame.serialize)
HARD = st.builds(goaway, st.integers(0, 9), st.integers(1, 13), st.binary(max_size=20))
LEAVING_OUT = st.builds(goaway, st.integers(0, STREAM_ID - 1), reason=st.binary(max_size=20))
GRACEFUL = st.builds(goaway, st.integers(STREAM_ID, 2**31 - 1), reason=st.binary(max_size=20))


@st.composite
def conversations(draw: st.DrawFn) -> tuple[list[bytes], list[bytes], bool]:
    """Frames that a server sends, cut into reads; what should be seen of them; whether a goodbye is among them."""
    graceful = st.tuples(st.just(True), st.just(True), GRACEFUL)
    other_goodbyes = st.tuples(st.just(True), st.just(False), HARD | LEAVING_OUT)
    frames = draw(st.lists(graceful | other_goodbyes | st.tuples(st.just(False), st.just(False), OTHERS)))
    sent = b"".join(frame for _, _, frame in frames)
    places = sorted(draw(st.lists(st.integers(0, len(sent)), max_size=12)))
    reads = [sent[start:end] for start, end in zip([0, *places], [*places, len(sent)], strict=True)]
    seen = [frame for _, taken_out, frame in frames if not taken_out]
    return [read for read in reads if read], seen, any(goodbye for goodbye, _, _ in frames)


def goodbyes() -> Goodbyes:
    made = Goodbyes()
    made.stream_id = STREAM_ID
    return made


@settings(deadline=None, max_examples=300)
@given(conversations())
def test_a_goodbye_in_good_order_is_taken_out_and_nothing_else(conversation: Any) -> None:
    reads, seen, goodbye = conversation
    filtering = goodbyes()

    assert b"".join(filtering.feed(read) for read in reads) == b"".join(seen)
    assert filtering.going_away is goodbye


@settings(deadline=None)
@given(conversations())
def test_the_end_of_the_connection_is_never_hidden(conversation: Any) -> None:
    filtering = goodbyes()
    for read in conversation[0]:
        filtering.feed(read)

    assert filtering.feed(b"") == b""


class Socket:
    """A socket that gives what it is told and keeps what is written."""

    def __init__(self, *reads: bytes) -> None:
        self.reads = list(reads)
        self.written: list[bytes] = []

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self.reads.pop(0) if self.reads else b""

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.written.append(buffer)


def test_a_read_that_held_only_a_goodbye_is_not_the_end_of_the_stream() -> None:
    data = DataFrame(STREAM_ID, data=b"more").serialize()
    socket = SyncSocket(Socket(goaway(STREAM_ID), data), goodbyes())

    assert socket.read(65_536) == data
    assert socket.read(65_536) == b""


def test_a_request_is_one_write() -> None:
    head = HeadersFrame(STREAM_ID, data=b"head").serialize()
    body = DataFrame(STREAM_ID, data=b"body").serialize()
    end = DataFrame(STREAM_ID, data=b"", flags=["END_STREAM"]).serialize()
    inner = Socket()
    socket = SyncSocket(inner, goodbyes())
    for piece in (head, body, end):
        socket.write(piece)

    assert inner.written == [head + body + end]


def test_what_is_held_is_sent_before_anything_is_waited_for() -> None:
    inner = Socket(b"")
    socket = SyncSocket(inner, goodbyes())
    socket.write(b"settings")
    before = list(inner.written)
    socket.read(65_536)

    assert before == []
    assert inner.written == [b"settings"]


def test_a_long_body_is_handed_on_as_it_comes() -> None:
    inner = Socket()
    socket = SyncSocket(inner, goodbyes())
    for _ in range(10):
        socket.write(b"x" * 16_384)

    assert sum(map(len, inner.written)) >= 131_072
    assert max(map(len, inner.written)) <= 81_920


class SocketOfALoop(Socket):
    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # type: ignore[override]  # noqa: ASYNC109
        return Socket.read(self, max_bytes)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # type: ignore[override]  # noqa: ASYNC109
        Socket.write(self, buffer)


@pytest.mark.asyncio
async def test_the_asynchronous_twin_does_the_same() -> None:
    head = HeadersFrame(STREAM_ID, data=b"head").serialize()
    data = DataFrame(STREAM_ID, data=b"more").serialize()
    end = DataFrame(STREAM_ID, data=b"", flags=["END_STREAM"]).serialize()
    inner = SocketOfALoop(goaway(STREAM_ID), data)
    socket = AsyncSocket(inner, goodbyes())
    for piece in (head, end, b"held"):
        await socket.write(piece)

    assert await socket.read(65_536) == data
    assert await socket.read(65_536) == b""
    assert inner.written == [head + end, b"held"]


@pytest.mark.parametrize(
    ("said", "open_still"),
    [
        (goaway(STREAM_ID), False),
        (goaway(0, 11), False),
        (b"", False),
        (PingFrame(0, opaque_data=b"12345678").serialize(), True),
        (WindowUpdateFrame(0, window_increment=9).serialize(), True),
    ],
)
def test_what_a_server_says_between_two_calls_decides_whether_there_is_a_next_one(
    said: bytes, open_still: bool
) -> None:
    socket = SyncSocket(Socket(said), goodbyes())

    assert socket.is_still_open() is open_still


def test_what_a_server_says_between_two_calls_is_read_with_the_next_one() -> None:
    ping = PingFrame(0, opaque_data=b"12345678").serialize()
    data = DataFrame(STREAM_ID, data=b"more").serialize()
    socket = SyncSocket(Socket(ping, data), goodbyes())
    socket.is_still_open()

    assert [socket.read(65_536), socket.read(65_536)] == [ping, data]
