"""Cells run by several processes beside one another, so that those that wait do not wait for each other."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path

from tests.faults.judging import Verdict
from tests.faults.table import FAULTS, Cell

ROOT = Path(__file__).parent.parent.parent
LARGE_BYTES = 100_000_000
PROCESSES = 12
"""Most cells wait: for pauses between attempts, for time-outs."""


class _Process:
    """One process, started when it is needed and again where it hung."""

    def __init__(self, *, large_bytes: int, quick: bool) -> None:
        self._arguments = [str(large_bytes), "quick" if quick else "as it is"]
        self._process: subprocess.Popen[str] | None = None

    def run(self, cells: list[Cell], limit_s: float) -> list[Verdict]:
        """The verdicts of a unit; where it takes longer than the limit, the process is ended and all of it failed."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.worker", *self._arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        watch = threading.Timer(limit_s, process.kill)
        watch.start()
        try:
            unit = [[cell.fault, cell.form, cell.stream, cell.protocol, cell.plays] for cell in cells]
            process.stdin.write(json.dumps(unit) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = ""
        finally:
            watch.cancel()
        if line:
            return [Verdict.from_json(each) for each in json.loads(line)]
        self._process = None
        process.wait()
        why = f"not over after {limit_s:.0f} s, or the process ended"
        return [Verdict(cell=cell, problems=[why]) for cell in cells]

    def close(self) -> None:
        """End the process, with all that it has started."""
        if self._process is not None:
            self._process.communicate()


def units(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Cells that share the stock client's call, those that take longest first and the large ones last."""
    groups = [
        list(group)
        for _, group in groupby(sorted(cells), key=lambda cell: (cell.fault, cell.form, cell.stream, cell.protocol))
    ]
    return sorted(groups, key=lambda group: (FAULTS[group[0].fault].is_large, not FAULTS[group[0].fault].waits))


def run(
    cells: Iterable[Cell],
    *,
    told: Callable[[Verdict], object] = lambda verdict: None,
    large_bytes: int = LARGE_BYTES,
    quick: bool = False,
    processes: int = PROCESSES,
) -> dict[Cell, Verdict]:
    """Run cells and give the verdict of each; `told` hears of each as it comes."""
    waiting: queue.SimpleQueue[list[Cell]] = queue.SimpleQueue()
    for unit in (listed := units(cells)):
        waiting.put(unit)
    verdicts: dict[Cell, Verdict] = {}
    one_large_at_once = threading.Lock()

    def work() -> None:
        process = _Process(large_bytes=large_bytes, quick=quick)
        try:
            while True:
                try:
                    unit = waiting.get_nowait()
                except queue.Empty:
                    return
                fault = FAULTS[unit[0].fault]
                limit_s = 60 + fault.bound_s * (len(unit) + 1) + 60 * len(unit)
                if fault.is_large:
                    with one_large_at_once:
                        found = process.run(unit, limit_s)
                else:
                    found = process.run(unit, limit_s)
                for verdict in found:
                    verdicts[verdict.cell] = verdict
                    told(verdict)
        finally:
            process.close()

    with ThreadPoolExecutor(min(processes, len(listed)) or 1) as threads:
        for future in [threads.submit(work) for _ in range(min(processes, len(listed)))]:
            future.result()
    return verdicts
