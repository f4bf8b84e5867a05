"""`make nightly`: what takes too long for each change. It keeps what came of it in tests/last_full_run.json.

python -m tests.nightly                     all parts, some hours
python -m tests.nightly --only soak         one of them; may be given again
python -m tests.nightly --short             a short form of each part, where it has one
python -m tests.nightly --age               how old the results are; 1 where one is bad or too old
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("last_full_run.json")
OLDEST_DAYS = 14

TOOLS = "tests/batch tests/bench tests/doctor tests/emulator tests/reports tests/telemetry tests/traces"
ELSEWHERE = " ".join(f"--ignore={folder}" for folder in f"tests/plays tests/transport {TOOLS}".split())

WHOLE: dict[str, tuple[str, ...]] = {
    "all cases of tests/transport": ("make", "test-all", "ARGS=tests/transport"),
    "all cases of tests/plays": ("make", "test-all", "ARGS=tests/plays"),
    "all cases of the tools' tests": ("make", "test-all", f"ARGS={TOOLS}"),
    "all other cases": ("make", "test-all", f"ARGS={ELSEWHERE}"),
    "conformance": ("make", "conformance-release"),
    "openai 2.47.0 and 3.3.1": (".ci/run", "openai-2.47.0", "openai-3.3.1"),
    "frameworks": ("make", "frameworks"),
    "pythons": ("make", "pythons", "ARGS=--others"),
    "soak": ("make", "soak"),
    "fuzz": ("make", "fuzz"),
    "faults": ("make", "faults"),
    "150 ms late": ("make", "test-all", "ARGS=--late-ms=150 tests/attempts tests/transport/test_timeouts.py"),
    "400 ms late": ("make", "test-all", "ARGS=--late-ms=400 tests/attempts tests/transport/test_timeouts.py"),
    "backends": ("make", "test-backends"),
}
SHORT: dict[str, tuple[str, ...]] = {
    "conformance": ("make", "conformance"),
    "pythons": ("make", "pythons", "ARGS=--others --quick"),
    "soak": ("make", "soak", "ARGS=--minutes 5"),
    "fuzz": ("make", "test-all", "ARGS=tests/fuzz"),
    "faults": ("make", "test-all", "ARGS=tests/faults"),
}


def run(part: str, *, short: bool) -> dict[str, Any]:
    """Run a part, and return what is kept of it."""
    command = SHORT.get(part, WHOLE[part]) if short else WHOLE[part]
    print(f"==> {part}: {' '.join(command)}", flush=True)
    begun_s = time.monotonic()
    passed = passes(command)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _git("rev-parse", "--short=12", "HEAD")
        + ("+changes" if _git("status", "--porcelain", "-uno", "--", f":!tests/{FILE.name}") else ""),
        "command": " ".join(command),
        "seconds": round(time.monotonic() - begun_s),
        "passed": passed,
    }


def passes(command: tuple[str, ...]) -> bool:
    """Run a command, and return whether it passed."""
    # A make that is started by another takes the ARGS of that one for its own.
    environment = {name: value for name, value in os.environ.items() if name not in ("ARGS", "MAKEFLAGS")}
    return subprocess.run(command, env=environment, check=False).returncode == 0


def _git(*arguments: str) -> str:
    return subprocess.run(("git", *arguments), capture_output=True, text=True, check=True).stdout.strip()


def kept() -> dict[str, dict[str, Any]]:
    """Return the results of the last run of each part."""
    results: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return results


def ages(results: dict[str, dict[str, Any]], today: date, *, release: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield a line for each part, and whether that is as it should be."""
    for part, whole in WHOLE.items():
        if (result := results.get(part)) is None:
            yield f"{part}: has never run", not release
            continue
        days = (today - date.fromisoformat(result["date"])).days
        verdict = "passed" if result["passed"] else "FAILED"
        line = f"{part}: {verdict} {days} days ago at {result['commit']} in {result['seconds']} s: {result['command']}"
        is_enough = not release or result["command"] == " ".join(whole)
        yield line, result["passed"] and days <= OLDEST_DAYS and is_enough


def main() -> int:
    """Run parts, or print how old their results are."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.nightly", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=WHOLE, metavar="PART", help=", ".join(WHOLE))
    parser.add_argument("--short", action="store_true", help="run the short form of each part")
    age = f"run nothing; fail where a result is bad or over {OLDEST_DAYS} days old"
    parser.add_argument("--age", action="store_true", help=age)
    parser.add_argument("--release", action="store_true", help="fail, too, where a part is missing or ran in short")
    options = parser.parse_args()
    parts = [] if options.age else options.only or list(WHOLE)
    for part in parts:
        result = run(part, short=options.short)
        # Read again: another part may have run beside this one.
        FILE.write_text(json.dumps({**kept(), part: result}, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    # A change is judged by the day of its commit: judged again later, it is judged alike. A release is judged by today.
    commit_day, today = date.fromisoformat(_git("log", "-1", "--format=%cs")), datetime.now(UTC).date()
    lines = list(ages(kept(), today if options.release else commit_day, release=options.release))
    for line, good in lines:
        print(f"{'    ' if good else '==> '}{line}")
    judged = [good for line, good in lines if not parts or line.partition(":")[0] in parts]
    return 0 if all(judged) else 1


if __name__ == "__main__":
    sys.exit(main())
