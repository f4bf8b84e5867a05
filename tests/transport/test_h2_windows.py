"""How much we may send: the peer's windows, whatever it does to them."""

from __future__ import annotations

from typing import Any

import pytest
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from hyperframe.frame import DataFrame, GoAwayFrame, RstStreamFrame, SettingsFrame, WindowUpdateFrame

from fastlane.transport.protocols.exchange import TransportError
from tests.transport.h2_peer import Pair, WokenExchange, frames_of, raw_frame

LARGEST = 2**31 - 1
FIRST = 65_535


def opened(stream_id: int, increment: int) -> bytes:
    return WindowUpdateFrame(stream_id, window_increment=increment).serialize()


def initial(size: int) -> bytes:
    return SettingsFrame(0, settings={SettingCodes.INITIAL_WINDOW_SIZE: size}).serialize()


def uploading(pair: Pair) -> WokenExchange:
    exchange = pair.exchange()
    pair.client.begin(exchange, end=False)
    pair.client.data_to_send()
    return exchange


def said(pair: Pair, kind: Any) -> list[int]:
    return [int(frame.error_code) for frame in frames_of(pair.client.data_to_send()) if isinstance(frame, kind)]


def test_a_window_may_be_opened_to_the_last_byte_and_no_further_on_the_connection() -> None:
    pair = Pair()
    exchange = uploading(pair)
    pair.receive(opened(exchange.stream_id, LARGEST - FIRST))
    pair.receive(opened(0, LARGEST - FIRST))
    assert pair.client.room(exchange) == LARGEST

    with pytest.raises(TransportError):
        pair.receive(opened(0, 1))
    assert said(pair, GoAwayFrame) == [ErrorCodes.FLOW_CONTROL_ERROR]


def test_a_stream_whose_window_is_opened_too_far_ends_and_no_other() -> None:
    pair = Pair()
    one, other = uploading(pair), uploading(pair)
    pair.receive(opened(one.stream_id, LARGEST - FIRST))
    pair.receive(opened(one.stream_id, 1))

    assert said(pair, RstStreamFrame) == [ErrorCodes.FLOW_CONTROL_ERROR]
    assert one.error is not None
    assert other.error is None
    assert pair.client.room(other) == FIRST
    assert pair.client.room(one) == 0


@pytest.mark.parametrize("on", ["the connection", "a stream"])
def test_a_window_that_is_opened_by_nothing_is_an_error(on: str) -> None:
    pair = Pair()
    exchange = uploading(pair)
    with pytest.raises(TransportError):
        pair.receive(raw_frame(8, 0, 0 if on == "the connection" else exchange.stream_id, bytes(4)))
    assert said(pair, GoAwayFrame) == [ErrorCodes.PROTOCOL_ERROR]


def test_settings_that_take_back_what_is_in_flight_are_waited_out() -> None:
    pair = Pair()
    exchange = uploading(pair)
    pair.client.send(exchange, b"x" * 30_000, end=False)
    pair.receive(initial(10_000))
    assert pair.client.room(exchange) == 0

    pair.receive(opened(exchange.stream_id, 20_000))
    assert pair.client.room(exchange) == 0
    pair.receive(opened(exchange.stream_id, 7))
    assert pair.client.room(exchange) == 7


def test_settings_that_give_more_wake_every_stream_that_waits() -> None:
    pair = Pair()
    pair.receive(initial(10))
    waiting = [uploading(pair) for _ in range(3)]
    for exchange in waiting:
        pair.client.send(exchange, b"x" * 10, end=False)
    before = [exchange.woken for exchange in waiting]
    pair.receive(initial(1_000))

    assert [pair.client.room(exchange) for exchange in waiting] == [990] * 3
    assert all(exchange.woken > count for exchange, count in zip(waiting, before, strict=True))
    pair.client.send(waiting[0], b"y" * 990, end=True)
    assert (
        sum(len(frame.data) for frame in frames_of(pair.client.data_to_send()) if isinstance(frame, DataFrame)) == 1_020
    )


def test_settings_that_open_a_streams_window_too_far_end_the_connection() -> None:
    pair = Pair()
    exchange = uploading(pair)
    pair.receive(opened(exchange.stream_id, LARGEST - FIRST))
    with pytest.raises(TransportError):
        pair.receive(initial(FIRST + 1))
    assert said(pair, GoAwayFrame) == [ErrorCodes.FLOW_CONTROL_ERROR]


def test_a_window_of_a_stream_that_is_over_may_still_be_opened() -> None:
    pair = Pair()
    exchange = pair.begun(b"body")
    pair.answer(exchange, b"ok")
    pair.receive(opened(exchange.stream_id, LARGEST))
    assert pair.begun(b"more").error is None
