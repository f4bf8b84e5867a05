"""Run every benchmark, one after the other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_WRONG_ARGUMENTS = 2


def names() -> list[str]:
    """The benchmarks: every script whose name does not begin with an underscore."""
    return sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))


if __name__ == "__main__":
    failed = []
    for name in names():
        code = subprocess.call([sys.executable, "-m", f"benchmarks.{name}", *sys.argv[1:]])
        if code == _WRONG_ARGUMENTS:  # which all of them would say
            sys.exit(code)
        if code:
            failed.append(name)
    sys.exit(f"could not be run: {', '.join(failed)}" if failed else 0)
