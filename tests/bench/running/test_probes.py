from __future__ import annotations

import asyncio
import gc
import threading
import time
from array import array
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from fastlane._clock import now_ns
from fastlane.bench.running._probes import Probe, busiest, most_in_flight, queue_delays_ns, waiting_times
from tests.bench.recorded_runs import MS, a_run


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_a_thread_that_burns_cpu_is_seen() -> None:
    probe = Probe(shard=2, arm="baseline")
    probe.start()
    thread = threading.Thread(target=burn, args=(0.4,))
    thread.start()
    thread.join()
    vitals = probe.stop("a cell")

    assert vitals.cpu_s >= 0.4
    assert (vitals.cell, vitals.shard, vitals.arm) == ("a cell", 2, "baseline")
    assert vitals.cpu_share == vitals.cpu_s / vitals.duration_s


def test_a_loop_that_is_blocked_is_seen() -> None:
    async def blocked() -> Probe:
        probe = Probe()
        probe.watch(asyncio.get_running_loop())
        probe.start()
        await asyncio.sleep(0.05)
        time.sleep(0.6)  # noqa: ASYNC251 - This is what is to be seen.
        await asyncio.sleep(0.05)
        return probe

    vitals = asyncio.run(blocked()).stop("a cell")

    assert vitals.loop_lag_max_ms is not None
    assert vitals.loop_lag_max_ms > 400
    # Six tenths of a second of seven: not one bad sample, but what most moments had to wait.
    assert vitals.loop_lag_p50_ms is not None
    assert vitals.loop_lag_p50_ms > 20


def test_a_loop_that_never_answers_again_is_seen() -> None:
    async def hanging() -> Probe:
        probe = Probe()
        probe.watch(asyncio.get_running_loop())
        probe.start()
        time.sleep(0.3)  # noqa: ASYNC251
        return probe

    probe = asyncio.run(hanging())

    assert (probe.stop("a cell").loop_lag_max_ms or 0) > 200


def test_a_loop_that_is_closed_is_watched_no_more() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    probe = Probe()
    probe.watch(loop)
    probe.start()
    deadline = time.monotonic() + 30
    while probe._loop is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    vitals = probe.stop("a cell")

    assert probe._loop is None, "it rings a loop that cannot answer"
    assert not probe._loop_lags, "what was closed is taken for a loop that is late"
    assert vitals.loop_lag_max_ms is not None


def test_an_interpreter_that_is_held_is_seen() -> None:
    probe = Probe()
    probe.start()
    # One long operation in C that never lets the interpreter go.
    sorted(range(3_000_000, 0, -1), key=lambda value: -value)
    pow(3, 3_000_000)
    vitals = probe.stop("a cell")

    assert vitals.loop_lag_max_ms is not None
    assert vitals.loop_lag_max_ms > 5


def test_pauses_of_the_collector_are_seen() -> None:
    probe = Probe()
    probe.start()
    kept = [[each] for each in range(200_000)]
    gc.collect()
    vitals = probe.stop("a cell")

    assert len(kept) == 200_000
    assert vitals.longest_collection_ms is not None
    assert vitals.longest_collection_ms > 0.1
    assert vitals.collections_s is not None
    assert vitals.collections_s * 1e3 >= vitals.longest_collection_ms


def test_nothing_is_left_behind() -> None:
    callbacks, threads = list(gc.callbacks), set(threading.enumerate())
    probe = Probe()
    probe.start()
    probe.stop("a cell")

    assert gc.callbacks == callbacks
    assert set(threading.enumerate()) == threads


def test_each_cell_has_its_own_vitals() -> None:
    probe = Probe(arm="baseline")
    probe.start()
    for sample in a_run().measured(arm="baseline"):
        probe.note(sample)
    first = probe.stop("first")
    probe.start()
    second = probe.stop("second")

    assert first.chunks == 40 * 32
    assert (second.chunks, second.most_in_flight, second.peak_chunks_per_s) == (0, 0, 0.0)


def test_a_probe_is_started_and_stopped_in_turns() -> None:
    probe = Probe()
    with pytest.raises(RuntimeError, match="has not been started"):
        probe.stop("a cell")
    probe.start()
    with pytest.raises(RuntimeError, match="started already"):
        probe.start()
    probe.stop("a cell")


def test_requests_are_counted_as_they_end() -> None:
    run = a_run(arms=("baseline",), time_to_first_token_s=0.2, inter_token_s=0.01, tokens=100, spread=0.0)
    probe = Probe(arm="baseline")
    probe.start()
    for sample in run.measured():
        probe.note(sample)
    vitals = probe.stop("a cell")

    assert vitals.chunks == 40 * 100
    assert vitals.most_in_flight == 4
    # Four streams of 100 tokens/s each, less what they wait for their first tokens.
    assert 250 <= vitals.peak_chunks_per_s <= 420


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="only Linux says who waits for a core")
def test_every_threads_wait_for_a_core_is_read() -> None:
    before = queue_delays_ns()
    resting = threading.Event()
    thread = threading.Thread(target=resting.wait)
    thread.start()
    now = queue_delays_ns()
    resting.set()
    thread.join()

    assert before is not None
    assert now is not None
    assert str(thread.native_id) in set(now) - set(before)


def test_a_probe_that_woke_late_counts_the_wake_ups_that_it_missed() -> None:
    assert waiting_times([0, 25 * MS], 10 * MS) == [0, 25 * MS, 15 * MS, 5 * MS]


@given(st.lists(st.integers(0, 10**9), max_size=20), st.integers(10**6, 10**8))
def test_waiting_times_keep_every_lag_and_the_longest_one(lags: list[int], interval: int) -> None:
    waits = waiting_times(lags, interval)

    assert len(waits) >= len(lags)
    assert max(waits, default=0) == max(lags, default=0)
    assert set(lags) <= set(waits)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 50)), max_size=30))
def test_no_more_are_in_flight_than_there_are_and_no_fewer_than_at_any_moment(spans: list[tuple[int, int]]) -> None:
    begun, ended = array("q", [at for at, _ in spans]), array("q", [at + length for at, length in spans])

    expected = max((sum(at <= now < at + length for at, length in spans) for now in range(151)), default=0)
    assert most_in_flight(begun, ended) == expected


def test_the_busiest_second_may_begin_anywhere() -> None:
    assert busiest({0: 1, 5: 10, 12: 7, 30: 16}, 10) == 17
    assert busiest({}, 10) == 0


def test_what_a_process_does_after_the_end_says_nothing_of_the_cell() -> None:
    probe = Probe(arm="baseline")
    before_ns = now_ns()
    probe.start()
    probe.end()
    after_ns = now_ns()
    sum(range(1_000_000))
    probe.note(a_run().samples[0])

    vitals = probe.stop("cell")

    assert vitals.duration_s <= (after_ns - before_ns) / 1e9
    assert vitals.most_in_flight == 1
