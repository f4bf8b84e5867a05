"""Run benchmarks: `python -m benchmarks NAME` one in full, without a name each in turn and one table of all targets."""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks._report import Report, as_json, print_reach, print_report

_FAMILIES: dict[str, tuple[str, ...]] = {
    "agents": ("early_tools",),
    "batch_crash": ("batch_crash",),
    "limits": ("pacing", "urgency_mixed"),
    "measuring": ("fidelity", "dashboard_lie", "omission"),
    "prompts": ("prompt_cache", "prompt_cache_agents", "context_trimming", "drift", "prompt_cache_cost"),
    "request_encoding": ("encoding", "headline", "encoding_cpu"),
    "routing_regret": ("routing_regret",),
    "sockets": ("socket_events", "socket_loop", "socket_kills"),
    "statistics": ("aa", "power", "attribution"),
    "streams": ("stream_cpu", "streams_per_core", "call_cpu", "history_cpu", "cold_start"),
    "structured": ("early_stop", "bounded_ab", "bound_law", "bounded_cost"),
    "telemetry": ("telemetry_cost", "telemetry_down"),
    "transport": ("idle_reuse", "connection", "stale", "threads", "multiplexing", "early_close", "proxy"),
    "unbroken": ("unbroken",),
    "upstreams": ("routing", "failover", "hedging"),
}
"""The modules, and the benchmarks of each: functions whose docstrings say what is inside their figures."""


def names() -> list[str]:
    """Return the names of all benchmarks."""
    return sorted(name for members in _FAMILIES.values() for name in members)


def benchmark(name: str) -> tuple[str, Callable[[bool], Report]]:
    """Import a benchmark, and return its description and what measures it, given whether to be quick."""
    family = next(family for family, members in _FAMILIES.items() if name in members)
    module = importlib.import_module(f"benchmarks.{family}")
    measure: Callable[[bool], Report] = getattr(module, name)
    return f"{inspect.getdoc(measure)}\n\n{inspect.getdoc(module)}", measure


def _run_all(options: Sequence[str]) -> int:
    """Run each benchmark in a process of its own, and print every target; 1 where one could not be run."""
    done: list[dict[str, Any]] = []
    failed = []
    for name in names():
        print(f"{name} ...", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "benchmarks", name, "--json", *options]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if run.returncode:
            failed.append(name)
        else:
            done.append(json.loads(run.stdout.splitlines()[-1]))
    print_reach(done)
    if failed:
        print(f"could not be run: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__, add_help=False)
    parser.add_argument("name", nargs="?", choices=names(), metavar="NAME", help=", ".join(names()))
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: most take less than 50 seconds")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON instead of a table")
    parser.add_argument("--help", action="store_true", help="say what a benchmark measures")
    given = parser.parse_args(arguments)
    if given.help and given.name:
        print(f"python -m benchmarks {given.name} [--quick] [--json]\n\n{benchmark(given.name)[0]}")
    elif given.help:
        parser.print_help()
    elif given.name is None:
        return _run_all(["--quick"] if given.quick else [])
    else:
        report = benchmark(given.name)[1](given.quick)
        if given.json:
            print(as_json(given.name, report))
        else:
            print_report(given.name, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
