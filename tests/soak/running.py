"""Starts the providers and the process that makes the calls, has it play round after round, and judges each."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastlane.emulator import Emulator, ProviderModel
from tests.soak.asking import EMULATOR_SEED
from tests.soak.clients import KEY_VARIABLE
from tests.soak.judging import Failure, Flat, Judge, flatness
from tests.soak.plan import round_of

_ROUND_HANGS_S = 600.0
_STOP_AT = 20
"""Failures with which a run ends early."""
# Prompts are read and answers written at once, with a first token that is late now and then, so that hedges are made.
_MODEL = ProviderModel(
    name="soak", prefill_base_s=0.012, inter_token_s=0.0004, late_share=0.03, late_factor=12, manner="echo",
    default_output_tokens=20,
)  # fmt: skip


@dataclass(slots=True)
class Outcome:
    """What a run came to."""

    seed: int
    judge: Judge
    samples: list[dict[str, Any]] = field(default_factory=list)
    rounds: int = 0
    clients: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    flat: Flat | None = None
    blocks: Flat | None = None
    """Not judged: what tells memory that is in use from memory that is only held."""

    @property
    def failures(self) -> list[Failure]:
        """What must not be."""
        return self.judge.failures


@contextlib.contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Have processes that are started meanwhile write their stderr into a file."""
    kept = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _cpu_s(*pids: int) -> float:
    """Seconds of CPU that processes and the children that they waited for have taken; 0 where nobody says."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return total


class _Process:
    """The process that makes the calls."""

    def __init__(self, seed: int, h2: str, h1: str, authorities: Path, scratch: Path, forget_every: int) -> None:
        asked, ask = os.pipe()
        tell, told = os.pipe()
        settings = {"asked": asked, "told": told, "seed": seed, "h2": h2, "h1": h1, "scratch": str(scratch)}
        settings["forget_every"] = forget_every
        self.errors = scratch / "stderr.txt"
        with self.errors.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.soak.process", json.dumps(settings)],
                pass_fds=(asked, told),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**os.environ, "SSL_CERT_FILE": str(authorities), KEY_VARIABLE: "soak", "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
        os.close(asked)
        os.close(told)
        self._ask, self._told = os.fdopen(ask, "w"), os.fdopen(tell)

    @property
    def pid(self) -> int:
        """Its id."""
        return self._process.pid

    def ask(self, **what: Any) -> None:
        """Tell it what to do."""
        self._ask.write(json.dumps(what) + "\n")
        self._ask.flush()

    def told(self) -> dict[str, Any] | None:
        """Wait for what it tells; None where it has ended, or hangs so that even its watchdog says nothing."""
        alarm = _after(_ROUND_HANGS_S, lambda: os.kill(self.pid, signal.SIGABRT))
        try:
            line = self._told.readline()
        finally:
            alarm()
        told: dict[str, Any] | None = json.loads(line) if line else None
        return told

    def close(self) -> int:
        """Have it end; its exit code."""
        with contextlib.suppress(BrokenPipeError):
            self._ask.close()
        try:
            code = self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._told.close()
        return code


def _after(seconds: float, do: Callable[[], None]) -> Callable[[], None]:
    import threading

    timer = threading.Timer(seconds, do)
    timer.daemon = True
    timer.start()
    return timer.cancel


def run(
    *,
    seed: int,
    minutes: float,
    cores: float,
    begun: Callable[[Outcome], None],
    forget_every: int = 0,
) -> Outcome:
    """Soak for so many minutes, taking so many cores in the mean, and tell of each round.

    Ends early where much fails, and always behind a round after which every client was closed. After so many rounds
    (`forget_every`; 0: never) what plays have learned is forgotten.
    """
    outcome = Outcome(seed, Judge())
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        scratch = Path(name)
        with _providers(scratch) as providers:
            authorities = scratch / "authorities.pem"
            authorities.write_text("".join(each.certificate_authority.read_text() for each in providers))
            process = _Process(seed, providers[0].base_url, providers[1].base_url, authorities, scratch, forget_every)
            try:
                _rounds(outcome, process, providers, minutes * 60, cores, begun)
            finally:
                code = process.close()
        _said_nothing(outcome, code, process.errors, scratch / "providers.txt")
    outcome.flat, outcome.blocks = (
        flatness([(sample["minute"], sample[name]) for sample in outcome.samples if sample["bare"]])
        for name in ("resident", "blocks")
    )
    if outcome.flat is not None and not outcome.flat.holds:
        outcome.failures.append(Failure("memory", f"resident memory grew by {outcome.flat.growth:.1%}", outcome.rounds))
    return outcome


@contextlib.contextmanager
def _providers(scratch: Path) -> Iterator[list[Emulator]]:
    with contextlib.ExitStack() as stack:
        with _stderr_to(scratch / "providers.txt"):
            providers = [
                stack.enter_context(Emulator(model=_MODEL, seed=EMULATOR_SEED, http2=http2)) for http2 in (True, False)
            ]
        yield providers


def _rounds(
    outcome: Outcome,
    process: _Process,
    providers: list[Emulator],
    seconds: float,
    cores: float,
    begun: Callable[[Outcome], None],
) -> None:
    pids = (process.pid, *(each._process.pid for each in providers))
    started, used = time.monotonic(), _cpu_s(*pids)
    ready = process.told()
    number = 0
    while ready is not None:
        process.ask(number=number)
        told = process.told()
        if told is None or told["type"] == "hang":
            what = "the process ended" if told is None else f"{told['what']} hang"
            outcome.failures.append(Failure("lost", what, number, told and told["stacks"]))
            return
        # A request that was reset a moment ago may not have been seen yet.
        time.sleep(0.05)
        drawn = round_of(outcome.seed, number)
        logs = [each.log() for each in providers]
        for each in providers:
            each.clear()
        outcome.judge.round_is_over(drawn, told, logs)
        elapsed = time.monotonic() - started
        outcome.rounds, outcome.clients, outcome.seconds = number + 1, told["opened"], elapsed
        outcome.cpu_s = _cpu_s(*pids) - used
        names = ("resident", "descriptors", "threads", "objects", "blocks", "bare")
        outcome.samples.append({"minute": elapsed / 60, **{name: told[name] for name in names}})
        begun(outcome)
        if drawn.bare and (elapsed >= seconds or len(outcome.failures) >= _STOP_AT):
            return
        number += 1
        behind = outcome.cpu_s / cores - elapsed
        if behind > 0:
            time.sleep(min(behind, max(0.0, seconds - elapsed)))


def _said_nothing(outcome: Outcome, code: int, *files: Path) -> None:
    if code != 0:
        outcome.failures.append(Failure("lost", f"the process ended with {code}", outcome.rounds))
    for file in files:
        said = file.read_text(errors="replace") if file.exists() else ""
        if said.strip():
            outcome.failures.append(Failure("noises", f"{file.stem}: {said[-20_000:]}", outcome.rounds))
