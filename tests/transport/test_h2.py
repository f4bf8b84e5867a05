"""A connection over HTTP/2, spoken to by h2 and, where h2 is too polite, by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from h2.errors import ErrorCodes
from h2.events import PingReceived
from h2.settings import SettingCodes
from hyperframe.frame import (
    GoAwayFrame,
    PingFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from fastlane.transport.protocols import limits as limits
from fastlane.transport.protocols.exchange import TransportError
from fastlane.transport.protocols.h2 import Http2Connection
from tests.transport.h2_peer import OK, Fields, Pair, frames_of, head_bytes, raw_frame, request_head

SECOND = 1_000_000_000


def reset_codes(pair: Pair) -> list[tuple[int, int]]:
    """Streams that we have reset in what is still to be sent, and why."""
    frames = frames_of(pair.client.data_to_send())
    return [(frame.stream_id, frame.error_code) for frame in frames if isinstance(frame, RstStreamFrame)]


def refused(pair: Pair, data: bytes) -> tuple[str, ErrorCodes]:
    """What the connection says of these bytes, and with which code it leaves."""
    with pytest.raises(TransportError) as raised:
        pair.receive(data)
    assert raised.value.name == "RemoteProtocolError"
    assert not raised.value.unprocessed
    assert pair.client.capacity == 0
    last = frames_of(pair.client.data_to_send())[-1]
    assert isinstance(last, GoAwayFrame)
    return raised.value.message, ErrorCodes(last.error_code)


# The beginning


def test_first_write_has_settings_and_window() -> None:
    client = Http2Connection()
    client.start(0)
    data = client.data_to_send()

    settings, window = frames_of(data)

    assert data.startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert isinstance(settings, SettingsFrame)
    assert settings.settings[SettingCodes.ENABLE_PUSH] == 0
    assert settings.settings[SettingCodes.INITIAL_WINDOW_SIZE] == 4 * 1024 * 1024
    assert settings.settings[SettingCodes.MAX_HEADER_LIST_SIZE] == 64 * 1024
    assert SettingCodes.ENABLE_CONNECT_PROTOCOL not in settings.settings
    assert isinstance(window, WindowUpdateFrame)
    assert (window.stream_id, window.window_increment + 65_535) == (0, 64 * 1024 * 1024)
    assert client.data_to_send() == b""


def test_request_need_not_wait_for_the_servers_settings() -> None:
    pair = Pair(shake_hands=False)
    exchange = pair.exchange()

    assert (pair.client.is_ready, pair.client.capacity) == (False, 100)
    pair.client.begin(exchange, end=True)
    pair.carry()

    assert pair.client.is_ready
    pair.answer(exchange, b"early bird")
    assert exchange.body == b"early bird"


# Requests


@pytest.mark.parametrize(
    "head",
    [
        request_head(headers=[(b"X-Split", b"a\r\nb: c")]),
        request_head(headers=[(b"X-Zero", b"a\0b")]),
        request_head(headers=[(b"X Space", b"a")]),
        request_head(headers=[(b":path", b"/other")]),
        request_head(headers=[(b"", b"a")]),
        request_head(target=b"/a b"),
        request_head(method=b"GET\r\n"),
    ],
)
def test_invalid_request_head_leaves_connection_intact(head: object) -> None:
    pair = Pair()

    with pytest.raises(TransportError) as raised:
        pair.client.begin(pair.exchange(head), end=True)  # type: ignore[arg-type]

    assert raised.value.name == "LocalProtocolError"
    assert pair.client.data_to_send() == b""
    assert pair.client.open_exchanges == 0
    pair.answer(pair.begun(), b"still here")


def test_head_larger_than_the_server_takes_is_not_sent() -> None:
    pair = Pair({SettingCodes.MAX_HEADER_LIST_SIZE: 1_000})

    with pytest.raises(TransportError, match=r"larger than the server takes \(1,000\)") as raised:
        pair.client.begin(pair.exchange(request_head(headers=[(b"x", b"v" * 1_000)])), end=True)

    assert raised.value.name == "LocalProtocolError"


def test_more_than_there_is_room_for_is_not_sent() -> None:
    pair = Pair()
    exchange = pair.uploading()

    with pytest.raises(TransportError) as raised:
        pair.client.send(exchange, b"x" * 65_536, end=True)

    assert raised.value.name == "LocalProtocolError"
    assert not exchange.request_ended


def test_exhausted_stream_ids_refuse_new_requests() -> None:
    pair = Pair()
    pair.client._next_stream_id = pair.client._h2.highest_outbound_stream_id = 2**31 - 1
    pair.client._h2.highest_outbound_stream_id -= 2
    pair.client.begin(pair.exchange(), end=True)

    assert pair.client.capacity == 0
    with pytest.raises(TransportError) as raised:
        pair.client.begin(pair.exchange(), end=True)
    assert raised.value.unprocessed


# Answers


MALFORMED: dict[str, Fields] = {
    "no status": [(b"content-type", b"text/plain")],
    "no field at all": [],
    "a status of words": [(b":status", b"2xx")],
    "a long status": [(b":status", b"2000")],
    "a status below 100": [(b":status", b"099")],
    "two of them": [(b":status", b"200"), (b":status", b"200")],
    "another pseudo-header": [(b":status", b"200"), (b":path", b"/")],
    "a status behind": [(b"a", b"b"), (b":status", b"200")],
    "upper case": [(b":status", b"200"), (b"X-Upper", b"1")],
    "a line end": [(b":status", b"200"), (b"x", b"hush\r\nhush")],
    "a length of words": [(b":status", b"200"), (b"content-length", b"hush")],
    "two lengths": [(b":status", b"200"), (b"content-length", b"1"), (b"content-length", b"2")],
    "an endless length": [(b":status", b"200"), (b"content-length", b"9" * 5_000)],
    "a protocol switch": [(b":status", b"101")],
    "a field of the connection": [(b":status", b"200"), (b"connection", b"close")],
}


@pytest.mark.parametrize("fields", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_head_fails_only_its_stream(fields: Fields) -> None:
    pair = Pair()
    broken, other = pair.begun(), pair.begun()

    pair.receive(head_bytes(broken.stream_id, fields))

    assert broken.error is not None
    assert (broken.error.name, broken.error.unprocessed) == ("RemoteProtocolError", False)
    assert "hush" not in broken.error.message
    assert reset_codes(pair) == [(broken.stream_id, ErrorCodes.PROTOCOL_ERROR)]
    pair.answer(other, b"fine")
    assert other.body == b"fine"


@pytest.mark.parametrize("sent", [b"", b"123", b"12345"], ids=["none", "shorter", "longer"])
def test_body_must_be_as_long_as_its_head_says(sent: bytes) -> None:
    pair = Pair()
    broken, other = pair.begun(), pair.begun()
    pair.receive(head_bytes(broken.stream_id, [*OK, (b"content-length", b"4")], end=not sent))
    if sent:
        pair.receive(raw_frame(0, 1, broken.stream_id, sent))

    assert broken.error is not None
    assert "content-length" in broken.error.message
    assert not broken.answer_ended
    assert reset_codes(pair) == [(broken.stream_id, ErrorCodes.PROTOCOL_ERROR)]
    pair.answer(other, b"1234", [*OK, (b"content-length", b"4")])
    assert other.answer_ended


def test_trailers_that_are_not_the_end_break_their_stream_only() -> None:
    pair = Pair()
    broken, other = pair.begun(), pair.begun()
    pair.receive(head_bytes(broken.stream_id) + head_bytes(broken.stream_id, [(b"a", b"b")]))

    assert broken.error is not None
    assert reset_codes(pair) == [(broken.stream_id, ErrorCodes.PROTOCOL_ERROR)]
    assert not other.is_over


@pytest.mark.parametrize("code", [ErrorCodes.INTERNAL_ERROR, ErrorCodes.NO_ERROR, 0xBEEF])
def test_stream_reset_error_names_its_code(code: int) -> None:
    pair = Pair()
    exchange, other = pair.begun(), pair.begun()
    pair.server.reset_stream(exchange.stream_id, code)
    pair.to_client()

    assert exchange.error is not None
    name = ErrorCodes(code).name if code < 0xBEEF else "code 0xbeef"
    assert (exchange.error.message, exchange.error.unprocessed) == (f"The server reset the stream: {name}", False)
    assert not other.is_over


# Cancelling, and what comes late


def test_frames_after_end_of_response_are_ignored() -> None:
    pair = Pair()
    exchange = pair.uploading()
    pair.answer(exchange, b"the end")
    pair.receive(raw_frame(0, 0, exchange.stream_id, b"more") + head_bytes(exchange.stream_id, end=True))

    assert (exchange.body, exchange.error) == (b"the end", None)
    pair.client.send(exchange, b"the rest", end=True)
    assert pair.client.open_exchanges == 0


# Going away


def going_away(last_stream_id: int, code: int = 0) -> bytes:
    return GoAwayFrame(0, last_stream_id, code, additional_data=b"hush").serialize()


# The connection as a whole


def test_ping_is_out_until_it_is_answered() -> None:
    pair = Pair()
    assert pair.client.ping(7)
    assert pair.client.ping_sent_ns == 7
    assert pair.client.ping(9)
    assert pair.client.ping_sent_ns == 7
    pair.receive(raw_frame(6, 1, 0, b"another8"[:8]))
    assert pair.client.ping_sent_ns == 7

    events = pair.to_server()
    assert [type(event) for event in events] == [PingReceived]
    pair.to_client()

    assert pair.client.ping_sent_ns is None


def test_ping_reply_measures_round_trip_and_keeps_the_last() -> None:
    pair = Pair()
    for number in range(1, 2 * limits.ROUND_TRIPS):
        sent_ns = pair.now_ns
        pair.client.ping(sent_ns)
        pair.receive(raw_frame(6, 1, 0, b"another8"))
        pair.to_server()
        pair.now_ns = sent_ns + number * 1_000_000
        pair.to_client()
    kept = [each // 1_000_000 for each in pair.client.round_trips_ns]
    assert kept == list(range(limits.ROUND_TRIPS, 2 * limits.ROUND_TRIPS))


def test_servers_ping_is_answered() -> None:
    pair = Pair()
    pair.receive(raw_frame(6, 0, 0, b"12345678"))

    (answer,) = frames_of(pair.client.data_to_send())

    assert isinstance(answer, PingFrame)
    assert ("ACK" in answer.flags, answer.opaque_data) == (True, b"12345678")


def test_goaway_is_sent_once_and_open_streams_finish() -> None:
    pair = Pair()
    exchange = pair.begun()
    pair.client.goodbye()
    pair.client.goodbye()

    (goaway,) = frames_of(pair.client.data_to_send())

    assert isinstance(goaway, GoAwayFrame)
    assert goaway.error_code == ErrorCodes.NO_ERROR
    assert pair.client.capacity == 0
    pair.answer(exchange, b"the last")
    assert exchange.answer_ended


def test_lost_connection_fails_each_exchange_separately() -> None:
    pair = Pair()
    first, second, over = pair.begun(), pair.uploading(), pair.begun()
    pair.answer(over, b"done")
    error = TransportError("ReadError", "reset by peer")

    pair.client.lost(error)

    assert first.error is not None
    assert second.error is not None
    assert first.error is not second.error
    assert (first.error.name, first.error.message) == ("ReadError", "reset by peer")
    assert over.error is None
    assert (pair.client.open_exchanges, pair.client.capacity, pair.client.room(second)) == (0, 0, 0)
    pair.client.cancel(first)
    pair.client.took(first, 5)
    pair.client.send(second, b"x", end=True)
    pair.client.goodbye()
    assert not pair.client.ping(5)
    assert pair.client.data_to_send() == b""
    with pytest.raises(TransportError) as raised:
        pair.client.begin(pair.exchange(), end=True)
    assert raised.value.unprocessed
    with pytest.raises(TransportError, match="reset by peer"):
        pair.client.receive(b"", 5)


# Windows


def test_discarded_data_is_credited_on_arrival() -> None:
    pair = Pair()
    exchange = pair.begun()
    exchange.discarding = True
    pair.server.send_headers(exchange.stream_id, OK)
    for _ in range(2 * limits.STREAM_WINDOW // 16_384):
        pair.server.send_data(exchange.stream_id, bytes(16_384))
        pair.to_client()
        pair.to_server()

    assert not exchange.chunks


@pytest.mark.parametrize("of", ["stream", "connection"])
def test_peer_cannot_open_our_window_too_far(of: str) -> None:
    pair = Pair()
    exchange, other = pair.uploading(), pair.uploading()
    data = raw_frame(8, 0, exchange.stream_id if of == "stream" else 0, (2**31 - 1).to_bytes(4))

    if of == "stream":
        pair.receive(data)
        assert exchange.error is not None
        assert not other.is_over
        assert pair.client.open_exchanges == 1
        assert reset_codes(pair) == [(exchange.stream_id, ErrorCodes.FLOW_CONTROL_ERROR)]
    else:
        assert refused(pair, data)[1] is ErrorCodes.FLOW_CONTROL_ERROR


# A hostile peer


FLOODS: dict[str, Callable[[int], Iterator[bytes]]] = {
    "PING": lambda _: iter([raw_frame(6, 0, 0, b"12345678")]),
    "SETTINGS": lambda _: iter([raw_frame(4, 0, 0)]),
    "PRIORITY": lambda stream: iter([raw_frame(2, 0, stream, bytes(5))]),
    "empty DATA": lambda stream: iter([raw_frame(0, 0, stream)]),
    "RST_STREAM": lambda _: iter([raw_frame(3, 0, 1, bytes(4))]),
    "unknown": lambda stream: iter([raw_frame(0x77, 0, stream, b"x" * 100)]),
    "informational HEADERS": lambda stream: iter([head_bytes(stream, [(b":status", b"103")])]),
    "late HEADERS": lambda _: iter([head_bytes(1)]),
    "WINDOW_UPDATE": lambda _: iter([raw_frame(8, 0, 0, (1).to_bytes(4))]),
    "GOAWAY": lambda _: iter([going_away(2**31 - 1)]),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_flood_ends_the_connection(kind: str) -> None:
    pair = Pair()
    pair.answer(pair.begun())
    exchange = pair.begun()
    data = b"".join(FLOODS[kind](exchange.stream_id))
    if kind == "empty DATA":
        pair.receive(head_bytes(exchange.stream_id))
    pair.receive(data * 9_000)

    message, code = refused(pair, data * 2_000)

    assert message == f"The server flooded the connection with {kind} frames"
    assert code is ErrorCodes.ENHANCE_YOUR_CALM


@pytest.mark.parametrize("kind", [kind for kind in FLOODS if kind != "GOAWAY"])
def test_many_frames_between_requests_are_no_flood(kind: str) -> None:
    pair = Pair()
    pair.answer(pair.begun())
    exchange = pair.begun()
    if kind == "empty DATA":
        pair.receive(head_bytes(exchange.stream_id))
    data = b"".join(FLOODS[kind](exchange.stream_id))
    for _ in range(3):
        pair.receive(data * 9_000)
        pair.begun()

    assert not exchange.is_over


def test_endless_head_ends_the_connection() -> None:
    pair = Pair()
    exchange = pair.begun()
    pair.receive(raw_frame(1, 0, exchange.stream_id, b"x"))

    message, code = refused(pair, raw_frame(9, 0, exchange.stream_id, b"x" * 16_384) * 6)

    assert message == "The server sent a head larger than we allow"
    assert code is ErrorCodes.ENHANCE_YOUR_CALM


def test_empty_continuation_frames_are_a_flood() -> None:
    pair = Pair()
    exchange = pair.begun()
    pair.receive(raw_frame(1, 0, exchange.stream_id, b"x"))

    message, _ = refused(pair, raw_frame(9, 0, exchange.stream_id) * 10_100)

    assert message == "The server flooded the connection with CONTINUATION frames"


def test_head_that_unpacks_to_a_bomb_ends_the_connection() -> None:
    pair = Pair()
    exchange = pair.begun()
    # One field of 4,000 bytes into the table, and then a byte for each time that it is named.
    block = b"\x88\x40\x01a\x7f\xa1\x1e" + b"v" * 4_000 + b"\xbe" * 10_000

    message, code = refused(pair, raw_frame(1, 4, exchange.stream_id, block))

    assert message == "The server sent a head larger than we allow"
    assert code is ErrorCodes.ENHANCE_YOUR_CALM


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x00\x40\x01" + raw_frame(0, 0, 1)[3:], ErrorCodes.FRAME_SIZE_ERROR),
        (raw_frame(0, 8, 1, b"\x05pad"), ErrorCodes.PROTOCOL_ERROR),
        (raw_frame(0, 8, 1, b"\x04pad"), ErrorCodes.PROTOCOL_ERROR),
        (raw_frame(0, 8, 1), ErrorCodes.PROTOCOL_ERROR),
        (raw_frame(1, 0x2C, 1, b"\x00abc"), ErrorCodes.PROTOCOL_ERROR),
        (raw_frame(1, 4, 1, b"\xff\xff\xff\xff\xff\xff"), ErrorCodes.COMPRESSION_ERROR),
        (raw_frame(1, 0, 1, b"\x88") + raw_frame(6, 0, 0, bytes(8)), ErrorCodes.PROTOCOL_ERROR),
        (raw_frame(1, 0, 1, b"\x88") + raw_frame(9, 4, 3), ErrorCodes.PROTOCOL_ERROR),
        (raw_frame(9, 4, 1, b"\x88"), ErrorCodes.PROTOCOL_ERROR),
        (PushPromiseFrame(1, 2, b"\x88").serialize(), ErrorCodes.PROTOCOL_ERROR),
        (raw_frame(3, 0, 1, bytes(5)), ErrorCodes.FRAME_SIZE_ERROR),
        (raw_frame(7, 0, 1, bytes(8)), ErrorCodes.PROTOCOL_ERROR),
        (raw_frame(7, 0, 0, bytes(7)), ErrorCodes.PROTOCOL_ERROR),
        (raw_frame(4, 0, 0, bytes(5)), ErrorCodes.FRAME_SIZE_ERROR),
        (raw_frame(4, 0, 1), ErrorCodes.PROTOCOL_ERROR),
        (raw_frame(4, 0, 0, b"\x00\x05" + bytes(4)), ErrorCodes.PROTOCOL_ERROR),
        (raw_frame(4, 0, 0, b"\x00\x04" + b"\xff" * 4), ErrorCodes.FLOW_CONTROL_ERROR),
        (raw_frame(6, 0, 0, bytes(7)), ErrorCodes.FRAME_SIZE_ERROR),
        (raw_frame(8, 0, 0, bytes(4)), ErrorCodes.PROTOCOL_ERROR),
        (raw_frame(8, 0, 1, bytes(4)), ErrorCodes.PROTOCOL_ERROR),
    ],
)
def test_protocol_violation_closes_the_connection(data: bytes, code: ErrorCodes) -> None:
    pair = Pair()
    pair.begun()

    assert refused(pair, data)[1] is code
    with pytest.raises(TransportError):
        pair.receive(raw_frame(6, 0, 0, bytes(8)))
