from __future__ import annotations

import pytest

from fastlane.protocol.events import EventSplitter

PLAIN = {
    b"data: {}\n\n": [b"{}"],
    b"data:{}\n\n": [b"{}"],
    b"data:  {}\n\n": [b" {}"],
    b"data: \n\n": [b""],
    b"event: name\ndata: {}\n\n": [b"{}"],
    b"event:name\ndata:{}\n\n": [b"{}"],
    b"event:\ndata: {}\n\n": [b"{}"],
    b": wait\n\n": [None],
    ": é\n\n".encode(): [None],
    b":\n: wait\n\n": [None],
    b"data: 1\n\n: wait\n\ndata: 2\n\n": [b"1", None, b"2"],
}

NOT_PLAIN = [
    b"data: 1\r\n\r\n",
    b"data: 1\n\r\n",
    b"data: 1\r\rdata: 2\n\n",
    b"data: 1\ndata: 2\n\n",
    b"data: 1\nevent: name\n\n",
    b"data\n\n",
    b" data: 1\n\n",
    b"event: name\n\n",
    b"event: thread.run\ndata: {}\n\n",
    b"event: \xc3\xa9\ndata: {}\n\n",
    b"event: name\n: wait\n\n",
    b": wait\ndata: {}\n\n",
    b": \xff\n\n",
    b"id: 1\ndata: {}\n\n",
    b"retry: 1\n\n",
    b"other: 1\n\n",
    b"\xef\xbb\xbfdata: {}\n\n",
    b"\n\n",
    b"\ndata: 1\n\n",
    b"data: \xff\ndata",
    b"data: 1\ndata: 2\ndata: 3\n",
]


@pytest.mark.parametrize("body", PLAIN)
def test_a_plain_block_gives_its_data(body: bytes) -> None:
    splitter = EventSplitter()

    assert list(splitter.feed(body)) == PLAIN[body]
    assert not splitter.stopped
    assert splitter.unended() == []


@pytest.mark.parametrize("body", NOT_PLAIN)
def test_what_is_not_plain_is_left_as_it_came(body: bytes) -> None:
    splitter = EventSplitter()

    assert list(splitter.feed(b"data: 1\n\n: wait\n\n" + body)) == [b"1", None]
    assert splitter.stopped
    assert splitter.left(2) == [body]


@pytest.mark.parametrize("body", NOT_PLAIN)
def test_what_came_in_pieces_is_left_in_pieces(body: bytes) -> None:
    splitter = EventSplitter()
    pieces = [body[place : place + 1] for place in range(len(body))]

    fed: list[bytes] = []
    while pieces and not splitter.stopped:
        fed.append(pieces.pop(0))
        assert list(splitter.feed(fed[-1])) == []

    assert splitter.stopped
    assert splitter.left(0) == fed


def test_a_block_that_has_not_ended_waits_for_its_end() -> None:
    splitter = EventSplitter()

    assert list(splitter.feed(b"data: 1\n\ndata: ")) == [b"1"]
    assert list(splitter.feed(b"2")) == []
    assert splitter.unended() == [b"data: ", b"2"]
    assert list(splitter.feed(b"\n")) == []
    assert list(splitter.feed(b"\ndata: 3\n\nda")) == [b"2", b"3"]
    assert splitter.unended() == [b"da"]
    assert list(splitter.feed(b"ta: 4\n\n")) == [b"4"]
    assert splitter.unended() == []
    assert not splitter.stopped
