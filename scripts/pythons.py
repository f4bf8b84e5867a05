"""Run the tests with every Python that fastlane is for and that is here, on the wheel as it would be installed.

    python -m scripts.pythons                       all tests with each (about 15 minutes for one)
    python -m scripts.pythons --quick               the contract, the transport and the client's core (about a minute)
    python -m scripts.pythons --others --quick      without the Python that runs this
    python -m scripts.pythons --python 3.13         one of them, by its version or its path; may be given again
    python -m scripts.pythons -- tests/plays -x     what follows goes to pytest

Looked for on the PATH, among those of pyenv and uv, and in /opt and /usr/local. Each gets a virtual environment of its
own, .venv-python-3.x, with the wheel and what the tests need, as far as that installs for it; what does not is named.

Exit codes: 0 where all tests passed, 1 where some did not or nothing could be installed, 2 for a Python that is not
here.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.table import Table

from scripts import wheel
from scripts.environments import ROOT, uv_program

OLDEST, NEWEST = (3, 11), (3, 14)
_EXTRAS = ("bench", "charts", "httpx", "test")
_NAME = re.compile(r"python3\.(\d+)$")
_INSTALL_S = 900.0

QUICK = (
    "tests/contract", "tests/test_call.py", "tests/test_decode.py", "tests/protocol/test_events.py",
    "tests/test_pipeline.py", "tests/test_send.py", "tests/test_stream.py", "tests/transport/test_fork.py",
    "tests/transport/test_loops.py", "tests/transport/test_records.py", "tests/transport/test_tls.py",
    "tests/transport/test_trust.py",
)  # fmt: skip
"""What breaks first with another Python: event loops, TLS, typing, garbage collection, compiled decoders."""


class InterpreterError(RuntimeError):
    """A Python that was asked for is not here, or cannot be used: the message says why."""


@dataclass(slots=True)
class Run:
    """What came of one Python."""

    version: str
    left_out: list[str] = field(default_factory=list)
    """Requirements that cannot be installed for it."""
    passed: int = 0
    skipped: int = 0
    failed: list[str] = field(default_factory=list)
    """Tests that failed."""
    seconds: float = 0.0
    problem: str | None = None
    """Why there was no test."""


def interpreters() -> dict[tuple[int, int], Path]:
    """Return the Pythons that are here, by their versions; of several of one version the one that is found first."""
    found: dict[tuple[int, int], Path] = {}
    for path in _candidates():
        version = _version(path)
        if version is not None and OLDEST <= version[:2] <= NEWEST:
            found.setdefault(version[:2], path)
    return dict(sorted(found.items()))


def _candidates() -> Iterator[Path]:
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    kept = [Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"]
    kept.append(Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or Path.home() / ".local/share/uv/python"))
    for root in kept:
        # The newest first, by its number and not by its letters.
        folders += sorted((one / "bin" for one in root.glob("*3.*")), key=_numbers, reverse=True)
    folders += [*Path("/opt").glob("*/bin"), *Path("/opt").glob("*/usr/bin"), Path("/usr/local/bin")]
    for folder in folders:
        # Those of pyenv's `shims` start whichever is chosen where they are called.
        if folder.name != "shims" and folder.is_dir():
            yield from (path for path in sorted(folder.glob("python3.*")) if _NAME.search(path.name))


def _numbers(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path.parent.name)]


def _version(python: Path) -> tuple[int, int, int] | None:
    command = [str(python), "-I", "-c", "import sys, ssl, sqlite3, venv; print(*sys.version_info[:3])"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        major, minor, patch = (int(part) for part in done.stdout.split())
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return major, minor, patch


def chosen(names: Sequence[str], *, others: bool) -> list[Path]:
    """Return the Pythons that were asked for, or all. Raises InterpreterError where one is not here."""
    here = interpreters()
    if not names:
        return [path for version, path in here.items() if not others or version != sys.version_info[:2]]
    found = []
    for name in names:
        path = next((path for version, path in here.items() if "{}.{}".format(*version) == name), Path(name))
        if _version(path) is None:
            there = ", ".join("{}.{}".format(*version) for version in here) or "none"
            raise InterpreterError(f"{name} is no Python that can be used: here are {there}")
        found.append(path)
    return found


class Environment:
    """A virtual environment for one Python, with the wheel and what its tests need."""

    def __init__(self, python: Path, version: str) -> None:
        self.home = ROOT / f".venv-python-{'.'.join(version.split('.')[:2])}"
        self.python = self.home / "bin" / "python"
        self._made_by = python

    def install(self, built: Path) -> list[str]:
        """Install the wheel, and what its tests need where that is not there yet; what cannot be. Raises BuildError."""
        decisive = (ROOT / "pyproject.toml").read_bytes() + (ROOT / "constraints.txt").read_bytes()
        stamp = self.home / f".installed-{zlib.crc32(decisive + str(self._made_by).encode()):08x}"
        if not stamp.exists():
            shutil.rmtree(self.home, ignore_errors=True)
            self._do([str(self._made_by), "-m", "venv", "--without-pip", str(self.home)])
            stamp.write_text("\n".join(self._needs(built)), encoding="utf-8")
        self._add("--no-deps", "--force-reinstall", str(built))
        return stamp.read_text("utf-8").split("\n") if stamp.stat().st_size else []

    def _needs(self, built: Path) -> list[str]:
        try:
            self._add(f"{built}[{','.join(_EXTRAS)}]")
        except wheel.BuildError:
            self._add(str(built))
        else:
            return []
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
        left_out = []
        for requirement in sorted({one for extra in _EXTRAS for one in extras[extra]}):
            try:
                self._add(requirement)
            except wheel.BuildError:
                left_out.append(re.split(r"[<>=;]", requirement)[0])
        return left_out

    def _add(self, *what: str) -> None:
        """Install something: by uv, which takes seconds, and by pip where that is not here, or could not."""
        options = ("--quiet", "--constraint", str(ROOT / "constraints.txt"), *what)
        if uv := uv_program():
            try:
                return self._do([uv, "pip", "install", "--no-config", "--python", str(self.python), *options])
            except wheel.BuildError:
                pass  # pip knows indexes that uv was not told of
        return self._do([sys.executable, "-m", "pip", "--python", str(self.python), "install", *options])

    @staticmethod
    def _do(command: Sequence[str]) -> None:
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_INSTALL_S, env=kept, check=False, cwd=ROOT
            )
        except subprocess.TimeoutExpired as error:
            raise wheel.BuildError(f"{command[-1]}: not installed within {_INSTALL_S:.0f} s") from error
        if done.returncode:
            raise wheel.BuildError("\n".join(done.stderr.strip().splitlines()[-3:]))

    def tree(self, place: Path) -> None:
        """Lay the repository out at a place, with the installed package where its own folder would be."""
        for name in wheel.sources():
            if name.parts[0] != "fastlane":
                copy = place / name
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, copy)
        packages = next(self.home.glob("lib/python3.*/site-packages/fastlane"))
        (place / "fastlane").symlink_to(packages, target_is_directory=True)

    def test(self, place: Path, arguments: Sequence[str], run: Run) -> None:
        """Run tests at a place, and note what came of them."""
        report = place / "report.xml"
        command = [str(self.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *arguments]
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        done = subprocess.run(command, cwd=place, env=kept, check=False, stdout=sys.stderr)
        if not report.exists():
            run.problem = f"pytest ended with exit code {done.returncode} and no report"
            return
        (suite,) = ElementTree.parse(report).getroot().iter("testsuite")
        run.failed = [
            f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
            for case in suite.iter("testcase")
            if case.find("failure") is not None or case.find("error") is not None
        ]
        run.skipped = int(suite.get("skipped", 0))
        run.passed = int(suite.get("tests", 0)) - run.skipped - len(run.failed)
        run.seconds = float(suite.get("time", 0))
        if done.returncode and not run.failed:
            run.problem = f"pytest ended with exit code {done.returncode}"


def _run(python: Path, built: Path, arguments: Sequence[str]) -> Run:
    version = ".".join(map(str, _version(python) or ()))
    run = Run(version)
    print(f"Python {version} ({python})", file=sys.stderr, flush=True)
    environment = Environment(python, version)
    try:
        run.left_out = environment.install(built)
    except wheel.BuildError as error:
        run.problem = str(error)
        return run
    with tempfile.TemporaryDirectory(prefix="fastlane-python-") as place:
        environment.tree(Path(place))
        environment.test(Path(place), arguments, run)
    return run


def _print(runs: Sequence[Run]) -> None:
    table = Table(box=None, pad_edge=False)
    for title in ("Python", "passed", "failed", "skipped", "seconds", "could not be installed"):
        table.add_column(title, overflow="fold")
    for run in runs:
        counts = (str(run.passed), str(len(run.failed)), str(run.skipped), f"{run.seconds:.0f}")
        table.add_row(run.version, *counts, run.problem or ", ".join(run.left_out) or "-")
    Console(width=None if sys.stdout.isatty() else 160, highlight=False).print(table)
    for run in runs:
        for test in run.failed:
            print(f"{run.version}: {test}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says, and return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    own, further = (given[: given.index("--")], given[given.index("--") + 1 :]) if "--" in given else (given, [])
    parser = argparse.ArgumentParser(
        prog="python -m scripts.pythons", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", action="append", default=[], metavar="VERSION|PATH", help="one that is to be used")
    parser.add_argument("--others", action="store_true", help="leave out the version that runs this")
    parser.add_argument("--newest", action="store_true", help="of all of them only the newest")
    parser.add_argument("--quick", action="store_true", help="only what breaks first with another Python")
    asked = parser.parse_args(own)
    try:
        pythons = chosen(asked.python, others=asked.others)[-1 if asked.newest else 0 :]
    except InterpreterError as error:
        print(error, file=sys.stderr)
        return 2
    if not pythons:
        wanted = "other than this one " if asked.others else ""
        print(f"SKIPPED no Python {wanted}from 3.{OLDEST[1]} to 3.{NEWEST[1]} is here: no test ran")
        return 0
    tests = further or (list(QUICK) if asked.quick else [])
    with tempfile.TemporaryDirectory(prefix="fastlane-wheel-") as place:
        try:
            built, _, _ = wheel.build(Path(place))
        except wheel.BuildError as error:
            print(error, file=sys.stderr)
            return 1
        runs = [_run(python, built, tests) for python in pythons]
    _print(runs)
    return int(any(run.failed or run.problem for run in runs))


if __name__ == "__main__":
    sys.exit(main())
