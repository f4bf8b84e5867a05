"""One HTTP/1.1 connection that gets what a broken or hostile server sends."""

from __future__ import annotations

import pytest

from fastlane.transport import Phases
from fastlane.transport.protocols.exchange import Exchange, RequestHead, TransportError
from fastlane.transport.protocols.h1 import Http1Connection

HOST = (b"Host", b"a.test")
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
BLANKS = b" " * 90_000


def opened() -> Http1Connection:
    connection: Http1Connection = Http1Connection()
    connection.start(0)
    assert (connection.http_version, connection.is_ready, connection.data_to_send()) == ("HTTP/1.1", True, b"")
    return connection


def asked() -> Exchange:
    head = RequestHead(method=b"GET", scheme=b"http", authority=b"a.test", target=b"/v1", headers=[HOST])
    return Exchange(head, Phases())


def begun(connection: Http1Connection) -> Exchange:
    """An exchange whose whole request, without a body, has been sent."""
    exchange = asked()
    connection.begin(exchange, end=True)
    assert connection.data_to_send()
    return exchange


def receive_all(connection: Http1Connection, data: bytes, size: int) -> None:
    """Bytes come in reads of this size."""
    for at in range(0, len(data), size):
        connection.receive(data[at : at + size], 1)


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
