"""However an answer is cut into reads, the connection says of it what h11 alone would say."""

from __future__ import annotations

from typing import NamedTuple

import h11
from hypothesis import given, settings, strategies as st

from fastlane.transport.protocols.exchange import Exchange, Phases, RequestHead, TransportError
from fastlane.transport.protocols.h1 import Http1Connection

HEADERS = [(b"Host", b"a.test")]
HEAD = b"HTTP/1.1 200 OK\r\nX-Model: Gpt\r\n"


class Outcome(NamedTuple):
    """What an answer came to."""

    status: int | None
    headers: list[tuple[bytes, bytes]]
    body: bytes
    ended: bool
    failed: bool
    reusable: bool


def with_h11_alone(method: bytes, answer: bytes, *, closed: bool) -> Outcome:
    """The reference: the whole answer at once, read by h11 and nothing else."""
    reader = h11.Connection(h11.CLIENT, max_incomplete_event_size=100 * 1024)
    reader.send(h11.Request(method=method, target=b"/", headers=HEADERS))
    reader.send(h11.EndOfMessage())
    status: int | None = None
    headers: list[tuple[bytes, bytes]] = []
    body = b""
    ended = failed = False
    reader.receive_data(answer)
    try:
        while not ended:
            event = reader.next_event()
            if isinstance(event, h11.Response):
                status, headers = event.status_code, event.headers.raw_items()
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                ended = True
            elif event is h11.NEED_DATA and closed:
                reader.receive_data(b"")
            elif not isinstance(event, h11.InformationalResponse):
                break
    except h11.RemoteProtocolError:
        failed = True
    done = (reader.our_state, reader.their_state) == (h11.DONE, h11.DONE)
    # A connection that has been closed, or that brought more than the answer, carries no further request.
    reusable = done and not closed and not reader.trailing_data[0]
    return Outcome(status, headers, body, ended, failed, reusable or (not ended and not failed and not closed))


def with_ours(method: bytes, reads: list[bytes], *, closed: bool) -> Outcome:
    connection: Http1Connection = Http1Connection()
    head = RequestHead(method=method, scheme=b"http", authority=b"a.test", target=b"/", headers=HEADERS)
    exchange = Exchange(head, Phases())
    connection.begin(exchange, end=True)
    connection.data_to_send()
    raised: TransportError | None = None
    try:
        for now_ns, read in enumerate(reads):
            connection.receive(read, now_ns)
        if closed:
            connection.receive_end(len(reads))
    except TransportError as error:
        raised = error
        connection.lost(error)
    assert raised is None or raised.name == "RemoteProtocolError"
    answer = exchange.answer_head
    assert len(exchange.phases.data_ns) == len(exchange.chunks) <= len(reads)
    assert all(piece for _, piece in exchange.chunks)
    body = b"".join(piece for _, piece in exchange.chunks)
    assert exchange.tail[-16:] == body[-16:]
    return Outcome(
        None if answer is None else answer.status,
        [] if answer is None else answer.headers,
        body,
        exchange.answer_ended,
        # What comes behind a complete answer harms nobody but the connection.
        exchange.error is not None,
        bool(connection.capacity),
    )


def cut(answer: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(answer) + 1) for place in places})
    reads = [answer[start:end] for start, end in zip([0, *ends], [*ends, len(answer)], strict=True)]
    return [read for read in reads if read]


# Bodies that look like framing are the ones to get wrong.
BODIES = st.one_of(
    st.binary(min_size=1, max_size=40),
    st.lists(st.sampled_from([b"\r\n", b"\r", b"\n", b"0", b"2\r\n", b"a"]), min_size=1, max_size=12).map(b"".join),
)


def chunk(body: bytes, spelling: str, extension: bytes) -> bytes:
    return (spelling % len(body)).encode() + extension + b"\r\n" + body + b"\r\n"


