"""One target fuzzed in a process of its own: guided by coverage where atheris is there, else by chance."""

from __future__ import annotations

import argparse
import importlib
import json
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

MOST_BYTES = 4_096
_TOLD_EVERY_S = 1.0


class _Watch:
    """Tries inputs, and writes down every second how many there were and what they showed."""

    def __init__(self, target: Target, folder: Path) -> None:
        from tests.fuzz.failures import kept, smallest, tried

        self._target, self._file = target, folder / "counts.json"
        self._tried, self._smallest, self._kept = tried, smallest, kept
        self._counts: dict[str, Any] = {"inputs": 0, "slowest_s": 0.0, "slowest": "", "failures": {}}
        self._began = self._told = time.monotonic()
        self.tell()

    def one(self, data: bytes) -> None:
        began = time.process_time()
        failure = self._tried(self._target, data)
        took = time.process_time() - began
        counts = self._counts
        counts["inputs"] += 1
        if took > counts["slowest_s"]:
            counts["slowest_s"], counts["slowest"] = took, data.hex()
        if failure is not None and failure.place not in counts["failures"]:
            counts["failures"][failure.place] = ""
            counts["failures"][failure.place] = str(self._kept(self._target, self._smallest(self._target, failure)))
            self.tell()
        if time.monotonic() - self._told > _TOLD_EVERY_S:
            self.tell()

    def tell(self) -> None:
        """Write the counts down; nobody sees half of them."""
        self._told = time.monotonic()
        self._counts["seconds"] = self._told - self._began
        beside = self._file.with_suffix(".new")
        beside.write_text(json.dumps(self._counts))
        beside.replace(self._file)


def _by_chance(watch: _Watch, target: Target, seconds: float, seed: int) -> None:
    from tests.fuzz.mutating import mutate

    draw, seeds = random.Random(f"{target.name} {seed}"), list(target.seeds())
    until = time.monotonic() + seconds
    for data in seeds:
        watch.one(data)
    while time.monotonic() < until:
        # Every third is nothing but chance, which draws what no change of a seed draws.
        fresh = draw.randrange(3) == 0
        watch.one(draw.randbytes(draw.randrange(400)) if fresh else mutate(seeds, draw, MOST_BYTES))
    watch.tell()


def _by_coverage(atheris: Any, watch: _Watch, target: Target, folder: Path, seconds: float, seed: int) -> None:
    for name in ("corpus", "seeds"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(target.seeds()):
        (folder / "seeds" / f"{number:03}").write_bytes(data)
    options = [
        f"-max_total_time={seconds:.0f}", f"-max_len={MOST_BYTES}", f"-seed={seed % 2**31 or 1}", "-timeout=60",
        "-rss_limit_mb=4096", f"-artifact_prefix={folder}/stopped-", "-verbosity=0", "-len_control=20",
        "-use_value_profile=1",
    ]  # fmt: skip
    atheris.Setup([sys.argv[0], *options, str(folder / "corpus"), str(folder / "seeds")], watch.one)
    atheris.Fuzz()  # which does not return


def _target(name: str) -> Target:
    from tests.fuzz.targets import TARGETS

    return TARGETS[name]


def main() -> int:
    """Fuzz for some seconds."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.worker", description=__doc__)
    parser.add_argument("target")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--coverage", action="store_true", help="guided by coverage: needs atheris")
    options = parser.parse_args()
    if not options.coverage:
        target = _target(options.target)
        _by_chance(_Watch(target, options.folder), target, options.seconds, options.seed)
        return 0
    # In an environment of its own, which type checks know nothing of.
    atheris: Any = importlib.import_module("atheris")

    # Only what is imported in here tells which of its branches were taken.
    with atheris.instrument_imports(include=["fastlane"]):
        target = _target(options.target)
    _by_coverage(atheris, _Watch(target, options.folder), target, options.folder, options.seconds, options.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
