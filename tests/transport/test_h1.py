"""One HTTP/1.1 connection, with h11's server side as its peer."""

from __future__ import annotations

from typing import Any

import h11
import pytest

from fastlane.transport import Phases
from fastlane.transport.protocols.exchange import Exchange, RequestHead, TransportError
from fastlane.transport.protocols.h1 import Http1Connection

HOST = (b"Host", b"a.test")
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
BLANKS = b" " * 90_000


class Peer:
    """A server that speaks through h11."""

    def __init__(self) -> None:
        self.h11 = h11.Connection(h11.SERVER)

    def receive_request(self, data: bytes) -> tuple[h11.Request, bytes]:
        """A complete request, and its body."""
        self.h11.receive_data(data)
        request = self.h11.next_event()
        assert isinstance(request, h11.Request)
        body = b""
        while not isinstance(event := self.h11.next_event(), h11.EndOfMessage):
            assert isinstance(event, h11.Data)
            body += event.data
        return request, body

    def send_events(self, *events: Any) -> bytes:
        return b"".join(self.h11.send(event) or b"" for event in events)

    def answers(self, *pieces: bytes, status: int = 200, headers: Any = (("X-Model", "Gpt"),)) -> bytes:
        """A complete answer, after which the next request may come."""
        head = h11.Response(status_code=status, headers=list(headers), reason=b"Fine")
        written = self.send_events(head, *map(h11.Data, pieces), h11.EndOfMessage())
        if self.h11.our_state is h11.DONE:
            self.h11.start_next_cycle()
        return written


def opened() -> Http1Connection:
    connection: Http1Connection = Http1Connection()
    connection.start(0)
    assert (connection.http_version, connection.is_ready, connection.data_to_send()) == ("HTTP/1.1", True, b"")
    return connection


def asked(*headers: tuple[bytes, bytes], method: bytes = b"POST") -> Exchange:
    head = RequestHead(method=method, scheme=b"http", authority=b"a.test", target=b"/v1", headers=[HOST, *headers])
    return Exchange(head, Phases())


def begun(connection: Http1Connection, *headers: tuple[bytes, bytes], method: bytes = b"GET") -> Exchange:
    """An exchange whose whole request, without a body, has been sent."""
    exchange = asked(*headers, method=method)
    connection.begin(exchange, end=True)
    assert connection.data_to_send()
    return exchange


def receive_all(connection: Http1Connection, data: bytes, size: int) -> None:
    """Bytes come in reads of this size."""
    for at in range(0, len(data), size):
        connection.receive(data[at : at + size], 1)


def body(exchange: Exchange) -> bytes:
    return b"".join(piece for _, piece in exchange.chunks)


def refuses(connection: Http1Connection) -> bool:
    """Whether the connection takes no further request, and says that it has not sent it."""
    if connection.capacity:
        return False
    connection.data_to_send()
    with pytest.raises(TransportError) as caught:
        connection.begin(asked(), end=True)
    assert connection.data_to_send() == b""
    return caught.value.unprocessed


def broken(connection: Http1Connection, data: bytes) -> TransportError:
    """The error by which the connection takes bytes, or its end; the driver has done its duty after it."""
    with pytest.raises(TransportError) as caught:
        connection.receive(data, 1) if data else connection.receive_end(1)
    connection.lost(caught.value)
    assert refuses(connection)
    return caught.value


def test_connection_with_unrequested_bytes_takes_no_request() -> None:
    connection = opened()
    with pytest.raises(TransportError, match="no request has asked for"):
        connection.receive(EMPTY, 0)

    assert connection.capacity == 0