SPELLINGS = st.sampled_from(["%x", "%x", "%X", "%03x", "%012x"])
CHUNKS = st.builds(chunk, BODIES, SPELLINGS, st.sampled_from([b"", b"", b"", b"", b";a=b", b"  "]))
ENDS = st.sampled_from([b"0\r\n\r\n", b"0\r\n\r\n", b"000\r\n\r\n", b"0;x\r\n\r\n", b"0\r\nX-Sum: 1\r\n\r\n"])
BAD = st.sampled_from([
    b"", b"0\r\n", b"0\r\nno trailer\r\n\r\n", b"-1\r\nab\r\n", b"+2\r\nab\r\n", b"0x2\r\nab\r\n", b"1_0\r\n", b"\r\n",
    b"2\r\nabc\r\n", b"2\r\nab\n", b"2\nab\r\n", b"2\r\nab\r\r\n", b"2;\n\r\nab\r\n", b"fffffffff\r\nab",
    b"2 \r\nab\r\n", b"fffffffffffffffffffff\r\n", b"zz\r\n", b"2\r\na",
])  # fmt: skip
AFTER = st.sampled_from([b"", b"", b"", b"\r\n", b"x", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"])
CHUNKED = st.builds(
    lambda chunks, end, after: HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(chunks) + end + after,
    st.lists(CHUNKS, max_size=8),
    ENDS | BAD,
    AFTER,
)
WITH_LENGTH = st.builds(
    lambda body, surplus, after: HEAD + b"Content-Length: %d\r\n\r\n" % (len(body) + surplus) + body + after,
    BODIES,
    st.sampled_from([0, 0, 0, 3]),
    AFTER,
)
UNTIL_CLOSED = BODIES.map(lambda body: HEAD + b"\r\n" + body)
INFORMATIONAL = st.lists(
    st.sampled_from([b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early\nLink: x\n\n", b"HTTP/1.1 102\r\n\r\n"]),
    max_size=3,
).map(b"".join)
ODD_HEADS = st.sampled_from([
    b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na",
    b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\na",
    b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 111111111111111111111\r\n\r\n", b"\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", b"\x16\x03\x01",
    b"HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n", b"HTTP/1.1 200 OK\r\nA: \x00\r\n\r\n", b"HTTP/1.1 200 OK\r\nA: b\r\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 101 No\r\nUpgrade: x\r\n\r\n",
    b"HTTP/1.1 099 No\r\n\r\n", b"HTTP/1.1 20 No\r\n\r\n", b"nothing\r\n\r\n", b"HTTP/1.1 200 OK\r\n A: b\r\n\r\n",
])  # fmt: skip
ANSWERS = st.builds(bytes.__add__, INFORMATIONAL, CHUNKED | CHUNKED | WITH_LENGTH | UNTIL_CLOSED | ODD_HEADS)


@settings(deadline=None, max_examples=1_500)
@given(
    st.sampled_from([b"POST", b"POST", b"HEAD"]), ANSWERS, st.lists(st.integers(0, 2_000), max_size=12), st.booleans()
)
def test_an_answer_means_the_same_however_it_is_cut(
    method: bytes, answer: bytes, places: list[int], closed: bool
) -> None:
    expected = with_h11_alone(method, answer, closed=closed)
    ours = with_ours(method, cut(answer, places), closed=closed)

    if not ours.ended and not ours.failed:
        # That it will be closed is known from its head on; h11 alone shows it at the end.
        expected = expected._replace(reusable=ours.reusable)
    assert ours == expected


@settings(deadline=None, max_examples=300)
@given(ANSWERS)
def test_an_answer_means_the_same_byte_by_byte(answer: bytes) -> None:
    expected = with_h11_alone(b"POST", answer, closed=True)

    assert with_ours(b"POST", [answer[at : at + 1] for at in range(len(answer))], closed=True) == expected


# Cut where chunks begin, so that each read could be taken for one.
WRONG_CHUNKS = st.sampled_from(
    [b"2\r\nabcd", b"2\r\nab\n\r", b"2\nab\r\n", b"3\r\nab\r\n", b"1\r\nab\r\n", b"+2\r\nab\r\n"]
)


@settings(deadline=None, max_examples=500)
@given(st.lists(CHUNKS | CHUNKS | CHUNKS | WRONG_CHUNKS | ENDS, max_size=6), st.booleans())
def test_a_read_is_a_chunk_only_if_it_is_one(parts: list[bytes], closed: bool) -> None:
    reads = [HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *parts]
    expected = with_h11_alone(b"POST", b"".join(reads), closed=closed)

    assert with_ours(b"POST", reads, closed=closed) == expected
