"""The wire emulator against kernel TCP at the same distance: every case within 15 %, as medians of five.

On a busy machine a burst can come late; a case outside the bound is therefore measured once more, with more
repetitions. The bound itself is never loosened.
"""

from __future__ import annotations

import pytest

from tests.emulator.kernel_tcp import WIRES, compare
from tests.emulator.kernel_wire import missing

BOUND = 0.15

pytestmark = [pytest.mark.slow, pytest.mark.kernel]


def outside(medians: dict[str, tuple[float, float]]) -> dict[str, str]:
    return {
        case: f"kernel {kernel_ms:.1f} ms, proxy {proxy_ms:.1f} ms"
        for case, (kernel_ms, proxy_ms) in medians.items()
        if abs(proxy_ms / kernel_ms - 1) > BOUND
    }


@pytest.mark.parametrize("name", WIRES)
def test_the_proxy_is_as_slow_as_kernel_tcp(name: str) -> None:
    if reason := missing():
        pytest.skip(reason)

    failing = outside(compare(WIRES[name], 5))
    if failing:
        again = outside(compare(WIRES[name], 9))
        failing = {case: f"{first}; again: {again[case]}" for case, first in failing.items() if case in again}

    assert not failing
