"""The wire emulator and kernel TCP at the same distance: neither is faster than its round trips allow.

How close the two come is a measurement, which a busy machine spoils: `python -m tests.emulator.kernel_tcp` makes it.
"""

from __future__ import annotations

import pytest

from tests.emulator.kernel_tcp import CASES, IDLE, LARGE, WIRES, compare
from tests.emulator.kernel_wire import missing

# Of the handshake, of the windows that a request needs, and of the answer.
ROUND_TRIPS = dict(zip(CASES, (2, 1, 1, 4, 5, 1, 4), strict=True))

pytestmark = [pytest.mark.slow, pytest.mark.kernel, pytest.mark.timeout(600)]


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.slow
def test_no_request_is_faster_than_its_round_trips(name: str) -> None:
    if reason := missing():
        pytest.skip(reason)
    wire = WIRES[name]

    for case, (kernel_ms, proxy_ms) in compare(wire, 3).items():
        least_ms = ROUND_TRIPS[case] * wire.round_trip_time_s * 1e3
        if case == "hot 123 kB" and wire.rate_bits_per_s:
            least_ms += LARGE * 8e3 / wire.rate_bits_per_s
        assert proxy_ms >= least_ms, case
        if case != IDLE:  # how much of a window the kernel gives up then depends on how even its round trips were
            assert kernel_ms >= least_ms, case
