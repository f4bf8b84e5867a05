"""A pytest plugin that puts another module's clients in the place of openai's, and writes down what came of each test.

FASTLANE_CONFORMANCE_MODULE names the module ("fastlane"; empty: openai's own clients) whose clients are there before
any test is imported. FASTLANE_CONFORMANCE_SCOPE is "core" (OpenAI and AsyncOpenAI) or "all" (the Azure and Bedrock
names too, where the module has them). `openai._client.OpenAI` stays the stock class: openai's own super() calls and its
module-level client are built on it. FASTLANE_CONFORMANCE_PLAYS, a list written as in Python, takes the place of
fastlane's default plays.

FASTLANE_CONFORMANCE_REPORT names the file that is written: which tests were collected, by their ids, what could not be,
and how each ended. Tests whose ids stand in the file FASTLANE_CONFORMANCE_WITHOUT are collected and not run, and where
there is a file FASTLANE_CONFORMANCE_ONLY no others are run than those in it: with ids on its command line, pytest would
run nothing at all where one of them is not there.
"""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

import openai
import pytest

_HOMES = {
    "OpenAI": "openai",
    "AsyncOpenAI": "openai",
    "AzureOpenAI": "openai.lib.azure",
    "AsyncAzureOpenAI": "openai.lib.azure",
    "BedrockOpenAI": "openai.lib.bedrock",
    "AsyncBedrockOpenAI": "openai.lib.bedrock",
}
_CORE = ("OpenAI", "AsyncOpenAI")


def _substitute(module: str, names: tuple[str, ...]) -> None:
    provider = importlib.import_module(module)
    for name in names:
        if name not in _CORE and not hasattr(provider, name):
            continue
        stock, ours = getattr(openai, name), getattr(provider, name)
        if not (isinstance(ours, type) and issubclass(ours, stock)):
            raise pytest.UsageError(f"{module}.{name} must be a subclass of openai.{name}")
        setattr(openai, name, ours)
        setattr(importlib.import_module(_HOMES[name]), name, ours)
    for alias in ("Client", "AsyncClient"):
        setattr(openai, alias, getattr(openai, alias.replace("Client", "OpenAI")))


def _play(module: str, written: str) -> None:
    provider = importlib.import_module(module)
    plays = tuple(eval(f"[{written}]", {}, {name: getattr(provider, name) for name in provider.__all__}))
    # Where a client finds its plays, and where its signature and its tests do not see them.
    configuration = importlib.import_module(f"{module}.client.configuration")
    if not hasattr(configuration, "default_plays"):
        raise pytest.UsageError(f"{module} has no default plays that others could take the place of")
    configuration.default_plays = lambda: plays  # type: ignore[attr-defined]


if os.environ.get("FASTLANE_CONFORMANCE_MODULE"):
    _substitute(
        os.environ["FASTLANE_CONFORMANCE_MODULE"],
        tuple(_HOMES) if os.environ.get("FASTLANE_CONFORMANCE_SCOPE") == "all" else _CORE,
    )
    if os.environ.get("FASTLANE_CONFORMANCE_PLAYS"):
        _play(os.environ["FASTLANE_CONFORMANCE_MODULE"], os.environ["FASTLANE_CONFORMANCE_PLAYS"])


class _Report:
    """What came of the tests. In a process that runs a share of them only what was collected is written."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.outcomes: dict[str, str] = {}
        self.uncollected: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self._write("collected", [item.nodeid for item in items])
        for variable, wanted in (("FASTLANE_CONFORMANCE_WITHOUT", False), ("FASTLANE_CONFORMANCE_ONLY", True)):
            if os.environ.get(variable):
                named = set(Path(os.environ[variable]).read_text().splitlines())
                items[:] = [item for item in items if (item.nodeid in named) is wanted]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.uncollected.add(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # A test is set up, called and torn down: the worst of the three is what counts.
        before = self.outcomes.get(report.nodeid)
        if report.failed or before == "failed":
            self.outcomes[report.nodeid] = "failed"
        elif report.skipped or before == "skipped":
            self.outcomes[report.nodeid] = "skipped"
        elif report.when == "call":
            self.outcomes[report.nodeid] = "passed"

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not hasattr(session.config, "workerinput"):
            self._write("outcomes", {"outcomes": self.outcomes, "uncollected": sorted(self.uncollected)})

    def _write(self, what: str, content: Any) -> None:
        unfinished = self.file.with_suffix(f".{os.getpid()}")
        unfinished.write_text(json.dumps(content))
        unfinished.replace(self.file.with_suffix(f".{what}"))


def pytest_configure(config: pytest.Config) -> None:
    """Write the tests' results if the environment names a file for them."""
    if os.environ.get("FASTLANE_CONFORMANCE_REPORT"):
        config.pluginmanager.register(_Report(Path(os.environ["FASTLANE_CONFORMANCE_REPORT"])))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which classes the suite really saw."""
    seen = ", ".join(f"{name} is {getattr(openai, name).__module__}.{name}" for name in _HOMES if hasattr(openai, name))
    terminalreporter.write_line(f"fastlane_conformance: openai {openai.__version__}; {seen}")
