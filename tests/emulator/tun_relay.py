"""Carry packets between two TUN devices, each half a round trip later and no faster than the link's rate.

Run as a script in a process of its own, so that the test's threads do not delay it. Arguments: the two file
descriptors, the one-way delay in nanoseconds, the rate in bits per second (0 = unlimited).
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections import deque

# Packets read per wake-up of one direction, so that neither direction starves the other.
BURST = 64


def relay(devices: tuple[int, int], one_way_ns: int, rate_bits_per_s: float) -> None:
    """Relay until the parent closes standard input."""
    queues: tuple[deque[tuple[int, bytes]], deque[tuple[int, bytes]]] = (deque(), deque())
    link_free_ns = [0, 0]
    while True:
        due = [queue[0][0] for queue in queues if queue]
        # select, not epoll: its time-out is in microseconds.
        time_out_s = max(0.0, (min(due) - time.perf_counter_ns()) / 1e9) if due else None
        readable, _, _ = select.select([*devices, sys.stdin], [], [], time_out_s)
        if sys.stdin in readable:
            return
        for direction, device in enumerate(devices):
            if device in readable:
                for packet in packets(device):
                    now_ns = time.perf_counter_ns()
                    leaves_ns = now_ns
                    if rate_bits_per_s:
                        leaves_ns = max(now_ns, link_free_ns[direction]) + round(len(packet) * 8e9 / rate_bits_per_s)
                        link_free_ns[direction] = leaves_ns
                    queues[direction].append((leaves_ns + one_way_ns, packet))
            queue = queues[direction]
            while queue and queue[0][0] <= time.perf_counter_ns():
                os.write(devices[1 - direction], queue.popleft()[1])


def packets(device: int) -> list[bytes]:
    """Read what waits on a non-blocking device."""
    read: list[bytes] = []
    try:
        while len(read) < BURST:
            read.append(os.read(device, 65_536))
    except BlockingIOError:
        pass
    return read


if __name__ == "__main__":
    relay((int(sys.argv[1]), int(sys.argv[2])), int(sys.argv[3]), float(sys.argv[4]))
