"""What is known of the connection that a request would be sent on, before it is sent."""

from __future__ import annotations

import ssl
import sys
from typing import Any

import httpx2
import pytest

from fastlane.emulator import Emulator, preset
from fastlane.emulator.wire import Wire
from fastlane.transport import AsyncTransport, ConnectionForecast, Opening, Transport
from fastlane.transport.drivers.connection import ConnectionMeter
from fastlane.transport.drivers.transports import shared_transport
from fastlane.transport.pool.pool import UNKNOWN, is_farther, opening_round_trip_ns
from fastlane.transport.pool.settings import PoolSettings
from tests.transport.faces import both_faces
from tests.transport.fake_members import HERE, THERE, Desk
from tests.transport.peer import Peer
from tests.transport.resources import comes_true
from tests.transport.told_kernel import kernel

MS = 1_000_000
NOW_NS = 10_000_000 * MS
linux = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for TCP_INFO")


def opening(connect_ms: float, tls_ms: float | None = None, version: str | None = "TLSv1.3") -> Opening:
    connected_ns = NOW_NS + round(connect_ms * MS)
    return Opening(
        dns_started_ns=NOW_NS - 500 * MS,
        dns_ended_ns=NOW_NS,
        connect_started_ns=NOW_NS,
        connect_ended_ns=connected_ns,
        tls_started_ns=None if tls_ms is None else connected_ns,
        tls_ended_ns=None if tls_ms is None else connected_ns + round(tls_ms * MS),
        local_address="192.0.2.1:40000",
        peer_address="192.0.2.2:443",
        alpn=None if tls_ms is None else "h2",
        tls_version=None if tls_ms is None else version,
    )


class Spoken:
    """As much of a protocol as an outlook asks for."""

    http_version = "HTTP/2"
    peer_windows = (65_535, 1_048_576)


def gauge_of(opened: Opening, *round_trips_ms: int) -> ConnectionMeter:
    gauge = ConnectionMeter()
    gauge.opened(opened, [each * MS for each in round_trips_ms], NOW_NS)
    return gauge


def look(
    gauge: ConnectionMeter, sock: Any, now_ns: int = NOW_NS + 1_000 * MS, sent_bytes: int = 0
) -> ConnectionForecast:
    return gauge.outlook(Spoken(), sock, now_ns, sent_bytes)


# The round trip


@pytest.mark.parametrize(("opened", "expected_ms"), [
    (opening(40), 40),
    (opening(40, 40), 40),
    (opening(40, 80, "TLSv1.2"), 40),
    # A proxy takes the connection at once, and holds back what follows.
    (opening(0, 80), 40),
    (opening(0, 120, "TLSv1.2"), 40),
])  # fmt: skip
def test_opening_a_connection_gives_the_first_estimate(opened: Opening, expected_ms: int) -> None:
    assert opening_round_trip_ns(opened) == expected_ms * MS


def test_somebody_stands_in_between_where_the_server_is_much_farther_than_the_kernel_says() -> None:
    assert is_farther(67 * MS, 50_000)
    assert not is_farther(67 * MS, 40 * MS)
    assert not is_farther(1 * MS, 50_000)


# What the kernel tells


@linux
def test_where_the_kernel_sees_the_server_it_is_believed() -> None:
    assert look(gauge_of(opening(41, 45), 42), kernel()) == ConnectionForecast(
        is_open=True,
        http_version="HTTP/2",
        round_trip_time_ns=40 * MS,
        congestion_window=25,
        in_flight_segments=3,
        segment_bytes=1_448,
        receive_window_bytes=65_536,
        peer_stream_window=65_535,
        peer_connection_window=1_048_576,
    )


@linux
@pytest.mark.parametrize(
    ("idle_ms", "in_flight", "left"), [(239, 0, 160), (241, 0, 80), (481, 0, 40), (60_000, 0, 10), (60_000, 1, 160)]
)
def test_the_kernel_will_have_made_the_window_smaller_when_it_sends_after_silence(
    idle_ms: int, in_flight: int, left: int
) -> None:
    gauge = gauge_of(opening(40, 40))
    later = kernel(snd_cwnd=160, unacked=in_flight, last_data_sent=idle_ms)
    assert look(gauge, later, NOW_NS + 90_000 * MS).congestion_window == left


