"""What a collector that does not work costs the calls that it is told of: time at the 99th percentile, and memory.

Clients in processes of their own make calls that are not streamed, over TLS and HTTP/2, as fast as the provider can
answer. One has telemetry off; the others send spans and metrics over HTTP, as `configure()` sets it up: to a collector
that works (`healthy`), to a port where nobody listens (`refuses`), to one that reads and never answers (`hangs`), and
to one that answers 500 (`fails`). The clients take turns with blocks of calls, in reversed order every other round.

Inside `_added_p99_ms`: the 99th percentile of the calls of a block, from the call to its result, minus that of the
block without telemetry of the same round; medians over the rounds, with 95 % intervals. `off_again` is a second client
without telemetry: how large a difference this run would report where there is none. `_p99_ms` is the percentile of all
calls of a side. Outside: the provider, which has a process of its own and, where the system allows it, another core, as
has the collector. The threads that export have the client's core.

Inside `_growth_kib`, of calls that are made sixteen at a time: how much more of the process is in memory after 10,000
further calls. It is counted ten times, when the queues are empty, Python's garbage has been collected and the allocator
has given back what it can: the spans of an export under way and the garbage of one that has failed are megabytes that
come and go. What the allocator keeps goes up and down by two megabytes all the same, so that the least of the last four
counts is compared with the least of the four before; what is kept for good raises both. The first two are left out.
Exporters give up after a second there, so that they fail often. `_resident_mib` is what was in memory in the end. `off`
makes the same calls without telemetry. Not known where the system is not Linux. A span that is not let go for each call
would make it 40,000.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from statistics import quantiles

from benchmarks._child import Child
from benchmarks._paired import differences, median
from benchmarks._report import Figure, Report
from benchmarks._server import server_on_another_core

_BROKEN = ("refuses", "hangs", "fails")
_ARMS = ("off", "off_again", "healthy", *_BROKEN)
_EXPORT_INTERVAL_MS = 2_000


def _client(base_url: str, port: int | None, **more: str) -> Child:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "FASTLANE_"))}
    if port is None:
        kept["FASTLANE_TELEMETRY_LEVEL"] = "off"
    else:
        kept["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{port}"
        kept["OTEL_METRIC_EXPORT_INTERVAL"] = str(_EXPORT_INTERVAL_MS)
    return Child("benchmarks._telling", base_url, environment=kept | more)


def _p99(values: list[float]) -> float:
    return quantiles(values, n=100)[-1]


def _latencies(clients: Mapping[str, Child], rounds: int, block: int) -> dict[str, Figure]:
    taken: dict[str, list[list[float]]] = {arm: [] for arm in clients}
    for round_number in range(-1, rounds):  # the first one opens connections and imports what is imported late
        for arm in reversed(_ARMS) if round_number % 2 else _ARMS:
            took_us = clients[arm].ask(["one_by_one", block])
            if round_number >= 0:
                taken[arm].append([one / 1e3 for one in took_us])
    percentiles = {arm: [_p99(block) for block in blocks] for arm, blocks in taken.items()}
    figures: dict[str, Figure] = {}
    for arm in clients:
        if arm != "off":
            added = median(differences(percentiles[arm], percentiles["off"]))
            figures |= {
                f"{arm}_added_p99_ms": added.value,
                f"{arm}_added_p99_low_ms": added.low,
                f"{arm}_added_p99_high_ms": added.high,
            }
    for arm, blocks in taken.items():
        everything = [one for block in blocks for one in block]
        figures |= {f"{arm}_p50_ms": median(everything).value, f"{arm}_p99_ms": _p99(everything)}
    return figures


def _growth(base_url: str, arm: str, port: int | None, calls: int) -> dict[str, Figure]:
    with _client(base_url, port, OTEL_EXPORTER_OTLP_TIMEOUT="1") as client:
        resident = client.ask(["many_at_once", calls])
    more_kib = (min(resident[6:]) - min(resident[2:6])) / 1024
    growth = more_kib * 10_000 / (0.4 * calls) if all(resident) else None
    return {f"{arm}_growth_kib": growth, f"{arm}_resident_mib": resident[-1] / 1024**2}


def measure(quick: bool) -> Report:
    """Measure the time of calls in turns, then the memory of each client on its own."""
    rounds, block, calls = (3, 200, 5_000) if quick else (24, 300, 50_000)
    figures: dict[str, Figure] = {}
    with (
        server_on_another_core("benchmarks._at_once") as server,
        Child("benchmarks._collectors") as collectors,
        ExitStack() as stack,
    ):
        ports = collectors.hear()
        clients = {arm: stack.enter_context(_client(server.base_url, ports.get(arm))) for arm in _ARMS}
        figures |= _latencies(clients, rounds, block)
        for arm in ("off", *_BROKEN):
            figures |= _growth(server.base_url, arm, ports.get(arm), calls)
        for client in clients.values():
            client.leave()  # all at once: each waits for its collector
        stack.close()
        taken = collectors.ask(None)
    for name in ("healthy_requests", "healthy_bytes", "hangs_requests", "fails_requests"):
        figures[name] = taken.get(name, 0)
    if not all(taken.get(name) for name in ("healthy_bytes", "hangs_requests", "fails_requests")):
        raise RuntimeError("the collectors were not told of the calls: nothing was measured")
    return Report(
        figures=figures,
        reach={
            **{f"{arm}_added_p99_ms": "<= 1" for arm in _BROKEN},
            **{f"{arm}_growth_kib": "<= 256" for arm in _BROKEN},
        },
        conditions={"rounds": rounds, "calls_a_block": block, "calls_for_memory": calls, "cores": server.cores},
    )
