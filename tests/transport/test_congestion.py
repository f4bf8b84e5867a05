"""What is worked out of a model that no kernel tells of is what the emulated wire does; and what silence takes."""

from __future__ import annotations

from hypothesis import given, strategies as st

from fastlane.emulator._wire_flow import Flow
from fastlane.emulator.settings import Wire
from fastlane.transport.protocols.congestion import INITIAL_WINDOW, SEGMENT_BYTES, SlowStartModel, window_after_silence

MS = 1_000_000
SECOND = 1_000 * MS
START_NS = 1_000 * SECOND

round_trips_ms = st.sampled_from([1, 20, 40, 67, 150])
bodies = st.one_of(st.integers(1, 130_000), st.integers(1, 1_000), st.integers(100_000, 2_000_000))
# In odd units, so that nothing is due in the very moment in which something else is sent.
pauses_ns = st.one_of(st.integers(0, 150), st.integers(0, 6_000)).map(lambda ms: ms * MS + 12_345)
uploads = st.lists(st.tuples(pauses_ns, bodies), min_size=1, max_size=12)


def takes_off(model: SlowStartModel, now_ns: int, size: int) -> int:
    """Bytes of a body that leave at once where nothing is on its way."""
    offered = model.receive_window
    # Only the end of a body leaves in a segment that is not full.
    fits = size if size <= offered else offered // SEGMENT_BYTES * SEGMENT_BYTES
    return min(fits, model.window_at(now_ns) * SEGMENT_BYTES)


# The emulated wire is the oracle: it was measured against Linux's own TCP.
@given(round_trip_ms=round_trips_ms, uploads=uploads)
def test_as_many_segments_leave_at_once_as_over_the_emulated_wire(
    round_trip_ms: int, uploads: list[tuple[int, int]]
) -> None:
    round_trip_ns = round_trip_ms * MS
    wire = Flow(Wire(round_trip_time_s=round_trip_ms / 1e3), START_NS)
    model = SlowStartModel()
    now_ns = START_NS
    for pause_ns, size in uploads:
        now_ns += pause_ns
        ready = model.copy()
        ready.advance(now_ns)
        deliveries = wire.send(now_ns, size)
        model.sent(now_ns, size, round_trip_ns)
        if not ready.in_flight:
            assert deliveries[0].size == takes_off(ready, now_ns, size)
        assert model.in_flight >= 1
        # An answer comes when the body is there.
        now_ns = max(now_ns, deliveries[-1].arrives_ns) + -(-round_trip_ns // 2)


@given(uploads=uploads, later_ns=st.integers(0, 10 * SECOND))
def test_a_copy_is_told_more_without_a_change_of_the_first(uploads: list[tuple[int, int]], later_ns: int) -> None:
    model = SlowStartModel()
    now_ns = START_NS
    for pause_ns, size in uploads:
        now_ns += pause_ns
        model.sent(now_ns, size, 40 * MS)
    before = everything(model)
    model.copy().sent(now_ns + later_ns, 50_000, 40 * MS)
    later = model.advanced_to(now_ns + later_ns)

    assert everything(model) == before
    model.advance(now_ns + later_ns)
    assert everything(later) == everything(model)


def everything(model: SlowStartModel) -> list[object]:
    return [repr(getattr(model, name)) for name in SlowStartModel.__slots__]


@given(uploads=uploads)
def test_all_that_is_on_its_way_is_acknowledged_at_last(uploads: list[tuple[int, int]]) -> None:
    model = SlowStartModel()
    now_ns = START_NS
    for pause_ns, size in uploads:
        now_ns += pause_ns
        model.sent(now_ns, size, 40 * MS)
    model.advance(now_ns + 1_000 * SECOND)

    assert model.in_flight == 0
    assert model.window_at(now_ns + 1_000 * SECOND) == INITIAL_WINDOW


def test_a_cold_connection_begins_with_the_initial_window_and_doubles_it_while_it_is_in_use() -> None:
    model = SlowStartModel()
    assert model.window_at(START_NS) == INITIAL_WINDOW
    model.sent(START_NS, 10 * SEGMENT_BYTES, 40 * MS)
    assert model.in_flight == 10
    model.advance(START_NS + 40 * MS)
    assert (model.in_flight, model.window_at(START_NS + 40 * MS)) == (0, 20)


def test_small_requests_open_no_window() -> None:
    model = SlowStartModel()
    for number in range(50):
        model.sent(START_NS + number * 50 * MS, 2_000, 40 * MS)
    model.advance(START_NS + 10 * SECOND)
    assert model.window_at(START_NS + 49 * 50 * MS) == INITIAL_WINDOW


def test_nothing_sent_changes_nothing() -> None:
    model = SlowStartModel()
    model.sent(START_NS, 0, 40 * MS)
    assert model.in_flight == 0
    assert model.window_at(START_NS + SECOND) == INITIAL_WINDOW


@given(window=st.integers(1, 10_000), silent_ns=st.integers(0, 100 * SECOND), time_out_ns=st.integers(MS, 60 * SECOND))
def test_silence_leaves_no_more_than_there_was_and_no_less_than_the_initial_window(
    window: int, silent_ns: int, time_out_ns: int
) -> None:
    left = window_after_silence(window, silent_ns, time_out_ns)
    assert min(window, INITIAL_WINDOW) <= left <= window
    assert window_after_silence(window, silent_ns + time_out_ns, time_out_ns) <= left
    if silent_ns <= time_out_ns:
        assert left == window


def test_a_window_is_halved_for_each_time_out_of_silence() -> None:
    halved = [window_after_silence(160, number * 240 * MS + 1, 240 * MS) for number in range(7)]
    assert halved == [160, 80, 40, 20, 10, 10, 10]
    assert window_after_silence(160, 3_600 * SECOND, 240 * MS, initial=32) == 32
    assert window_after_silence(4, 3_600 * SECOND, 240 * MS) == 4
