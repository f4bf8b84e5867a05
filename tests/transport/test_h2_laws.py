"""What holds on a connection over HTTP/2 whatever the peer sends, in whatever order, cut wherever."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes
from hyperframe.frame import GoAwayFrame
from hypothesis import given, settings, strategies as st

from fastlane.transport.protocols import limits as limits
from fastlane.transport.protocols.exchange import TransportError
from tests.transport.h2_peer import OK, Pair, WokenExchange, head_bytes, raw_frame

EXCHANGES = 4
PIECE = 3_000

# Many short examples: what there is to find needs an order of events, not a long one.
laws = settings(max_examples=60)

streams = st.integers(0, EXCHANGES - 1)
cuts = st.lists(st.integers(1, 20_000), max_size=12)


@contextmanager
def small_windows() -> Iterator[None]:
    """Windows so small that they close all the time."""
    with patch.multiple(limits, STREAM_WINDOW=5_000, CONNECTION_WINDOW=70_000):
        yield


def body_of(number: int, length: int) -> bytes:
    """Bytes that say whose they are, and where in it."""
    return random.Random(number).randbytes(length)


@laws
@given(
    steps=st.lists(st.tuples(streams, st.integers(1, PIECE), st.none() | st.integers(0, 255)), max_size=40),
    cuts=cuts,
)
def test_each_piece_reaches_its_own_exchange_wherever_the_stream_is_cut(
    steps: list[tuple[int, int, int | None]], cuts: list[int]
) -> None:
    pair = Pair()
    exchanges = [pair.begun() for _ in range(EXCHANGES)]
    sent = [b""] * EXCHANGES
    for exchange in exchanges:
        pair.server.send_headers(exchange.stream_id, OK)
    for number, length, padding in steps:
        data = body_of(number, len(sent[number]) + length)[len(sent[number]) :]
        sent[number] += data
        pair.server.send_data(exchanges[number].stream_id, data, pad_length=padding)
    for exchange in exchanges:
        pair.server.end_stream(exchange.stream_id)
    pair.to_client(cuts)

    assert [exchange.body for exchange in exchanges] == sent
    assert all(exchange.answer_ended and exchange.error is None for exchange in exchanges)
    assert all(len(exchange.phases.data_ns) == len(exchange.chunks) for exchange in exchanges)
    assert pair.client.open_exchanges == 0


@laws
@given(
    lengths=st.lists(st.integers(0, 30_000), min_size=1, max_size=EXCHANGES),
    order=st.randoms(use_true_random=False),
)
def test_answers_of_any_size_come_whole_through_windows_that_close_all_the_time(
    lengths: list[int], order: random.Random
) -> None:
    with small_windows():
        pair = Pair()
        bodies = [body_of(number, length) for number, length in enumerate(lengths)]
        exchanges = [pair.begun() for _ in bodies]
        left = dict(enumerate(bodies))
        got = [b""] * len(bodies)
        for exchange in exchanges:
            pair.server.send_headers(exchange.stream_id, OK)
        for _ in range(20_000):
            if not left and all(exchange.answer_ended for exchange in exchanges):
                break
            number = order.randrange(len(bodies))
            exchange = exchanges[number]
            if number in left:
                room = pair.server.local_flow_control_window(exchange.stream_id)
                assert room >= 0
                piece = left[number][: order.randint(0, min(room, 16_384))]
                left[number] = left[number][len(piece) :]
                pair.server.send_data(exchange.stream_id, piece, end_stream=not left[number])
                if not left[number]:
                    del left[number]
            if order.random() < 0.7:
                pair.to_client()
            if exchange.chunks and order.random() < 0.7:
                _, data = exchange.chunks.popleft()
                got[number] += data
                pair.client.took(exchange, len(data))
            if order.random() < 0.7:
                pair.to_server()
            pair.now_ns += 1_000_000_000
    assert [one + exchange.body for one, exchange in zip(got, exchanges, strict=True)] == bodies


@laws
@given(
    lengths=st.lists(st.integers(0, 40_000), min_size=1, max_size=EXCHANGES),
    windows=st.lists(st.integers(0, 40_000), min_size=1, max_size=5),
    frame_size=st.sampled_from([16_384, 20_000]),
    order=st.randoms(use_true_random=False),
)
def test_requests_of_any_size_go_whole_through_windows_that_the_server_moves(
    lengths: list[int], windows: list[int], frame_size: int, order: random.Random
) -> None:
    pair = Pair({SettingCodes.INITIAL_WINDOW_SIZE: windows[0], SettingCodes.MAX_FRAME_SIZE: frame_size})
    bodies = [body_of(number, length) for number, length in enumerate(lengths)]
    exchanges = [pair.uploading() for _ in bodies]
    left = list(bodies)
    received = {exchange.stream_id: b"" for exchange in exchanges}
    # The last window is one through which anything passes in the end.
    changes = [*windows[1:], 1_000]
    for _ in range(20_000):
        if all(exchange.request_ended for exchange in exchanges):
            break
        number = order.randrange(len(bodies))
        exchange = exchanges[number]
        room = pair.client.room(exchange)
        assert room >= 0
        piece = left[number][:room]
        if not exchange.request_ended and (piece or not left[number]):
            left[number] = left[number][len(piece) :]
            pair.client.send(exchange, piece, end=not left[number])
        for event in pair.to_server():
            data = getattr(event, "data", None)
            if data:
                received[event.stream_id] += data  # type: ignore[attr-defined]
                pair.server.increment_flow_control_window(len(data))
                if order.random() < 0.9:
                    try:
                        pair.server.increment_flow_control_window(len(data), event.stream_id)  # type: ignore[attr-defined]
                    except ProtocolError:
                        pass  # the server has the whole of it
        if changes and order.random() < 0.2:
            pair.server.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: changes.pop(0)})
        elif not changes and not room and not exchange.request_ended:
            pair.server.increment_flow_control_window(2_000, exchange.stream_id)
        pair.to_client()
        pair.now_ns += 1_000_000_000
    assert list(received.values()) == bodies


EVENTS = ("piece", "end", "cancel", "reset", "refuse", "goaway", "begin", "carry", "break", "ping")


@settings(max_examples=120)
@given(steps=st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 9), st.integers(1, 500)), max_size=60))
def test_each_exchange_comes_to_its_own_end_whatever_happens_to_the_others(steps: list[tuple[str, int, int]]) -> None:
    """The server is told of nothing before it says something itself: much of what it says is late."""
    pair = Pair()
    exchanges: list[WokenExchange] = []
    expected: dict[int, str] = {}
    bodies: dict[int, bytes] = {}
    going_away = 2**31
    for step, number, size in [("begin", 0, 1), ("begin", 0, 1), *steps]:
        if step == "begin":
            if pair.client.capacity:
                exchange = pair.begun()
                exchanges.append(exchange)
                bodies[exchange.stream_id] = b""
                pair.receive(head_bytes(exchange.stream_id))
            else:
                assert going_away < 2**31
            continue
        exchange = exchanges[number % len(exchanges)]
        stream_id = exchange.stream_id
        ended = stream_id in expected
        if step == "piece":
            pair.receive(raw_frame(0, 0, stream_id, bytes([number]) * size), [size // 2])
            if not ended:
                bodies[stream_id] += bytes([number]) * size
        elif step == "end":
            pair.receive(raw_frame(0, 1, stream_id))
            expected.setdefault(stream_id, "ended")
        elif step == "cancel":
            assert pair.client.cancel(exchange)
            expected.setdefault(stream_id, "cancelled")
        elif step == "reset":
            pair.receive(raw_frame(3, 0, stream_id, ErrorCodes.INTERNAL_ERROR.to_bytes(4)))
            expected.setdefault(stream_id, "failed")
        elif step == "refuse":
            pair.receive(raw_frame(3, 0, stream_id, ErrorCodes.REFUSED_STREAM.to_bytes(4)))
            expected.setdefault(stream_id, "unprocessed")
        elif step == "break":
            pair.receive(head_bytes(stream_id, [(b"x", b"trailer without an end")]))
            expected.setdefault(stream_id, "failed")
        elif step == "goaway" and size < 100:
            pair.receive(GoAwayFrame(0, stream_id).serialize())
            going_away = min(going_away, stream_id)
            for other in exchanges:
                if other.stream_id > going_away:
                    expected.setdefault(other.stream_id, "unprocessed")
        elif step == "ping":
            pair.receive(raw_frame(6, 0, 0, bytes(8)))
        elif step == "carry":
            pair.client.data_to_send()

    for exchange in exchanges:
        end = expected.get(exchange.stream_id, "open")
        assert exchange.answer_ended == (end == "ended")
        assert (exchange.error is not None) == (end in ("failed", "unprocessed"))
        assert exchange.error is None or exchange.error.unprocessed == (end == "unprocessed")
        assert exchange.body == bodies[exchange.stream_id]
    assert pair.client.open_exchanges == len(exchanges) - len(expected)
    pair.client.lost(TransportError("ReadError", "gone"))
    assert pair.client.open_exchanges == 0


frames = st.builds(
    raw_frame,
    st.integers(0, 11),
    st.integers(0, 255),
    st.sampled_from([0, 1, 2, 3, 5, 7, 2**31 - 1, 2**31 + 1]),
    st.binary(max_size=40),
)
plausible = st.sampled_from(
    [
        head_bytes(1),
        head_bytes(3, end=True),
        raw_frame(0, 0, 1, b"piece"),
        raw_frame(0, 1, 3, b"last piece"),
        raw_frame(4, 0, 0),
        raw_frame(6, 0, 0, bytes(8)),
        raw_frame(8, 0, 0, (1_000).to_bytes(4)),
        raw_frame(3, 0, 5, bytes(4)),
    ]
)


@settings(max_examples=300)
@given(data=st.lists(frames | plausible | st.binary(max_size=30), max_size=15).map(b"".join), cuts=cuts)
def test_garbage_raises_nothing_but_transport_errors(data: bytes, cuts: list[int]) -> None:
    pair = Pair()
    exchanges = [pair.begun(), pair.uploading(), pair.begun()]
    try:
        pair.receive(data, cuts)
    except TransportError:
        with pytest.raises(TransportError):
            pair.receive(b"more")
        assert pair.client.capacity == 0
    for exchange in exchanges:
        assert exchange.error is None or exchange.error.name == "RemoteProtocolError"
        assert 0 <= pair.client.room(exchange) < 2**31
        pair.client.took(exchange, 10)
        pair.client.send(exchange, b"", end=True)
        pair.client.cancel(exchange)
    assert len(pair.client.data_to_send()) < 50_000
    pair.client.lost(TransportError("ReadError", "gone"))
    assert pair.client.open_exchanges == 0


@settings(max_examples=100)
@given(block=st.binary(max_size=400), flags=st.sampled_from([4, 5, 12, 36, 44]))
def test_no_head_raises_anything_but_transport_errors(block: bytes, flags: int) -> None:
    pair = Pair()
    exchange, other = pair.begun(), pair.begun()
    try:
        pair.receive(raw_frame(1, flags, exchange.stream_id, block))
    except TransportError:
        return
    pair.receive(head_bytes(other.stream_id, end=True))
    assert other.answer_ended


@settings(max_examples=25)
@given(flood=st.lists(frames | plausible, min_size=1, max_size=4).map(b"".join), pause_ns=st.sampled_from([0, 10**7]))
def test_no_flood_has_us_queue_without_end(flood: bytes, pause_ns: int) -> None:
    pair = Pair()
    exchanges = [pair.begun(), pair.uploading(), pair.begun()]
    try:
        for _ in range(1_500):
            pair.now_ns += pause_ns
            pair.receive(flood)
            for exchange in exchanges:
                exchange.chunks.clear()
    except TransportError:
        pass
    assert len(pair.client.data_to_send()) < 1 << 20
