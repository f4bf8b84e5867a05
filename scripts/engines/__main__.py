"""Bench a real engine on this machine: `transformers serve`, a model of GPT-2's shape, the lengths of a report.

    python -m scripts.engines                     a report, and raw records, in bench-results/
    python -m scripts.engines --install           installs what it needs, and makes the model, and nothing else
    python -m scripts.engines -- --users 1,2      what follows `--` goes to `fastlane bench run`

The first run installs the engine: minutes, and 1.5 GB.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.environments import ROOT, environment
from scripts.servers import HttpServer, UnavailableError

_HOME = ROOT / ".venv-engines"
_HERE = Path(__file__).parent
_REPORTS = ROOT / "bench-results/local-transformers"
# 128 tokens in and 64 out, 512 and 128, 1,024 and 256: one request for warm-up, and of each arm eight that count. A
# median has an interval from six on; the report that the lengths come from has five.
_BENCH = (
    *("--workload", "cpu-small", "--kind", "sweep", "--arms", "baseline,fastlane", "--no-again"),
    *("--conversations", "8", "--passes", "1", "--budget-s", "0", "--limit-field", "max_completion_tokens"),
    *("--folder", str(_REPORTS), "-o", f"{_REPORTS}.html", "-o", f"{_REPORTS}.md", "--full"),
)


def _program(name: str) -> str:
    """Return the path of a program of the engine's environment. Raises UnavailableError."""
    pins = _HERE / "constraints-transformers.txt"
    home = environment(_HOME / "transformers", ("transformers[serving]", "torch"), pins=pins, limit_s=1_800.0)
    return str(home / "bin" / name)


class _Transformers(HttpServer):
    """`transformers serve`."""

    name = "transformers"
    health = "/health"

    def __init__(self) -> None:
        super().__init__()
        self._serve = _program("transformers")
        self.model = _HOME / "gpt2-random"
        if not self.model.exists():
            unfinished = self.model.with_name(f"{self.model.name}.unfinished")
            command = [_program("python"), str(_HERE / "_make_model.py"), str(unfinished)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300.0, check=False)
            if done.returncode:
                raise UnavailableError("_make_model.py fails:\n" + "\n".join(done.stderr.splitlines()[-5:]))
            unfinished.rename(self.model)

    def _command(self) -> list[str]:
        # That one model, on the CPU, one request after the other.
        (self.directory / "hub").mkdir(exist_ok=True)
        place = ("--host", "127.0.0.1", "--port", str(self.port))
        how = ("--device", "cpu", "--dtype", "float32", "--no-continuous-batching")
        return [self._serve, "serve", str(self.model), *place, *how]

    def _environment(self) -> Mapping[str, str]:
        # A home of its own, and no look at any hub.
        return {"HF_HOME": str(self.directory), "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.engines", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--install", action="store_true", help="install the engine and make the model only")
    parser.add_argument("bench", nargs="*", help="arguments of `fastlane bench run`, behind --")
    given = parser.parse_args(arguments)
    try:
        engine = _Transformers()
        if given.install:
            print(engine.model)
            return 0
        with engine:
            run = (sys.executable, "-m", "fastlane", "bench", "run", "--base-url", f"{engine.url}/v1")
            command = (
                *run,
                "--model",
                str(engine.model),
                "--api-key-env",
                "FASTLANE_ENGINE_KEY",
                *_BENCH,
                *given.bench,
            )
            done = subprocess.run(command, env={**os.environ, "FASTLANE_ENGINE_KEY": "none"}, check=False)
    except UnavailableError as error:
        print(error, file=sys.stderr)
        return 1
    place = _REPORTS.relative_to(ROOT)
    print(f"reports: {place}.html, .md; raw records in {place}/", file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
