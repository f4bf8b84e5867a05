"""One process of the fault matrix: it runs cells one after the other, so that what is left over is one cell's."""

from __future__ import annotations

import gc
import logging
import os
import sys
import tempfile
import threading
import uuid
from pathlib import Path
from typing import Any

import openai

from fastlane.emulator import Emulator, preset
from tests import known_ports
from tests.faults.calls import our_call, stock_call
from tests.faults.judging import problems_of
from tests.faults.servers import counted, serving
from tests.faults.table import FAULTS, FORMS, PLAYS, PROTOCOLS, Cell, Fault
from tests.transport.peer import authority
from tests.transport.resources import descriptors, threads
from tests.waiting import comes_true

QUICK = 1, 4_000_000
"""Retries, each after a tenth of openai's pause, and the size of large answers."""
IN_FULL = 2, 100_000_000


class _Logged(logging.Handler):
    """Keeps what fastlane logs, and what others tell at INFO and above: openai's own DEBUG quotes prompts."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("fastlane") or record.levelno >= logging.INFO:
            self.lines.append(self.format(record))


class Bench:
    """Certificates that clients trust, the embedded provider, and a clean start."""

    def __init__(self, retries: int, large_bytes: int) -> None:
        self.retries, self.large_bytes = retries, large_bytes
        if (retries, large_bytes) == QUICK:
            base: Any = openai._base_client
            base.INITIAL_RETRY_DELAY /= 10
        self.emulator = Emulator(model=preset("instant"), seed=0)
        self.certificates = Path(tempfile.mkdtemp(), "authorities.pem")
        self.certificates.write_bytes(authority().cert_pem.bytes() + self.emulator.certificate_authority.read_bytes())
        os.environ["SSL_CERT_FILE"] = str(self.certificates)
        self.logged = _Logged()
        logging.getLogger().addHandler(self.logged)
        logging.getLogger().setLevel(logging.INFO)
        logging.getLogger("fastlane").setLevel(logging.DEBUG)
        self.complaints: list[str] = []
        sys.unraisablehook = lambda unraised: self.complaints.append(f"unraisable {unraised.exc_type.__name__}")
        threading.excepthook = lambda args: self.complaints.append(f"a thread ended by {args.exc_type.__name__}")
        self._goods: dict[object, Any] = {}
        # One good call of every kind, after which what the process keeps for good is there.
        for protocol in PROTOCOLS:
            for form in FORMS:
                for plays in PLAYS:
                    self.call(our_call, Cell("none", form, False, protocol, plays), Fault(name="none", peer="script"))
        gc.collect()
        gc.freeze()

    def call(self, make: Any, cell: Cell, fault: Fault) -> Any:
        """Make a call; what came of it, what the server counted, and what it complains about."""
        tag = uuid.uuid4().hex
        with serving(cell, fault, self.emulator, self.large_bytes) as server:
            came = make(cell, fault, server.base_url, tag, self.retries)
            complaints = [] if server.is_left() else ["a connection is still open"]
            counts = counted(server, fault, self.emulator, tag)
        return came, counts, [*complaints, *server.complaints()]

    def good(self, cell: Cell, fault: Fault) -> Any:
        """Return what the call gives where nothing goes wrong, if the table promises it."""
        if not any(each.raises is None and each.holds(cell) for each in fault.differs):
            return None
        fine = Fault(name="none", peer="emulator" if fault.peer == "emulator" else "script")
        key = cell.protocol, cell.stream, fine.peer
        if key not in self._goods:
            self._goods[key] = self.call(stock_call, cell, fine)[0].result
        return self._goods[key]

    def problems(self, cell: Cell, stock: Any) -> list[str]:
        """Run one cell."""
        fault = FAULTS[cell.fault]
        good = self.good(cell, fault)
        known_ports.forget()
        gc.collect()
        self.complaints.clear()
        self.logged.lines = []
        files, running = descriptors(), threads()
        mine, counts, found = self.call(our_call, cell, fault)

        def left() -> set[str]:  # the timer is shared by all clients
            return {thread.name for thread in threads() - running} - {"fastlane timer"}

        if not comes_true(lambda: not left()):
            found.append(f"threads left: {left()}")
        if not comes_true(lambda: len(descriptors()) <= len(files)):
            found.append(f"{len(descriptors()) - len(files)} file descriptors left")
        mine.logged = self.logged.lines
        found += problems_of(cell, fault, stock, (mine, counts), good=good, retries=self.retries)
        del mine
        gc.collect()
        return [*found, *self.complaints]


_benches: list[Bench] = []


def prepare(retries: int, large_bytes: int) -> None:
    """Make this process ready to run cells."""
    _benches.append(Bench(retries, large_bytes))


def run(cells: list[Cell]) -> list[list[str]]:
    """Return what went wrong in each of several cells that differ in their plays alone: they share the stock call."""
    (bench,) = _benches
    came, counts, _ = bench.call(stock_call, cells[0], FAULTS[cells[0].fault])
    return [bench.problems(cell, (came, counts)) for cell in cells]
