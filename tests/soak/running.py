"""Starts the providers and the process that makes the calls, has it play round after round, and judges each."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fastlane.emulator import Emulator, ProviderModel
from tests.soak.asking import EMULATOR_SEED
from tests.soak.clients import KEY_VARIABLE
from tests.soak.judging import FLATNESS, Failure, Judge, growth
from tests.soak.plan import round_of

_ROUND_HANGS_S = 600.0
_STOP_AT = 20
"""Failures with which a run ends early."""
# Prompts are read and answers written at once, with a first token that is late now and then, so that hedges are made.
_MODEL = ProviderModel(
    name="soak", prefill_base_s=0.012, inter_token_s=0.0004, late_share=0.03, late_factor=12, manner="echo",
    default_output_tokens=20,
)  # fmt: skip


class Outcome:
    """What a run has come to."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.judge = Judge()
        self.failures = self.judge.failures
        self.samples: list[dict[str, Any]] = []
        """What the process held after each round."""
        self.seconds = self.cpu_s = 0.0

    def growth(self, name: str) -> float | None:
        """Return by which share a figure grew, where every client was closed."""
        return growth([(sample["minute"], sample[name]) for sample in self.samples if sample["bare"]])


@contextlib.contextmanager
def _providers(errors: Path) -> Iterator[list[Emulator]]:
    """Start both providers, whose processes write their stderr into a file."""
    kept = os.dup(2)
    with contextlib.ExitStack() as stack:
        try:
            with errors.open("ab") as file:
                os.dup2(file.fileno(), 2)
            started = [
                stack.enter_context(Emulator(model=_MODEL, seed=EMULATOR_SEED, http2=http2)) for http2 in (True, False)
            ]
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        yield started


def _cpu_s(*pids: int) -> float:
    """Seconds of CPU that processes and the children that they waited for have taken; 0 if unknown."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return total


class _Process:
    """The process that makes the calls."""

    def __init__(self, authorities: Path, errors: Path, **settings: Any) -> None:
        asked, ask = os.pipe()
        tell, output = os.pipe()
        with errors.open("wb") as file:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.soak.process",
                    json.dumps({**settings, "asked": asked, "report": output}),
                ],
                pass_fds=(asked, output),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**os.environ, "SSL_CERT_FILE": str(authorities), KEY_VARIABLE: "soak", "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
        os.close(asked)
        os.close(output)
        self.pid = self._process.pid
        self._ask, self._output = os.fdopen(ask, "w"), os.fdopen(tell)

    def play(self, number: int) -> dict[str, Any] | None:
        """Have it play a round, and return what it tells of it."""
        self._ask.write(f"{number}\n")
        self._ask.flush()
        return self.next_report()

    def next_report(self) -> dict[str, Any] | None:
        """Wait for its report; None if it has ended, or hangs with its watchdog."""
        alarm = threading.Timer(_ROUND_HANGS_S, os.kill, (self.pid, signal.SIGABRT))
        alarm.daemon = True
        alarm.start()
        try:
            line = self._output.readline()
        finally:
            alarm.cancel()
        return json.loads(line) if line else None

    def close(self) -> int:
        """Have it end; its exit code."""
        with contextlib.suppress(BrokenPipeError):
            self._ask.close()
        try:
            code = self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._output.close()
        return code


def run(*, seed: int, minutes: float, cores: float, begun: Callable[[Outcome], None], forget_every: int = 0) -> Outcome:
    """Soak for so many minutes, taking so many cores in the mean, and tell of each round.

    Ends early where much fails, and always behind a round after which every client was closed. After so many rounds
    (`forget_every`; 0: never) what plays have learned is forgotten.
    """
    outcome = Outcome(seed)

    def fail(kind: str, what: str, details: Any = None) -> None:
        outcome.failures.append(Failure(kind, what, len(outcome.samples), details))

    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        scratch = Path(name)
        errors = scratch / "stderr.txt", scratch / "providers.txt"
        with _providers(errors[1]) as providers:
            authorities = scratch / "authorities.pem"
            authorities.write_text("".join(each.certificate_authority.read_text() for each in providers))
            urls = [each.base_url for each in providers]
            process = _Process(authorities, errors[0], urls=urls, seed=seed, scratch=name, forget_every=forget_every)
            try:
                report = _rounds(outcome, process, providers, minutes * 60, cores, begun)
            finally:
                code = process.close()
        if report is not None:
            fail("lost", f"{report['what']} hang", report["stacks"])
        if code != 0:
            fail("lost", f"the process ended with {code}")
        for file in errors:
            if file.exists() and (text := file.read_text(errors="replace").strip()):
                fail("reports", f"{file.stem}: {text[-20_000:]}")
    grown = outcome.growth("resident")
    if grown is not None and grown > FLATNESS:
        fail("memory", f"resident memory grew by {grown:.1%}")
    return outcome


def _rounds(
    outcome: Outcome,
    process: _Process,
    providers: list[Emulator],
    seconds: float,
    cores: float,
    begun: Callable[[Outcome], None],
) -> dict[str, Any] | None:
    """Play rounds until the time is over; return what the process tells of what hangs."""
    pids = (process.pid, *(each._process.pid for each in providers))
    started, used = time.monotonic(), _cpu_s(*pids)
    process.next_report()
    while True:
        number = len(outcome.samples)
        report = process.play(number)
        if report is None or report["type"] == "hang":
            return report
        # A request that was reset a moment ago may not have been seen yet.
        time.sleep(0.05)
        drawn = round_of(outcome.seed, number)
        logs = [each.log() for each in providers]
        for each in providers:
            each.clear()
        outcome.judge.round_is_over(drawn, report, logs)
        outcome.seconds, outcome.cpu_s = time.monotonic() - started, _cpu_s(*pids) - used
        names = ("resident", "descriptors", "threads", "blocks", "bare", "opened")
        outcome.samples.append({"minute": outcome.seconds / 60, **{name: report[name] for name in names}})
        begun(outcome)
        if drawn.bare and (outcome.seconds >= seconds or len(outcome.failures) >= _STOP_AT):
            return None
        behind = outcome.cpu_s / cores - outcome.seconds
        if behind > 0:
            time.sleep(min(behind, max(0.0, seconds - outcome.seconds)))
