"""The only module that reads a clock."""

from __future__ import annotations

import time

# One monotonic clock for every stamp. On Linux, macOS and Windows it is one clock for all processes of the machine,
# so that stamps of a client and of the embedded provider can be compared.
now_ns = time.perf_counter_ns
"""Monotonic nanoseconds. Only differences mean something."""

wall_ns = time.time_ns
"""Nanoseconds since the epoch: read once per call, as the anchor of its monotonic stamps."""

cpu_ns = time.process_time_ns
"""CPU nanoseconds of this process (user + system, all threads), for benchmarks on noisy machines."""

thread_cpu_ns = time.thread_time_ns
"""CPU nanoseconds of this thread (user + system)."""

sleep = time.sleep
"""Sleep for some seconds: for what probes how late it is woken. Whatever waits for something else waits for that."""
