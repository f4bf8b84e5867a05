"""The round-trip time to the server's end of HTTP, which the record of an attempt has."""

from __future__ import annotations

import ssl

import httpx2
import pytest

from fastlane.emulator import Emulator, preset
from fastlane.emulator.wire import Wire
from fastlane.transport import PHASES, Opening, Phases, Transport
from fastlane.transport.drivers.connection import opening_round_trip_ns

MS = 1_000_000
NOW_NS = 10_000_000 * MS


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


@pytest.mark.parametrize("http2", [True, False])
def test_round_trip_time_over_a_wire_is_end_to_end(http2: bool) -> None:
    with Emulator(model=preset("instant"), wire=Wire(round_trip_time_s=0.04), http2=http2) as emulator:
        context = ssl.create_default_context(cafile=str(emulator.certificate_authority))
        with Transport(verify=context) as transport, httpx2.Client(transport=transport) as client:
            for _ in range(3):
                request = client.build_request("GET", f"{emulator.base_url}/models", extensions={PHASES: Phases()})
                client.send(request)
                measured = request.extensions[PHASES].round_trip_time_ns
                assert measured is not None
                assert measured >= 39 * MS