@linux
def test_the_kernel_is_asked_once_for_all_of_a_moment() -> None:
    gauge, sock = gauge_of(opening(40, 40)), kernel()
    for number in range(50):
        look(gauge, sock, NOW_NS + number * 100_000)
        gauge.begin(sock, NOW_NS + number * 100_000, 0)
    assert sock.asked == 1
    look(gauge, sock, NOW_NS + 6 * MS)
    assert sock.asked == 2


# What is worked out


@linux
def test_behind_a_proxy_the_far_leg_counts() -> None:
    gauge = gauge_of(opening(0, 140), 68, 67, 90)
    near = kernel(rtt=50, min_rtt=20, snd_mss=32_768, unacked=0, snd_cwnd=400, last_data_sent=1_000)
    assert look(gauge, near, NOW_NS + 1_000 * MS) == ConnectionForecast(
        is_open=True,
        http_version="HTTP/2",
        round_trip_time_ns=67 * MS,
        congestion_window=10,
        in_flight_segments=0,
        segment_bytes=1_448,
        receive_window_bytes=65_536,
        peer_stream_window=65_535,
        peer_connection_window=1_048_576,
    )


@linux
def test_a_late_acknowledgement_hides_no_proxy() -> None:
    # Linux acknowledges up to 40 ms late what nobody answers at once: the smoothed time says nothing then.
    gauge = gauge_of(opening(0, 80), 40)
    assert look(gauge, kernel(rtt=39_000, min_rtt=30)).round_trip_time_ns == 40 * MS
    assert look(gauge, kernel(rtt=39_000, min_rtt=30)).segment_bytes == 1_448


@pytest.mark.parametrize("behind_a_proxy", [pytest.param(True, marks=linux), False])
def test_what_was_sent_opens_the_far_window_and_silence_closes_it(behind_a_proxy: bool) -> None:
    def sock(idle_ms: int) -> Any:
        # Where the kernel does not say anything, as on other systems, it is the same.
        return kernel(rtt=50, min_rtt=20, last_data_sent=idle_ms) if behind_a_proxy else kernel(0)

    gauge = gauge_of(opening(40, 40), 40)
    start_ns = NOW_NS + 100 * MS
    gauge.begin(sock(100), start_ns, 100)
    assert gauge.congestion_window == 10
    sent_bytes = 100 + 60_000
    under_way = look(gauge, sock(20), start_ns + 20 * MS, sent_bytes)
    assert under_way.in_flight_segments
    later = look(gauge, sock(130), start_ns + 130 * MS, sent_bytes)
    assert (later.congestion_window, later.in_flight_segments) == (40, 0)
    gauge.begin(sock(130), start_ns + 130 * MS, sent_bytes)
    assert gauge.congestion_window == 40
    much_later = look(gauge, sock(5_000), start_ns + 5_130 * MS, sent_bytes)
    assert much_later.congestion_window == 10


@linux
def test_the_first_request_on_a_connection_finds_the_window_that_tcp_begins_with() -> None:
    # So soon after the opening that nothing more than that is looked at, and so slow an opening that it seems far.
    gauge = gauge_of(opening(40, 40))

    gauge.begin(kernel(rtt=50, min_rtt=20), NOW_NS + 1 * MS, 100)

    assert gauge.congestion_window == 10


# Which connection


def test_an_origin_that_nobody_has_asked_for_is_unknown_and_stays_so() -> None:
    desk = Desk()
    assert desk.pool.outlook(HERE, desk.now_ns) is UNKNOWN
    assert not desk.pool._origins


