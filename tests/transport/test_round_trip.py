"""The round-trip time to the server's end of HTTP, which the record of an attempt has."""

from __future__ import annotations

import ssl
import sys
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from fastlane.emulator import Emulator, preset
from fastlane.emulator.wire import Wire
from fastlane.transport import PHASES, Opening, Phases, PoolSettings, Transport
from fastlane.transport.drivers.connection import ClientConnection, is_farther, opening_round_trip_ns
from tests.transport.fake_members import HERE
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


def connection(opened: Opening, sock: Any, *round_trips_ms: int) -> ClientConnection:
    made: Any = ClientConnection(HERE, PoolSettings())
    made.opening, made._socket = opened, sock
    made.http = SimpleNamespace(round_trips_ns=[each * MS for each in round_trips_ms])
    return made  # type: ignore[no-any-return]


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


def test_a_server_much_farther_than_the_kernel_says_has_a_proxy() -> None:
    assert is_farther(67 * MS, 50_000)
    assert not is_farther(67 * MS, 40 * MS)
    assert not is_farther(1 * MS, 50_000)


@linux
def test_where_the_kernel_sees_the_server_it_is_believed() -> None:
    assert connection(opening(41, 45), kernel(), 42)._round_trip_ns(NOW_NS) == 40 * MS


@linux
def test_the_kernel_is_asked_once_for_all_of_a_moment() -> None:
    sock = kernel()
    made = connection(opening(40, 40), sock)
    for number in range(50):
        made._round_trip_ns(NOW_NS + number * 100_000)
    assert sock.asked == 1
    made._round_trip_ns(NOW_NS + 6 * MS)
    assert sock.asked == 2


@linux
def test_behind_a_proxy_the_far_leg_counts() -> None:
    near = kernel(rtt=50, min_rtt=20)
    assert connection(opening(0, 140), near, 68, 67, 90)._round_trip_ns(NOW_NS) == 67 * MS


@linux
def test_a_late_acknowledgement_hides_no_proxy() -> None:
    # Linux acknowledges up to 40 ms late what nobody answers at once: the smoothed time says nothing then.
    late = kernel(rtt=39_000, min_rtt=30)
    assert connection(opening(0, 80), late, 40)._round_trip_ns(NOW_NS) == 40 * MS


def test_without_a_kernel_that_says_http_measures() -> None:
    assert connection(opening(40, 40), None, 38)._round_trip_ns(NOW_NS) == 38 * MS


@pytest.mark.parametrize("http2", [True, False])
def test_over_a_long_wire_the_round_trip_is_that_of_the_far_end(http2: bool) -> None:
    with Emulator(model=preset("instant"), wire=Wire(round_trip_time_s=0.04), http2=http2) as emulator:
        context = ssl.create_default_context(cafile=str(emulator.certificate_authority))
        with Transport(verify=context) as transport, httpx2.Client(transport=transport) as client:
            for _ in range(3):
                request = client.build_request("GET", f"{emulator.base_url}/models", extensions={PHASES: Phases()})
                client.send(request)
                measured = request.extensions[PHASES].round_trip_time_ns
                assert measured is not None
                assert measured >= 39 * MS
