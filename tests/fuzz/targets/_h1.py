"""The peer of a connection over HTTP/1.1: any answer in any reads, against h11 alone on the whole of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import h11

from fastlane.transport import Phases
from fastlane.transport.protocols.exchange import Exchange, RequestHead, TransportError
from fastlane.transport.protocols.h1 import IN_NO_HEAD, MAX_INFORMATIONAL, Http1Connection
from tests.fuzz.drawn import Drawn, chance
from tests.fuzz.targets._target import holds

_PARTS = (
    b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n",
    b"HTTP/1.0 200 OK\r\n",
    b"HTTP/1.1 204 No\r\n", b"HTTP/1.1 101 No\r\nUpgrade: x\r\n\r\n", b"HTTP/1.1 429 No\r\n", b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n", b"X: y\r\n", b" folded\r\n",
    b"\r\n", b"\r\n", b"\n", b"\r", b"5\r\nhello\r\n", b"1\r\na\r\n", b"0\r\n\r\n", b"0\r\nX: y\r\n\r\n",
    b"2;a=b\r\nab\r\n",
    b"a\r\n0123456789\r\n", b"FFFFFFFF\r\n", b"5\r\nhell", b"5\nhello\r\n", b"5\r\nhello\n", b"hello", b"0", b"\0",
    b"no colon\r\n", b": \r\n", b"-1\r\n",
    b"Transfer-Encoding: gzip\r\n", b"Content-Length: 5, 5\r\n", b"Content-Length: 1e3\r\n", b"X: \xff\r\n",
    b"5 \r\nhello\r\n",
    b"00005\r\nhello\r\n", b"1" * 25 + b"\r\n", b"\x0b", b"X:\ta\t\r\n", b"Content-Length: +5\r\n",
)  # fmt: skip
_HEADS = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n", b"HTTP/1.1 200 OK\r\n",
)  # fmt: skip
# Each is cut at each of its bytes.
_ANSWERS = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\na\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nab\r\n0\r\nX-Sum: 1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabHTTP/1.1 200 OK\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1a\r\n0123456789\r\nlike a chunk  \r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n5\r\nlonger\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\ne\r\n01234562\r\nab\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\na", b"HTTP/1.1 101 No\r\nUpgrade: x\r\n\r\nabc",
)  # fmt: skip
_MOST_BYTES = 3_000  # below the limits that are ours alone


_HEADERS = [(b"Host", b"a.test")]


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
    reader.send(h11.Request(method=method, target=b"/", headers=_HEADERS))
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


def with_ours(method: bytes, reads: Sequence[bytes], *, closed: bool) -> Outcome:
    connection: Http1Connection = Http1Connection()
    head = RequestHead(method=method, scheme=b"http", authority=b"a.test", target=b"/", headers=_HEADERS)
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
        # What comes behind a complete answer harms only the connection.
        exchange.error is not None,
        bool(connection.capacity),
    )


def _answer(draw: Drawn) -> bytes:
    parts = [draw.choice(_HEADS)] if draw.randrange(4) else []
    while not draw.spent and len(parts) < 30:
        parts.append(draw.choice(_PARTS) if draw.randrange(6) else draw.bytes_of(12))
    return b"".join(parts)


def check(data: bytes) -> None:
    """By the first byte: parts drawn by the bytes, or the bytes themselves as an answer."""
    kind, draw = (data[0] if data else 0), Drawn(data[1:])
    answer = _answer(draw) if kind % 2 else data[1:]
    answer = answer[:_MOST_BYTES] or b"\n"
    method = b"HEAD" if kind % 16 in (14, 15) else b"POST"
    cutting = Drawn(data[::-1])
    _compare(method, answer, cutting.cut(answer), closed=kind & 2 > 0)
    _compare(method, answer, [answer[at : at + 1] for at in range(len(answer))], closed=kind & 2 > 0)
    for at in range(len(answer) if answer in _ANSWERS else 0):
        _compare(method, answer, [answer[:at], answer[at:]], closed=kind & 2 > 0)


def _compare(method: bytes, answer: bytes, reads: Sequence[bytes], *, closed: bool) -> None:
    ours = with_ours(method, [read for read in reads if read], closed=closed)
    expected = with_h11_alone(method, answer, closed=closed)
    if not ours.ended and not ours.failed:
        # That it will be closed is known from its head on; h11 alone shows it at the end.
        expected = expected._replace(reusable=ours.reusable)
    if ours.failed and not expected.failed and _is_ours_alone(answer):
        return
    holds(ours == expected, "an answer is another one than h11's", reads, ours, expected)


def _is_ours_alone(answer: bytes) -> bool:
    """What we refuse and h11 does not, or not yet: bytes that no head may have, before the head's end."""
    return IN_NO_HEAD.search(answer) is not None or answer.count(b"HTTP/1.1 1") > MAX_INFORMATIONAL


def seeds() -> list[bytes]:
    """Answers of each form, and bytes that draw parts."""
    drawn = chance(20, 50)
    return [
        *(bytes([kind]) + answer for answer in _ANSWERS for kind in (0, 2, 14)),
        *(bytes([kind]) + one for one in drawn for kind in (1, 3)),
    ]
