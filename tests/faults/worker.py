"""A process that runs cells one after the other, so that what is left over is one cell's: units in, verdicts out."""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastlane.emulator import Emulator, preset
from tests import known_ports
from tests.faults.calling import Came, our_call, retrying, stock_call
from tests.faults.judging import Verdict, judge
from tests.faults.servers import counted, serving
from tests.faults.table import FAULTS, FORMS, PLAYS, PROTOCOLS, Cell, Fault
from tests.faults.wire import Counts
from tests.transport.peer import authority
from tests.transport.resources import descriptors, threads
from tests.waiting import comes_true

_OF_THE_PROCESS = frozenset({"fastlane timer"})
"""The thread that all clients share."""


class _Logged(logging.Handler):
    """Everything that fastlane logs, and what others tell at INFO and above: openai's own DEBUG quotes prompts."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("fastlane") or record.levelno >= logging.INFO:
            self.lines.append(self.format(record))


class Bench:
    """What a process needs to run cells: certificates that clients trust, the embedded provider, a clean start."""

    def __init__(self, *, large_bytes: int, quick: bool) -> None:
        self.large_bytes = large_bytes
        self.quick = quick
        self._emulator: Emulator | None = None
        self._goods: dict[tuple[str, bool, int], Any] = {}
        self._directory = tempfile.TemporaryDirectory()
        self._certificates = Path(self._directory.name, "authorities.pem")
        self._certificates.write_bytes(authority().cert_pem.bytes())
        self._trust(None)
        self._logged = _Logged()
        logging.getLogger().addHandler(self._logged)
        logging.getLogger().setLevel(logging.INFO)
        logging.getLogger("fastlane").setLevel(logging.DEBUG)
        self._unraised: list[str] = []
        sys.unraisablehook = lambda unraised: self._unraised.append(f"unraisable {unraised.exc_type.__name__}")
        threading.excepthook = lambda args: self._unraised.append(f"a thread ended by {args.exc_type.__name__}")

    def close(self) -> None:
        """End the embedded provider."""
        if self._emulator is not None:
            self._emulator.__exit__(None, None, None)
        self._directory.cleanup()

    def warm_up(self) -> None:
        """One good call of every kind, after which what the process keeps for good is there."""
        good = Fault(name="none", peer="script")
        for protocol in PROTOCOLS:
            for form in FORMS:
                for plays in PLAYS:
                    cell = Cell("none", form, False, protocol, plays)
                    with serving(cell, good, None, large_bytes=0) as place:
                        our_call(cell, good, place.base_url, "warm")
        # The garbage of each cell is looked for among what came since: a sixth of the time.
        gc.collect()
        gc.freeze()

    def run(self, cells: list[Cell]) -> Iterator[Verdict]:
        """Cells that differ in their plays alone: the stock client's call is made once."""
        fault, first = FAULTS[cells[0].fault], cells[0]
        emulator = self._provider() if fault.peer == "emulator" else None
        self._trust(emulator)
        with retrying(quickly=self.quick):
            with serving(first, fault, emulator, large_bytes=self.large_bytes) as place:
                tag = uuid.uuid4().hex
                came = stock_call(first, fault, place.base_url, tag)
                stock = came, counted(place, fault, emulator, tag)
            for cell in cells:
                yield self._one(cell, fault, emulator, stock)

    def _one(self, cell: Cell, fault: Fault, emulator: Emulator | None, stock: tuple[Came, Counts]) -> Verdict:
        good = self._good(cell, fault)
        known_ports.forget()
        gc.collect()
        self._logged.lines.clear()
        self._unraised.clear()
        beside: list[str] = []
        files, running = descriptors(), threads()
        tag = uuid.uuid4().hex
        with serving(cell, fault, emulator, large_bytes=self.large_bytes) as place:
            ours = our_call(cell, fault, place.base_url, tag)
            if not place.is_left():
                beside.append("a connection is still open")
            counts = counted(place, fault, emulator, tag)
        beside += place.complaints()
        if not comes_true(lambda: not _new(running)):
            beside.append(f"threads left: {_new(running)}")
        if not comes_true(lambda: len(descriptors()) <= len(files)):
            beside.append(f"{len(descriptors()) - len(files)} file descriptors left")
        logged = "\n".join(self._logged.lines)
        verdict = judge(cell, fault, stock, (ours, counts), good=good, logged=logged, beside=beside)
        del ours
        gc.collect()
        verdict.problems += self._unraised
        if self._unraised:
            verdict.verdict = "failed"
        return verdict

    def _good(self, cell: Cell, fault: Fault) -> Any:
        """What the call gives where nothing goes wrong; asked for only where the table promises one."""
        if not any(each.raises is None and each.holds(cell) for each in fault.differs):
            return None
        key = cell.protocol, cell.stream, self.large_bytes if fault.is_large else 0
        if key not in self._goods:
            fine = Fault(name="none", peer="emulator" if fault.peer == "emulator" else "script")
            emulator = self._provider() if fault.peer == "emulator" else None
            with serving(cell, fine, emulator, large_bytes=0) as place:
                self._goods[key] = stock_call(cell, fine, place.base_url, "good").result
        return self._goods[key]

    def _provider(self) -> Emulator:
        if self._emulator is None:
            self._emulator = Emulator(model=preset("instant"), seed=0).__enter__()
        return self._emulator

    def _trust(self, emulator: Emulator | None) -> None:
        """Clients that are made from now on trust the embedded provider, or else the scripted servers."""
        path = self._certificates if emulator is None else emulator.certificate_authority
        os.environ["SSL_CERT_FILE"] = str(path)


def _new(running: set[threading.Thread]) -> list[str]:
    """The names of threads that were not there before and belong to a client."""
    return sorted({thread.name for thread in threads() - running} - _OF_THE_PROCESS)


def main() -> None:
    """Read units as lines of JSON until there are no more; write the verdicts of each as a line."""
    large_bytes, quick = int(sys.argv[1]), sys.argv[2] == "quick"
    bench = Bench(large_bytes=large_bytes, quick=quick)
    try:
        bench.warm_up()
        for line in sys.stdin:
            cells = [Cell(*values) for values in json.loads(line)]
            sys.stdout.write(json.dumps([verdict.to_json() for verdict in bench.run(cells)]) + "\n")
            sys.stdout.flush()
    finally:
        bench.close()


if __name__ == "__main__":
    main()
