from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

from fastlane.emulator.wire import Delivery, Flow, Wire
from fastlane.errors import ConfigurationError

# The laws are about virtual time: a busy machine is no failure, and no example is kept on disk.
law = settings(deadline=None, database=None)

MS = 1_000_000
RTT = 40 * MS
# HTTP/1 sends its header in a segment of its own.
HEADER = 300

wires = st.builds(
    Wire,
    round_trip_time_s=st.sampled_from([0.0, 0.001, 0.04, 0.1]),
    rate_bits_per_s=st.sampled_from([None, 1e6, 20e6, 1e9]),
    slow_start=st.booleans(),
)
# (nanoseconds since the write before, bytes)
writes = st.lists(
    st.tuples(
        st.sampled_from([0, 1, MS, 3 * MS, 39 * MS, RTT, 300 * MS, 5_000 * MS]),
        st.one_of(st.integers(0, 20), st.integers(0, 20_000)),
    ),
    max_size=12,
)


def send(flow: Flow, written: list[tuple[int, int]]) -> list[tuple[int, list[Delivery]]]:
    now_ns, answers = 0, []
    for gap_ns, size in written:
        now_ns += gap_ns
        answers.append((now_ns, flow.send(now_ns, size)))
    return answers


def arrives_ns(flow: Flow, now_ns: int, size: int) -> int:
    return flow.send(now_ns, size)[-1].arrives_ns


def upload_rounds(body: int) -> int:
    """Round trips until the answer to a cold HTTP/1 request with such a body."""
    flow = Flow(Wire(), 0)
    flow.send(0, HEADER)
    return (arrives_ns(flow, 0, body) + RTT // 2) // RTT


def heated(wire: Wire) -> tuple[Flow, int]:
    """A flow whose windows are open, and the time at which its last byte was acknowledged."""
    flow, now_ns = Flow(wire, 0), 0
    for _ in range(6):
        now_ns = arrives_ns(flow, now_ns, 123_400) + RTT // 2
    return flow, now_ns


@law
@given(wires, writes)
def test_arrivals_keep_their_order_and_lose_no_byte(wire: Wire, written: list[tuple[int, int]]) -> None:
    flow = Flow(wire, 0)
    answers = send(flow, written)
    end_ns = flow.finish(sum(gap_ns for gap_ns, _ in written))

    times = [delivery.arrives_ns for _, deliveries in answers for delivery in deliveries]
    assert [*times, end_ns] == sorted([*times, end_ns])
    assert [sum(delivery.size for delivery in deliveries) for _, deliveries in answers] == [n for _, n in written]
    assert all(delivery.size > 0 for _, deliveries in answers for delivery in deliveries)


@law
@given(wires, writes, st.sampled_from([0, RTT]))
def test_nothing_arrives_sooner_than_half_a_round_trip(
    wire: Wire, written: list[tuple[int, int]], opens_ns: int
) -> None:
    one_way_ns = wire.round_trip_time_s * 1e9 / 2

    for now_ns, deliveries in send(Flow(wire, opens_ns), written):
        assert all(delivery.arrives_ns >= max(now_ns, opens_ns) + one_way_ns for delivery in deliveries)


@law
@given(wires, writes)
def test_rate_is_never_exceeded(wire: Wire, written: list[tuple[int, int]]) -> None:
    rate = wire.rate_bits_per_s or 20e6
    answers = send(Flow(replace(wire, rate_bits_per_s=rate), 0), written)

    deliveries = [delivery for _, many in answers for delivery in many]
    for earlier, later in pairwise(deliveries):
        assert later.arrives_ns - earlier.arrives_ns >= later.size * 8e9 / rate - 1  # rounded to a nanosecond


@pytest.mark.parametrize(
    ("body", "beyond", "rounds"),
    [(13_000, 13_100, 1), (41_000, 42_100, 2), (99_000, 101_000, 3), (160_000, 170_000, 4)],
)
def test_cold_body_takes_the_rounds_of_slow_start(body: int, beyond: int, rounds: int) -> None:
    assert (upload_rounds(body), upload_rounds(beyond)) == (rounds, rounds + 1)


def test_warm_connection_sends_large_body_in_one_round_trip() -> None:
    flow, now_ns = heated(Wire())

    assert arrives_ns(flow, now_ns, 123_400) == now_ns + RTT // 2


@pytest.mark.parametrize(("idle_ms", "rounds"), [(150, 1), (500, 2), (750, 3), (1_000, 4), (2_000, 4)])
def test_idle_connection_halves_its_window_per_timeout(idle_ms: int, rounds: int) -> None:
    flow, now_ns = heated(Wire())
    now_ns += idle_ms * MS

    assert arrives_ns(flow, now_ns, 123_400) == now_ns + (rounds - 1) * RTT + RTT // 2


def test_without_slow_start_every_body_arrives_at_once() -> None:
    assert Flow(Wire(slow_start=False), 0).send(0, 10_000_000) == [Delivery(RTT // 2, 10_000_000)]


def test_small_writes_that_wait_for_the_window_leave_together() -> None:
    flow = Flow(Wire(), 0)

    arrivals = [arrives_ns(flow, now_ns * MS, 100) for now_ns in range(20)]

    # Ten segments fill the window; the eleventh takes the ten writes behind it along.
    assert arrivals[:10] == [now_ns * MS + RTT // 2 for now_ns in range(10)]
    assert set(arrivals[10:]) == {RTT + RTT // 2}


def test_slow_link_delays_body_by_its_transfer_time() -> None:
    wire = Wire(rate_bits_per_s=5e6, slow_start=False)
    body, segments = 123_400, 86

    expected_ns = (body + segments * 52) * 8e9 / 5e6 + RTT / 2

    assert arrives_ns(Flow(wire, 0), 0, body) == pytest.approx(expected_ns, abs=100)


def test_reset_overtakes_what_has_not_left() -> None:
    flow = Flow(Wire(), 0)
    last_ns = arrives_ns(flow, 0, 123_400)

    assert flow.reset(10 * MS) == 10 * MS + RTT // 2 < last_ns


@pytest.mark.parametrize(
    ("given_settings", "message"),
    [
        ({"round_trip_time_s": -0.04}, "from 0 to 60, got -0.04"),
        ({"round_trip_time_s": 100}, "from 0 to 60, got 100"),
        ({"round_trip_time_s": float("nan")}, "got nan"),
        ({"rate_bits_per_s": 0}, "bits per second from 1,000, or None, got 0"),
        ({"rate_bits_per_s": float("inf")}, "got inf"),
    ],
)
def test_settings_that_cannot_work_are_refused(given_settings: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Wire(**given_settings)  # type: ignore[arg-type]
