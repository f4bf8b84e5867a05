"""Compare the wire emulator with kernel TCP over the same distance: `python -m tests.emulator.kernel_tcp` (as root).

A request is N bytes in one write; the server answers four bytes when all have arrived. Each case is a median. "cold"
includes connect(), which the proxy answers at once: it holds the first bytes back for that long instead. Fails where a
case is further off than BOUND; on a busy machine a burst can come late, so it is for a quiet one, and no test.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import statistics
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from fastlane._clock import now_ns
from fastlane.emulator.wire import Wire, serve
from tests.emulator.kernel_wire import KernelWire, missing

SMALL, COMPRESSED, LARGE = 200, 1_641, 123_400
# Uploads of LARGE after which the windows of both ends are open; four suffice.
HEATING = 5
IDLE_S = 2.0
BOUND = 0.15
IDLE = "hot, idle 2 s"
CASES = ("cold small", "warm small", "warm 1.6 kB", "warm 123 kB", "cold 123 kB", "hot 123 kB", IDLE)
WIRES = {
    "RTT 40 ms": Wire(round_trip_time_s=0.04),
    "RTT 100 ms": Wire(round_trip_time_s=0.1),
    "RTT 40 ms, 20 Mbit/s": Wire(round_trip_time_s=0.04, rate_bits_per_s=20e6),
}

Connect = Callable[[], socket.socket]
Milliseconds = dict[str, list[float]]


def answer(listener: socket.socket) -> None:
    """Serve each connection in a thread until the listener is closed."""
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=answer_one, args=(connection,), daemon=True).start()


def answer_one(connection: socket.socket) -> None:
    with connection, contextlib.suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while header := connection.recv(4, socket.MSG_WAITALL):
            left = int.from_bytes(header, "big") - 4
            while left:
                left -= len(connection.recv(min(left, 65_536)))
            connection.sendall(header)


def request(connection: socket.socket, size: int) -> None:
    connection.sendall(size.to_bytes(4, "big") + bytes(size - 4))
    if len(connection.recv(4, socket.MSG_WAITALL)) != 4:
        raise ConnectionError("the server went away")


def timed(function: Callable[[], object]) -> float:
    start_ns = now_ns()
    function()
    return (now_ns() - start_ns) / 1e6


def measure(connect: Connect, repetitions: int) -> Milliseconds:
    """Measure every case; the repetitions of the last one are idle together, so that this takes seconds."""
    measured: Milliseconds = {case: [] for case in CASES}
    hot: list[socket.socket] = []
    with contextlib.ExitStack() as exit_stack:

        def cold(size: int) -> socket.socket:
            connection = exit_stack.enter_context(connect())
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            request(connection, size)
            return connection

        for _ in range(repetitions):
            start_ns = now_ns()
            connection = cold(SMALL)
            measured["cold small"].append((now_ns() - start_ns) / 1e6)
            measured["warm small"].append(timed(lambda c=connection: request(c, SMALL)))  # type: ignore[misc]
            measured["warm 1.6 kB"].append(timed(lambda c=connection: request(c, COMPRESSED)))  # type: ignore[misc]
            measured["warm 123 kB"].append(timed(lambda c=connection: request(c, LARGE)))  # type: ignore[misc]
            for _ in range(HEATING - 1):
                request(connection, LARGE)
            measured["hot 123 kB"].append(timed(lambda c=connection: request(c, LARGE)))  # type: ignore[misc]
            measured["cold 123 kB"].append(timed(lambda: cold(LARGE)))
            hot.append(connection)
        threading.Event().wait(IDLE_S)
        for connection in hot:
            measured[IDLE].append(timed(lambda c=connection: request(c, LARGE)))  # type: ignore[misc]
    return measured


@contextlib.contextmanager
def kernel(wire: Wire) -> Iterator[Connect]:
    """Kernel TCP on both sides of a relayed link."""
    with KernelWire(wire.round_trip_time_s, wire.rate_bits_per_s) as far, far.listen() as listener:
        port = listener.getsockname()[1]
        threading.Thread(target=answer, args=(listener,), daemon=True).start()
        yield lambda: far.connect(port)
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def proxy(wire: Wire) -> Iterator[Connect]:
    """Loopback through the wire emulator, which runs in a thread of this process."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener, ThreadPoolExecutor(1) as thread:
        threading.Thread(target=answer, args=(listener,), daemon=True).start()
        ready = threading.Event()
        running: dict[str, object] = {}

        async def run() -> None:
            stop = asyncio.Event()
            async with await serve(wire, "127.0.0.1", listener.getsockname()[1]) as wired:
                running.update(loop=asyncio.get_running_loop(), stop=stop, port=wired.port)
                ready.set()
                await stop.wait()

        done = thread.submit(asyncio.run, run())
        ready.wait(40)
        loop, stop, port = running["loop"], running["stop"], running["port"]
        assert isinstance(loop, asyncio.AbstractEventLoop)
        assert isinstance(stop, asyncio.Event)
        try:
            yield lambda: socket.create_connection(("127.0.0.1", int(str(port))), timeout=40)
        finally:
            loop.call_soon_threadsafe(stop.set)
            done.result(40)
            listener.shutdown(socket.SHUT_RDWR)


def compare(wire: Wire, repetitions: int) -> dict[str, tuple[float, float]]:
    """Measure kernel and proxy side by side; return the medians of both for each case, in milliseconds."""
    with kernel(wire) as over_kernel, proxy(wire) as over_proxy, ThreadPoolExecutor(2) as threads:
        kernel_ms = threads.submit(measure, over_kernel, repetitions)
        proxy_ms = threads.submit(measure, over_proxy, repetitions)
        return {
            case: (statistics.median(kernel_ms.result()[case]), statistics.median(proxy_ms.result()[case]))
            for case in CASES
        }


def main() -> None:
    if reason := missing():
        sys.exit(f"kernel TCP at a distance: {reason}")
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    tables = {name: compare(wire, repetitions) for name, wire in WIRES.items()}
    rows = [["case", *WIRES], ["---"] * (1 + len(WIRES))]
    for case in CASES:
        medians = [table[case] for table in tables.values()]
        rows.append([case, *(f"{real:.1f} -> {ours:.1f} ({ours / real - 1:+.1%})" for real, ours in medians)])
    sys.stdout.writelines(f"| {' | '.join(row)} |\n" for row in rows)
    outside = [
        f"{case} at {name}"
        for name, table in tables.items()
        for case, (real, ours) in table.items()
        if abs(ours / real - 1) > BOUND
    ]
    if outside:
        sys.exit(f"more than {BOUND:.0%} off: {', '.join(outside)}")


if __name__ == "__main__":
    main()
