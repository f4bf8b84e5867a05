"""Pytest plugin: -p tests.run_report --run-report=FILE writes what was collected, what ran, how long it took and what
failed, as JSON.

The file is written last of all. A run that was interrupted, killed or broken at its end leaves none, or another exit
code than 1.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

_FAILURES: pytest.StashKey[list[dict[str, str]]] = pytest.StashKey()
_COUNTS: pytest.StashKey[dict[str, int]] = pytest.StashKey()
_SECONDS: pytest.StashKey[dict[str, float]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --run-report."""
    parser.addoption("--run-report", metavar="FILE", help="write what ran and what failed into this file, as JSON")


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    """Write the report once pytest has its exit code; an exception at its end comes out here, and there is none."""
    config.stash[_FAILURES], config.stash[_COUNTS], config.stash[_SECONDS] = [], {"collected": 0, "ran": 0}, {}
    counts = config.stash[_COUNTS]
    exit_code = yield
    if file := config.getoption("--run-report"):
        report = {
            "exit_code": exit_code,
            **counts,
            "failures": config.stash[_FAILURES],
            "seconds": config.stash[_SECONDS],
            "python": sys.executable,
            "options": [option for option in config.invocation_params.args if str(option).startswith("--late-ms")],
            "folder": str(config.rootpath),
        }
        Path(file).write_text(json.dumps(report), encoding="utf-8")
    return exit_code


def pytest_collection_finish(session: pytest.Session) -> None:
    """Count the tests that are to run."""
    session.config.stash[_COUNTS]["collected"] = len(session.items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note each failure with its phase, and that a test has been torn down."""
    report = yield
    if report.failed:
        item.config.stash[_FAILURES].append({"test": item.nodeid, "phase": report.when, "text": report.longreprtext})
    item.config.stash[_COUNTS]["ran"] += report.when == "teardown"
    seconds = item.config.stash[_SECONDS]
    seconds[item.nodeid] = seconds.get(item.nodeid, 0.0) + report.duration
    return report
