"""Check the package from outside: dependencies, the wheel, an empty environment, and the README's first example in it.

    python -m scripts.audit                         all of it
    python -m scripts.audit --only wheel import     some of it

advisories  pip-audit, over the versions of constraints.txt
wheel       wheel and source distribution, built several times and compared byte for byte, and what the wheel holds
import      the wheel without extras in an empty environment: what it brings; what `import fastlane` loads and opens
example     the README's first example there, against the emulator; once more with the extra `bench`, and its emulator

Exit codes: 0 where nothing is broken (what is skipped says why), 1 where something is, 2 for input that cannot work.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from rich.console import Console
from rich.table import Table

from scripts import wheel
from scripts.audit import _advisories, _empty
from scripts.wheel import Finding

PARTS = ("advisories", "wheel", "import", "example")
_COLOURS = {"holds": "green", "broken": "red", "skipped": "yellow"}


def _parts(place: Path) -> dict[str, Callable[[], list[Finding]]]:
    """Return the parts, which build on one another: the wheel is installed, and what is installed makes the call."""
    built = cache(lambda: wheel.build(place / "dist"))
    environment = cache(lambda: _empty.Environment(place / "environment"))
    # A folder in which Python finds nothing of the repository.
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()

    def imported() -> list[Finding]:
        return list(_empty.imported(environment(), built()[0], elsewhere))

    def example() -> list[Finding]:
        environment().install(str(built()[0]))
        # Its provider runs in this environment, since it is in an extra.
        own = (sys.executable, "-m", "fastlane")
        found = list(_empty.called(environment(), "without extras", own, elsewhere))
        environment().install(f"{built()[0]}[bench]")
        command = (str(environment().python.with_name("fastlane")),)
        return [*found, *_empty.called(environment(), "with the extra `bench` and its emulator", command, elsewhere)]

    return {
        "advisories": _advisories.findings, "wheel": lambda: built()[2], "import": imported, "example": example,
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.audit", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    asked = parser.parse_args(arguments)
    console = Console(stderr=True)
    found: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="fastlane-audit-") as temporary:
        parts = _parts(Path(temporary))
        for name in PARTS:
            if name in asked.only:
                with console.status(name):
                    try:
                        found += parts[name]()
                    except (wheel.BuildError, _empty.EmptyError) as error:
                        found.append(Finding(name, "it can be checked", "broken", str(error)))
    _print(found)
    return int(any(finding.outcome == "broken" for finding in found))


def _print(found: Sequence[Finding]) -> None:
    table = Table(box=None, pad_edge=False)
    for title in ("part", "", "what", "found"):
        table.add_column(title, overflow="fold")
    for one in found:
        table.add_row(one.part, f"[{_COLOURS[one.outcome]}]{one.outcome}[/]", one.what, one.said)
    Console(width=None if sys.stdout.isatty() else 160, highlight=False).print(table)
    counts = Counter(one.outcome for one in found)
    print(f"{counts['holds']} hold, {counts['broken']} broken, {counts['skipped']} skipped")


if __name__ == "__main__":
    sys.exit(main())