def test_a_place_that_was_left_quietly_counts() -> None:
    desk = Desk(http2=False)
    call = desk.ask()
    desk.opens_http1()
    assert not desk.pool.outlook(HERE, desk.now_ns).is_open
    desk.ends_quietly(call)
    assert desk.pool.outlook(HERE, desk.now_ns).is_open
    assert not desk.pool.outlook(THERE, desk.now_ns).is_open


def test_a_place_that_was_left_quietly_is_not_promised_where_others_wait() -> None:
    desk = Desk(max_connections=1, http2=False)
    call = desk.ask(HERE)
    desk.opens_http1()
    desk.ask(THERE)
    desk.ends_quietly(call)
    assert not desk.pool.outlook(HERE, desk.now_ns).is_open
    assert desk.ask(HERE).waits
    assert [member.origin for member in desk.opening] == [THERE]


# The transports


async def look_on_the_loop(client: Any, transport: Any, url: str) -> ConnectionForecast:
    return look_at(client, transport, url)


def look_at(client: Any, transport: Any, url: str) -> ConnectionForecast:
    outlook: ConnectionForecast = transport.outlook(client.build_request("POST", url))
    return outlook


def outlook_of(face: Any, url: str = "/") -> ConnectionForecast:
    look = look_on_the_loop if face.asynchronous else look_at
    found: ConnectionForecast = face.use(lambda client: look(client, face.transport, url))
    return found


@both_faces
def test_an_outlook_opens_nothing_and_knows_what_is_open(make_face: Any) -> None:
    with Peer() as peer, make_face(peer.url) as face:
        for url in ("/", "ftp://nowhere.test/", "https://nobody.test/"):
            assert outlook_of(face, url) == UNKNOWN
        assert not peer.connections
        face.get()
        outlook = outlook_of(face)

    assert outlook.is_open
    assert outlook.http_version == "HTTP/2"
    assert outlook.round_trip_time_ns is not None
    assert outlook.round_trip_time_ns > 0
    assert outlook.congestion_window is not None
    assert outlook.congestion_window >= 1
    assert outlook.peer_stream_window == 65_535
    assert outlook.peer_connection_window is not None
    assert len(peer.connections) == 1


@both_faces
def test_the_round_trip_of_the_last_connection_is_remembered(make_face: Any) -> None:
    with Peer() as peer, make_face(peer.url) as face:
        face.get()
        open_one = outlook_of(face)
        peer.connections[0].fin()
        assert comes_true(lambda: not outlook_of(face).is_open)
        remembered = outlook_of(face)

    assert open_one.is_open
    assert remembered.round_trip_time_ns is not None
    assert remembered == ConnectionForecast(round_trip_time_ns=remembered.round_trip_time_ns)


def test_an_asynchronous_transport_knows_nothing_outside_of_its_loop() -> None:
    request = httpx2.Request("POST", "https://llm.test/")
    assert AsyncTransport(verify=False).outlook(request) is UNKNOWN
    shared = shared_transport(PoolSettings(verify=False), asynchronous=True)
    assert shared.outlook(request) is UNKNOWN


# One real wire: a proxy, so that the kernel sees another connection than the server.
@pytest.mark.parametrize("http2", [True, False])
def test_over_a_long_wire_the_outlook_is_that_of_the_far_end(http2: bool) -> None:
    with Emulator(model=preset("instant"), wire=Wire(round_trip_time_s=0.04), http2=http2) as emulator:
        context = ssl.create_default_context(cafile=str(emulator.certificate_authority))
        with Transport(verify=context) as transport, httpx2.Client(transport=transport) as client:
            request = client.build_request("GET", f"{emulator.base_url}/models", headers={"authorization": "Bearer x"})
            transport.warm(request)
            warm = transport.outlook(request)
            for _ in range(3):
                client.send(request)
            used = transport.outlook(request)

    for outlook in (warm, used):
        assert outlook.is_open
        assert outlook.http_version == ("HTTP/2" if http2 else "HTTP/1.1")
        assert outlook.round_trip_time_ns is not None
        assert outlook.round_trip_time_ns >= 39 * MS
        assert outlook.congestion_window == 10
        assert outlook.segment_bytes == 1_448
