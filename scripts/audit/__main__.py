"""Check the package from outside: dependencies, the wheel, an empty environment, and the README's first example in it.

    python -m scripts.audit                         all of it
    python -m scripts.audit --only wheel import     some of it
    python -m scripts.audit --json                  prints one line of JSON in place of the table

advisories  pip-audit, over the versions of constraints.txt
wheel       wheel and source distribution, built several times and compared byte for byte, and what the wheel holds
import      the wheel without extras in an empty environment: what it brings; what `import fastlane` loads and opens
example     the README's first example there, against the emulator; once more with the extra `bench`, and its emulator

Exit codes: 0 where nothing is broken (what is skipped says why), 1 where something is, 2 for input that cannot work.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from scripts import wheel
from scripts.audit import _advisories, _empty
from scripts.audit._finding import Finding, timed

PARTS = ("advisories", "wheel", "import", "example")
_COLOURS = {"holds": "green", "broken": "red", "skipped": "yellow"}


class Audit:
    """The parts, which build on one another: the wheel is what is installed, and what is installed makes the call."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._wheel: tuple[Path, list[Finding]] | None = None
        self._environment: _empty.Environment | None = None

    def advisories(self) -> Sequence[Finding]:
        """Look for advisories."""
        return _advisories.findings()

    def wheel(self) -> Sequence[Finding]:
        """Build and compare."""
        return self._built()[1]

    def imported(self) -> Sequence[Finding]:
        """Install and import."""
        return list(_empty.imported(self._installed(), self._built()[0], self._elsewhere()))

    def example(self) -> Sequence[Finding]:
        """Make a call without extras, and with the documented one."""
        environment, cwd = self._installed(), self._elsewhere()
        environment.install(str(self._built()[0]))
        # Its provider runs in this environment, since it is in an extra.
        own = (sys.executable, "-m", "fastlane")
        found = list(_empty.called(environment, "without extras", own, cwd))
        environment.install(f"{self._built()[0]}[bench]")
        command = (str(environment.python.with_name("fastlane")),)
        return [*found, *_empty.called(environment, "with the extra `bench` and its emulator", command, cwd)]

    def _built(self) -> tuple[Path, list[Finding]]:
        if self._wheel is None:
            built, _, findings = wheel.build(self._place / "dist")
            self._wheel = built, findings
        return self._wheel

    def _installed(self) -> _empty.Environment:
        if self._environment is None:
            self._environment = _empty.Environment(self._place / "environment")
        return self._environment

    def _elsewhere(self) -> Path:
        """A folder in which Python finds nothing of the repository."""
        folder = self._place / "elsewhere"
        folder.mkdir(exist_ok=True)
        return folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.audit", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    asked = parser.parse_args(arguments)
    console = Console(stderr=True)
    found: list[Finding] = []
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="fastlane-audit-") as temporary:
        audit = Audit(Path(temporary))
        parts: dict[str, Callable[[], Sequence[Finding]]] = {
            "advisories": audit.advisories,
            "wheel": audit.wheel,
            "import": audit.imported,
            "example": audit.example,
        }
        for name in PARTS:
            if name not in asked.only:
                continue
            with console.status(name):
                try:
                    these, seconds[name] = timed(parts[name])
                except (wheel.BuildError, _empty.EmptyError) as error:
                    these = [Finding(name, "it can be checked", "broken", str(error))]
            found += these
    broken = sum(finding.outcome == "broken" for finding in found)
    if asked.json:
        took = {name: round(took_s, 1) for name, took_s in seconds.items()}
        print(json.dumps({"broken": broken, "seconds": took, "findings": [finding.to_dict() for finding in found]}))
    else:
        _print(found, seconds)
    return int(broken > 0)


def _print(found: Sequence[Finding], seconds: dict[str, float]) -> None:
    table = Table(box=None, pad_edge=False)
    for title in ("part", "", "what", "found"):
        table.add_column(title, overflow="fold")
    for one in found:
        table.add_row(one.part, f"[{_COLOURS[one.outcome]}]{one.outcome}[/]", one.what, one.said)
    Console(width=None if sys.stdout.isatty() else 160, highlight=False).print(table)
    skipped = [f"{one.part}: {one.what}" for one in found if one.outcome == "skipped"]
    took = ", ".join(f"{name} {took_s:.0f} s" for name, took_s in seconds.items())
    holds = sum(one.outcome == "holds" for one in found)
    broken = len(found) - holds - len(skipped)
    print(f"{holds} hold, {broken} broken, {len(skipped)} skipped ({took})")


if __name__ == "__main__":
    sys.exit(main())
