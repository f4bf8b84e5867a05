from __future__ import annotations

import asyncio
import threading
import time

from hypothesis import given, strategies as st

from fastlane.bench.running._worker import Probe, waiting_times
from tests.bench.recorded_runs import MS


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_cpu_burning_thread_is_measured() -> None:
    threads = set(threading.enumerate())
    probe = Probe(shard=2, arm="baseline")
    probe.start()
    thread = threading.Thread(target=burn, args=(0.4,))
    thread.start()
    thread.join()
    vitals = probe.stop("a cell")

    assert vitals.cpu_s >= 0.4
    assert (vitals.cell, vitals.shard, vitals.arm) == ("a cell", 2, "baseline")
    assert vitals.cpu_share == vitals.cpu_s / vitals.duration_s
    assert set(threading.enumerate()) == threads


def test_blocked_event_loop_is_measured_as_lag() -> None:
    async def blocked() -> Probe:
        probe = Probe()
        probe.watch(asyncio.get_running_loop())
        probe.start()
        await asyncio.sleep(0.05)
        time.sleep(0.6)  # noqa: ASYNC251 - This is what is to be seen.
        await asyncio.sleep(0.05)
        return probe

    vitals = asyncio.run(blocked()).stop("a cell")

    assert vitals.loop_lag_p99_ms is not None
    assert vitals.loop_lag_p99_ms > 400
    # Six tenths of a second of seven: not one bad sample, but what most moments had to wait.
    assert vitals.loop_lag_p50_ms is not None
    assert vitals.loop_lag_p50_ms > 20


def test_held_interpreter_lock_is_measured_as_lag() -> None:
    probe = Probe()
    probe.start()
    # One long operation in C that never lets the interpreter go.
    sorted(range(3_000_000, 0, -1), key=lambda value: -value)
    pow(3, 3_000_000)
    vitals = probe.stop("a cell")

    assert vitals.loop_lag_p99_ms is not None
    assert vitals.loop_lag_p99_ms > 5


@given(st.lists(st.integers(0, 10**9), max_size=20), st.integers(10**6, 10**8))
def test_waiting_times_keep_every_lag_and_the_longest_one(lags: list[int], interval: int) -> None:
    """A late probe has missed wake-ups, each of which would have waited too."""
    waits = waiting_times(lags, interval)

    assert len(waits) >= len(lags)
    assert max(waits, default=0) == max(lags, default=0)
    assert set(lags) <= set(waits)
    assert waiting_times([0, 25 * MS], 10 * MS) == [0, 25 * MS, 15 * MS, 5 * MS]