def test_connection_close_header_ends_capacity_at_once() -> None:
    connection = opened()
    exchange = begun(connection)

    connection.receive(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n", 1)
    assert (connection.capacity, connection.open_exchanges) == (0, 1)
    connection.receive(b"ab", 2)

    assert (exchange.answer_ended, body(exchange)) == (True, b"ab")


@pytest.mark.parametrize("sent", [b"four", b"sixsix"])
def test_body_of_another_length_than_announced_is_an_error(sent: bytes) -> None:
    connection, exchange = opened(), asked((b"Content-Length", b"5"))
    connection.begin(exchange, end=False)

    with pytest.raises(TransportError, match="declared Content-Length") as caught:
        connection.send(exchange, sent, end=True)

    assert (caught.value.name, exchange.request_ended) == ("LocalProtocolError", False)
    assert not connection.cancel(exchange)
    assert refuses(connection)


def test_missing_body_is_an_error_before_anything_is_sent() -> None:
    connection = opened()

    with pytest.raises(TransportError, match="Too little data"):
        connection.begin(asked((b"Content-Length", b"5")), end=True)

    assert (connection.data_to_send(), connection.open_exchanges, refuses(connection)) == (b"", 0, True)


def test_first_byte_time_is_that_of_the_final_head() -> None:
    connection, early = opened(), b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"
    exchange = begun(connection)
    for now_ns, read in enumerate([early, early[:9], early[9:] + EMPTY[:3], EMPTY[3:5], EMPTY[5:]], 1):
        connection.receive(read, now_ns)

    assert (exchange.phases.first_byte_ns, exchange.phases.answer_ended_ns) == (3, 5)
    assert exchange.phases.first_data_ns is None

    second = begun(connection)
    connection.receive(early, 6)
    assert (second.phases.first_byte_ns, second.answer_head) == (None, None)


def test_whole_chunks_do_not_pass_h11(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = opened()
    exchange = begun(connection)
    connection.receive(CHUNKED + b"2\r\nab\r\n", 1)
    connection.receive(b"2\r\nc", 2)
    passed: list[bytes] = []
    receive_data = h11.Connection.receive_data

    def watched(self: h11.Connection, data: bytes) -> None:
        passed.append(data)
        receive_data(self, data)

    monkeypatch.setattr(h11.Connection, "receive_data", watched)

    for read in (b"d\r\n2\r\nef\r\n", b"2\r\nhi\r\n", b"2\r\njk\r\n2\r\nlm\r\n", b"2", b"\r\nno\r\n", b"0\r\n\r\n"):
        connection.receive(read, 3)

    assert passed == [b"d\r\n", b"0\r\n\r\n"]
    assert (body(exchange), exchange.answer_ended) == (b"abcdefhijklmno", True)


def test_discarded_body_is_not_kept() -> None:
    connection = opened()
    exchange = begun(connection)
    exchange.discarding = True

    connection.receive(CHUNKED, 1)
    connection.receive(b"6\r\n[DONE]\r\n", 2)
    connection.receive(b"0\r\n\r\n", 3)

    assert (list(exchange.chunks), exchange.tail[-6:]) == ([], b"[DONE]")
    assert (exchange.answer_ended, connection.capacity) == (True, 1)


def test_response_before_request_end_is_delivered_at_once() -> None:
    connection, exchange = opened(), asked((b"Content-Length", b"5"))
    connection.begin(exchange, end=False)
    connection.send(exchange, b"he", end=False)
    connection.data_to_send()

    connection.receive(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno", 4)

    assert (exchange.answer_ended, body(exchange), connection.room(exchange)) == (True, b"no", 0)
    connection.send(exchange, b"llo", end=True)
    assert (connection.data_to_send(), connection.open_exchanges) == (b"", 0)
    assert not connection.cancel(exchange)
    assert refuses(connection)


@pytest.mark.parametrize(
    ("came", "message"),
    [
        (b"", "Server disconnected without sending a response."),
        (b"HTTP/1.1 200 OK\r\nX", "Server disconnected without sending a response."),
        (CHUNKED + b"2\r\na", "peer closed connection without sending complete message body (incomplete chunked read)"),
        (CHUNKED, "peer closed connection without sending complete message body (incomplete chunked read)"),
        (CHUNKED + b"2", "peer unexpectedly closed connection"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
            "peer closed connection without sending complete message body (received 2 bytes, expected 5)",
        ),
    ],
)
def test_answer_cut_off_by_the_end_of_the_connection(came: bytes, message: str) -> None:
    connection = opened()
    exchange = begun(connection)
    connection.receive(came, 1)

    error = broken(connection, b"")

    assert (error.name, error.message, error.unprocessed) == ("RemoteProtocolError", message, False)
    assert exchange.error is not None
    assert exchange.error is not error
    assert (exchange.error.message, exchange.answer_ended) == (message, False)


@pytest.mark.parametrize("unrequested", [b"HTTP/1.1 408 Late\r\nConnection: close\r\n\r\n", EMPTY, b"\n", EMPTY * 300])
@pytest.mark.parametrize(
    "end_of_answer",
    [
        EMPTY,
        EMPTY.replace(b"0\r", b"1\r") + b"a",
        CHUNKED + b"0\r\n\r\n",
        # As long as what h11 is given at once.
        CHUNKED + b"0\r\nX: %b\r\n\r\n" % (b"a" * (4096 - 10)),
    ],
    ids=["empty", "length", "chunked", "trailer"],
)
def test_unrequested_bytes_are_never_a_response(end_of_answer: bytes, unrequested: bytes) -> None:
    fresh, idle, same_read = opened(), opened(), opened()
    broken(fresh, unrequested)

    exchange = begun(idle)
    idle.receive(EMPTY, 1)
    broken(idle, unrequested)
    assert (exchange.error, exchange.answer_ended) == (None, True)

    exchange = begun(same_read)
    same_read.receive(end_of_answer + unrequested, 1)
    assert (exchange.error, exchange.answer_ended, refuses(same_read)) == (None, True, True)


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("before", "repeated"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-Header: more\r\n"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"a"),
        (b"HTTP/1.1 200 OK\r\nX: a", b"\r\n "),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (CHUNKED + b"1;", b"extension"),
        (CHUNKED + b"0\r\n", b"X-Trailer: more\r\n"),
        (CHUNKED, b"0"),
    ],
)
def test_endless_head_is_an_error_after_bounded_bytes(before: bytes, repeated: bytes) -> None:
    connection = opened()
    exchange = begun(connection)
    connection.receive(before, 1) if before else None
    read = repeated * (16_384 // len(repeated))

    with pytest.raises(TransportError) as caught:
        receive_all(connection, read * 7, len(read))

    connection.lost(caught.value)
    assert exchange.error is not None


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "came",
    [
        b"HTTP/1.1 200 OK\r\nX:" + BLANKS + b"\x00\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX:" + BLANKS + b"\r\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX:" + b"\r\n " * 30_000 + b"\x0b\r\n\r\n",
        b"HTTP/1.1 100 OK\r\n\r\nHTTP/1.1 200 OK\r\nX:" + BLANKS + b"\x0c\r\n\r\n",
        CHUNKED + b"1;" + BLANKS + b"\nx\r\n",
        CHUNKED + b"0\r\nX:" + BLANKS + b"\x00\r\n\r\n",
    ],
    ids=["NUL", "CR", "folds", "behind a 1xx", "extension", "trailer"],
)
@pytest.mark.parametrize("size", [100_000, 1_000])
def test_endless_blank_lines_are_an_error(came: bytes, size: int) -> None:
    connection = opened()
    begun(connection)

    with pytest.raises(TransportError):
        receive_all(connection, came, size)


@pytest.mark.parametrize(
    "came",
    [
        b"secret\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nsecret\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        CHUNKED + b"secret\r\n",
        CHUNKED + b"2\r\nabsecret\r\n",
    ],
)
def test_error_does_not_quote_what_came(came: bytes) -> None:
    connection = opened()
    begun(connection)

    error = broken(connection, came)

    assert error.name == "RemoteProtocolError"
    assert len(error.message) > 10
    assert not any(part in error.message for part in ("secret", "bytearray", "'"))
    assert error.__context__ is None


@pytest.mark.parametrize(("method", "status"), [(b"GET", 101), (b"CONNECT", 200)])
def test_upgraded_connection_is_not_reused(method: bytes, status: int) -> None:
    connection = opened()
    exchange = begun(connection, (b"Connection", b"Upgrade"), (b"Upgrade", b"websocket"), method=method)

    connection.receive(b"HTTP/1.1 %d Fine\r\nUpgrade: websocket\r\n\r\nother protocol" % status, 1)

    assert exchange.answer_head is not None
    assert (exchange.answer_head.status, body(exchange), exchange.answer_ended) == (status, b"", True)
    assert refuses(connection)


def test_cancel_closes_connection_unless_response_is_complete() -> None:
    connection = opened()
    over = begun(connection)
    connection.receive(EMPTY, 1)
    assert connection.cancel(over)

    open_now = begun(connection)
    assert connection.cancel(over)
    assert (open_now.error, connection.open_exchanges) == (None, 1)

    assert not connection.cancel(open_now)
    assert (open_now.error, connection.open_exchanges, refuses(connection)) == (None, 0, True)
    broken(connection, EMPTY)
    assert open_now.answer_head is None


def test_http1_sends_no_window_updates_pings_or_goaway() -> None:
    connection = opened()
    exchange = begun(connection)

    connection.took(exchange, 1_000)
    connection.goodbye()

    assert (connection.ping(1), connection.ping_sent_ns, connection.data_to_send()) == (False, None, b"")
