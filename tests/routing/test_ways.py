"""How far away an origin is, by what is known of the connection to it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings, strategies as st

from fastlane.plays.routing._ways import way_of
from fastlane.transport.pool.pool import UNKNOWN, ConnectionForecast
from fastlane.transport.protocols.upload import Path, upload_s

MS = 1_000_000
OPEN = ConnectionForecast(is_open=True, http_version="HTTP/2", round_trip_time_ns=40 * MS, congestion_window=10)

windows = st.none() | st.integers(0, 1 << 24)
outlooks = st.builds(
    ConnectionForecast,
    is_open=st.booleans(),
    http_version=st.sampled_from((None, "HTTP/2", "HTTP/1.1")),
    round_trip_time_ns=st.none() | st.integers(0, 2_000 * MS),
    congestion_window=st.none() | st.integers(1, 2_000),
    in_flight_segments=st.none() | st.integers(0, 500),
    segment_bytes=st.none() | st.integers(500, 65_483),
    receive_window_bytes=windows,
    peer_stream_window=windows,
    peer_connection_window=windows,
    idle_ns=st.none() | st.integers(0, 10**12),
    delivery_rate_bytes_per_s=st.none() | st.floats(0, 1e12),
)


def test_an_open_connection_takes_no_time_to_open() -> None:
    way = way_of(OPEN, 4_000, encoded_ratio=None)
    assert way.connect_s == 0.0
    assert way.round_trip_s == pytest.approx(0.04, rel=0.02)


def test_a_connection_that_is_yet_to_be_opened_takes_tcp_and_tls_a_round_trip_each() -> None:
    closed = ConnectionForecast(round_trip_time_ns=40 * MS)
    assert way_of(closed, 4_000, encoded_ratio=None).connect_s == pytest.approx(0.08, rel=0.02)
    assert way_of(closed, 4_000, encoded_ratio=None, tls=False).connect_s == pytest.approx(0.04, rel=0.02)


def test_an_origin_of_which_nothing_is_known_is_taken_for_a_usual_one() -> None:
    way = way_of(UNKNOWN, 4_000, encoded_ratio=None)
    assert way.round_trip_s == 0.05
    assert way.connect_s == pytest.approx(0.1)
    assert way.upload_s == pytest.approx(0.025, rel=0.04)


def test_a_body_that_leaves_at_once_takes_half_a_round_trip_and_a_long_one_more() -> None:
    assert way_of(OPEN, 4_000, encoded_ratio=None).upload_s == pytest.approx(0.02, rel=0.04)
    # 10 + 20 + 40 segments: three rounds.
    assert way_of(OPEN, 90_000, encoded_ratio=None).upload_s == pytest.approx(0.1, rel=0.04)


def test_what_is_rounded_stays_near_the_truth() -> None:
    outlook = OPEN._replace(round_trip_time_ns=37_123_456, delivery_rate_bytes_per_s=1_234_567.0)
    path = Path(round_trip_time_s=0.037123456, congestion_window=10, uplink_bytes_per_s=1_234_567)
    for size in (3_000, 33_333, 333_333):
        assert way_of(outlook, size, encoded_ratio=None).upload_s == pytest.approx(upload_s(size, path), rel=0.08)


def test_over_http_1_1_no_window_of_the_peers_holds_a_body_back() -> None:
    first, second = (
        OPEN._replace(
            http_version=version, congestion_window=2_000, receive_window_bytes=1 << 24, peer_stream_window=0xFFFF
        )
        for version in ("HTTP/1.1", "HTTP/2")
    )
    size = 1_000_000
    assert way_of(first, size, encoded_ratio=None).upload_s < way_of(second, size, encoded_ratio=None).upload_s


def test_a_body_that_is_encoded_arrives_sooner() -> None:
    plain, encoded = (way_of(OPEN, 90_000, encoded_ratio=ratio).upload_s for ratio in (None, 0.25))
    assert encoded < plain


@settings(max_examples=100, deadline=None)
@given(outlooks, st.integers(0, 3_000_000), st.integers(0, 3_000_000), st.none() | st.floats(0, 1.5), st.booleans())
def test_a_longer_body_never_arrives_sooner_and_an_encoded_one_never_later(
    outlook: ConnectionForecast, shorter: int, more: int, ratio: float | None, tls: bool
) -> None:
    less = way_of(outlook, shorter, encoded_ratio=ratio, tls=tls)
    greater = way_of(outlook, shorter + more, encoded_ratio=ratio, tls=tls)
    assert less.upload_s <= greater.upload_s
    assert less.upload_s <= way_of(outlook, shorter, encoded_ratio=None, tls=tls).upload_s
    assert all(math.isfinite(one) and one >= 0 for one in (less.connect_s, greater.upload_s, less.round_trip_s))
    assert (less.connect_s == 0.0) or not outlook.is_open


@settings(max_examples=50, deadline=None)
@given(outlooks, st.integers(0, 1_000_000), st.integers(0, 10**12))
def test_the_time_since_it_last_sent_says_nothing_that_its_window_does_not_say(
    outlook: ConnectionForecast, size: int, idle_ns: int
) -> None:
    again = way_of(outlook._replace(idle_ns=idle_ns), size, encoded_ratio=None)
    assert again == way_of(outlook, size, encoded_ratio=None)
