"""Event streams: ours against openai's own decoder, in every way in which the network may cut the bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from openai._streaming import SSEDecoder

from fastlane.protocol.events import EventReader, EventSplitter
from tests.fuzz.drawn import Drawn
from tests.fuzz.targets._target import holds

LINES = (
    b"data: {}\n\n", b"data: [DONE]\n\n", b"data:{}\n\n", b": wait\n\n", b"event: message\ndata: {}\n\n", b"data: a\n",
    b"event: thread.run\ndata: {}\n\n", b"id: 1\n", b"retry: 5\n", b"\n", b"\r\n", b"\r", b"data: {}\r\n\r\n",
    b"data\n\n", b"event:thread.run\ndata: {}\n\n", b"data: {}\r\r",
    b"\xef\xbb\xbfdata: {}\n\n", b"data: \xff\n\n", "data: é\u2028\x85\n\n".encode(), b"event: x\n\n",
    b"data: a\ndata: b\n\n", b"other: x\n\n", b"data: " + b"x" * 40 + b"\n\n", b"\x00", b": \xff\n\n", b"data: \n\n",
    b"id: \x00\ndata: a\n\n", b"\x0b\x0c\x1c\x1d", b"event:  \xc3\xa9\ndata: x\n\n", b"retry: \xd9\xa3\n\n",
)  # fmt: skip

Parsed = tuple[list[str], bool]
"""The data of all events, and whether the bytes cannot be read at all."""


def stock(pieces: Iterable[bytes]) -> Parsed:
    """The events, those in front of one that cannot be read included."""
    found: list[str] = []
    try:
        for event in SSEDecoder().iter_bytes(iter(pieces)):
            if event.data:
                found.append(event.data)  # noqa: PERF401 - those before an error count
    except UnicodeDecodeError:
        return found, True
    return found, False


def split(pieces: Sequence[bytes]) -> Parsed:
    """What the splitter and, behind what it stops at, openai's decoder make of a stream, as a client uses both."""
    splitter = EventSplitter()
    found: list[str] = []
    for number, piece in enumerate(pieces):
        index = 0
        left = None
        for data in splitter.feed(piece):
            if data is not None:
                try:
                    text = data.decode()
                except UnicodeDecodeError:
                    left = splitter.left(index)  # no decoder takes it: it goes back
                    break
                if text:
                    found.append(text)
            index += 1
        if left is None and splitter.stopped:
            left = splitter.left(index)
        if left is not None:
            more, failed = stock([*left, *pieces[number + 1 :]])
            return [*found, *more], failed
    more, failed = stock(splitter.unended())
    return [*found, *more], failed


def data_of(pieces: Iterable[bytes]) -> list[str]:
    """What the reader of unstreamed answers makes of the bytes."""
    reader = EventReader()
    return [data.decode("utf-8", "replace") for piece in pieces for data in reader.feed(piece) if data]


def _body(draw: Drawn) -> bytes:
    parts: list[bytes] = []
    while not draw.spent and len(parts) < 60:
        parts.append(draw.choice(LINES) if draw.randrange(4) else draw.bytes_of(20))
    return b"".join(parts)


def check(data: bytes) -> None:
    """Compare, on bytes as they are (an even first byte) or lines drawn by them."""
    draw = Drawn(data[1:])
    pieces = [b"", b""]
    if data[:1] and data[0] % 2:
        body = _body(draw)
        pieces = Drawn(body[::-1]).cut(body)
    else:
        positions = draw.bytes_of(16)
        body = draw.rest()
        pieces = Drawn(positions).cut(body)
    _compare(body, pieces)
    if len(body) <= 120:
        for at in range(1, len(body)):
            _compare(body, [body[:at], body[at:]])
    _compare(body, [body[at : at + 1] for at in range(len(body))])


def _compare(body: bytes, pieces: Sequence[bytes]) -> None:
    expected = stock(pieces)
    found = split(pieces)
    holds(found == expected, "the events of a stream are not the stock client's", pieces, found, expected)
    ended = data_of(pieces)
    try:
        body.decode()
    except UnicodeDecodeError:
        return  # openai's decoder has no answer to that, and this reader goes on
    # An event that the end of the stream cuts off is none for this reader; openai's decoder gives what it has.
    holds(
        ended == expected[0][: len(ended)] and len(expected[0]) - len(ended) <= 1,
        "the data of an answer is not the stock client's", pieces, ended, expected,
    )  # fmt: skip


def seeds() -> list[bytes]:
    """Streams in each form that providers use."""
    plain = b"".join(LINES[:5])
    return [
        b"\0\0" + plain,
        b"\0\0data: a\r\ndata: b\r\n\r\n",
        *(b"\0\0" + line * 2 for line in LINES),
        b"\0\x05" + plain.replace(b"\n", b"\r\n"),
        *(bytes([1]) + bytes([kind, 1]) * 9 for kind in range(len(LINES))),
    ]
