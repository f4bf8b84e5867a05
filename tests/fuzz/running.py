"""Targets fuzzed one after the other, each in a process of its own, which is stopped where it hangs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.distribution import UnavailableError
from scripts.environments import environment
from tests.fuzz.failures import HOME, ROOT
from tests.fuzz.guard import LIMIT_S

_PINS = Path(__file__).with_name("requirements.txt")
_BEYOND_S = 240.0
"""How much longer than it was told a worker may take: it imports, makes failures smaller, and shares the machine."""
_LOOKED_AT_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fuzzed:
    """What came of one target."""

    inputs: int
    seconds: float
    failures: dict[str, str]
    """By the place: the file with the input."""
    slowest_s: float
    """CPU time of the slowest input."""
    corpus: int
    """Inputs that together take every branch that was taken; 0 where nobody looked."""

    @property
    def told(self) -> dict[str, Any]:
        """For the line of JSON."""
        return {
            "inputs": self.inputs, "seconds": round(self.seconds, 1), "corpus": self.corpus,
            "slowest_s": round(self.slowest_s, 3), "failures": self.failures,
        }  # fmt: skip


def atheris_path() -> Path:
    """Where atheris can be imported from: an environment of its own, made first. Raises UnavailableError."""
    home = environment(ROOT / ".venv-fuzz", ["atheris"], pins=_PINS, limit_s=600, quick=True)
    found = sorted(home.glob("lib/python*/site-packages"))
    if not found:
        raise UnavailableError(f"{home} has no packages")
    return found[0]


def fuzz(name: str, *, seconds: float, seed: int, atheris: Path | None, tell: Callable[[int], None]) -> Fuzzed:
    """Fuzz one target for some seconds; `tell` is told how many inputs there were so far."""
    folder = HOME / name
    folder.mkdir(parents=True, exist_ok=True)
    counts = folder / "counts.json"
    counts.unlink(missing_ok=True)
    for stopped in folder.glob("stopped-*"):
        stopped.unlink()
    paths = [str(ROOT), *([str(atheris)] if atheris else [])]
    # A client that is fuzzed is to be as it is without settings of this shell's.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "FASTLANE_"))}
    command = [sys.executable, "-W", "ignore", "-m", "tests.fuzz.worker", name, str(folder)]
    command += ["--seconds", f"{seconds:g}", "--seed", str(seed), *(["--coverage"] if atheris else [])]
    with (folder / "log.txt").open("wb") as log:
        worker = subprocess.Popen(
            command, cwd=ROOT, env={**kept, "PYTHONPATH": os.pathsep.join(paths)}, stdout=log, stderr=log
        )
        try:
            for read in _watched(worker, counts, seconds):
                tell(int(read["inputs"]))
        finally:
            if worker.poll() is None:
                worker.kill()
            worker.wait()
    return _read(worker.returncode, counts, folder, guided=atheris is not None)


def _watched(worker: subprocess.Popen[bytes], counts: Path, seconds: float) -> Iterator[dict[str, Any]]:
    until = time.monotonic() + seconds + _BEYOND_S
    while worker.poll() is None and time.monotonic() < until:
        if counts.exists():
            yield json.loads(counts.read_text())
        time.sleep(_LOOKED_AT_S)


def _read(code: int, counts: Path, folder: Path, *, guided: bool) -> Fuzzed:
    log = (folder / "log.txt").read_text(errors="replace")
    if not counts.exists():
        raise RuntimeError(f"the worker has not begun, and said: {log[-2_000:]}")
    told = json.loads(counts.read_text())
    failures = dict(told["failures"])
    stopped = sorted(folder.glob("stopped-*"))
    if stopped:
        failures[f"it stopped the process, or took more than {LIMIT_S:g} s"] = str(stopped[0])
    elif code != 0:
        failures[f"the worker ended with {code}: {log[-300:]!r}"] = str(folder / "log.txt")
    corpus = folder / "corpus"
    return Fuzzed(
        inputs=told["inputs"],
        seconds=told["seconds"],
        failures=failures,
        slowest_s=told["slowest_s"],
        corpus=len(list(corpus.iterdir())) if guided and corpus.exists() else 0,
    )
