"""openai's own tests, run by pytest with our clients in the place of openai's, or with openai's own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.conformance.judging import Results, Side

HERE = Path(__file__).resolve().parent
SUITES = ("quick", "offline", "full")

# What tests openai's repository (its lock files and workflows), which no client can change.
_ABOUT_THE_REPOSITORY = (
    "tests/test_uv_workflows.py",
    "tests/test_consumer_compatibility.py",
    "tests/test_dependency_constraints.py",
)
# What is answered by the mock server.
_NEED_A_SERVER = ("tests/api_resources", "tests/lib/test_fine_tuning_positional_arguments.py")
# They replay streams that openai's source distribution does not carry.
_RECORDED = "tests/lib/chat/test_completions_streaming.py"
# The suite's own plugins alone, whatever else is installed beside them.
_PLUGINS = (
    "xdist.plugin",
    "pytest_timeout",
    "pytest_asyncio.plugin",
    "anyio.pytest_plugin",
    "inline_snapshot.pytest_plugin",
)
_PLUGINS_OF_2 = ("respx.plugin", "time_machine")
# Seconds for one test, the longest of which takes three: what hangs ends its process, and counts as failed.
_TEST_LIMIT_S = 200
# Seconds for all of them, several times what a busy machine takes.
_LIMIT_S = 3600

# Some tests send themselves SIGINT, which a shell's background job ignores: back to the default first.
_START = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, "-m", "pytest", *sys.argv[1:]])
"""


class SuiteError(Exception):
    """The suite cannot be run, which says nothing about a client."""


@dataclass(frozen=True, slots=True)
class Clients:
    """The module whose clients replace openai's."""

    module: str
    scope: Literal["core", "all"] = "core"
    # What replaces the default plays, as written between the brackets of `only_plays=[...]`.
    plays: str = ""


@dataclass(frozen=True, slots=True)
class Suite:
    """Tests of one release, and how they are run."""

    python: Path
    # The release's source distribution.
    source: Path
    files: Sequence[str]
    clients: Clients
    # What came of each run, and pytest's own words.
    results: Path
    ignored: Sequence[str] = ()
    plugins: Sequence[str] = _PLUGINS
    api_url: str = "http://127.0.0.1:9"

    def run(
        self,
        side: Side,
        name: str,
        *,
        files: Sequence[str] | None = None,
        only: Collection[str] | None = None,
        without: Collection[str] = (),
        alone: bool = False,
    ) -> Results:
        """Run all tests or those of some files, and of them only some or all but some; one at a time where `alone`.

        Raises SuiteError if pytest did not finish.
        """
        self.results.mkdir(parents=True, exist_ok=True)
        report = self.results / f"{name}.report"
        for left in self.results.glob(f"{name}.*"):
            left.unlink()
        environment = self._environment(side, report)
        for variable, tests in (("ONLY", only), ("WITHOUT", without)):
            if tests:
                listed = self.results / f"{name}.{variable.lower()}"
                listed.write_text("".join(f"{test}\n" for test in sorted(tests)))
                environment[f"FASTLANE_CONFORMANCE_{variable}"] = str(listed)
        words = self.results / f"{name}.log"
        with words.open("wb") as log:
            process = subprocess.Popen(
                [
                    self.python,
                    "-c",
                    _START,
                    *self._arguments(processes=1 if alone else 2),
                    *(files or self.files),
                ],
                cwd=self.source,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            try:
                process.wait(_LIMIT_S)
            except BaseException as error:
                # Its workers end where they can no longer read from it.
                process.kill()
                process.wait()
                if isinstance(error, subprocess.TimeoutExpired):
                    raise SuiteError(f"pytest did not end within {_LIMIT_S} s: see {words}") from None
                raise
        return _read(report, words)

    def _environment(self, side: Side, report: Path) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("OPENAI_", "AZURE_", "AWS_", "FASTLANE_", "OTEL_", "PYTEST_", "PYTHON"))
        }
        ours = side == "ours"
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[1])]),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "TEST_API_BASE_URL": self.api_url,
            "FASTLANE_CONFORMANCE_MODULE": self.clients.module if ours else "",
            "FASTLANE_CONFORMANCE_SCOPE": self.clients.scope,
            "FASTLANE_CONFORMANCE_PLAYS": self.clients.plays,
            "FASTLANE_CONFORMANCE_REPORT": str(report),
        }

    def _arguments(self, *, processes: int) -> list[str]:
        return [
            *(argument for plugin in (*self.plugins, "fastlane_conformance") for argument in ("-p", plugin)),
            "-p", "no:cacheprovider", "-q", "--tb=short", "-o", "addopts=", "--continue-on-collection-errors",
            f"--timeout={_TEST_LIMIT_S}", "--timeout-method=thread",
            # In processes of their own: one that takes its process with it leaves the others.
            "--numprocesses", str(processes),
            *(f"--ignore={file}" for file in self.ignored),
        ]  # fmt: skip


def files_and_ignored(source: Path, suite: str) -> tuple[list[str], list[str]]:
    """What a release has of a suite ("quick", "offline", "full"), and what of it is left out."""
    ignored = list(_ABOUT_THE_REPOSITORY)
    if not any((source / ".inline-snapshot" / "external").glob("*.bin")):
        ignored.append(_RECORDED)
    if suite == "quick":
        return [file for file in lines(HERE / "quick.txt") if (source / file).exists()], ignored
    return ["tests"], ignored if suite == "full" else [*ignored, *_NEED_A_SERVER]


def plugins_for(version: str) -> tuple[str, ...]:
    """The pytest plugins that a release's tests are written for."""
    return (*_PLUGINS, *_PLUGINS_OF_2) if version.startswith("2.") else _PLUGINS


def lines(file: Path) -> list[str]:
    """The lines of a list, without comments."""
    return [line for line in file.read_text().splitlines() if line and not line.startswith("#")]


def _read(report: Path, words: Path) -> Results:
    collected, outcomes = report.with_suffix(".collected"), report.with_suffix(".outcomes")
    if not outcomes.exists():
        raise SuiteError(f"pytest did not run: see {words}\n{''.join(words.read_text(errors='replace')[-2000:])}")
    found = json.loads(outcomes.read_text())
    tests = json.loads(collected.read_text()) if collected.exists() else []
    return Results(frozenset(tests), found["outcomes"], tuple(found["uncollected"]))
