"""Pytest plugin: -p tests.run_report --run-report=FILE writes what was collected, what ran and what failed, as
JSON.

The file is written last of all. A run that was interrupted, killed or broken at its end leaves none, or another exit
code than 1. With pytest-xdist the process that distributes the tests writes it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --run-report."""
    parser.addoption("--run-report", metavar="FILE", help="write what ran and what failed into this file, as JSON")


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    """Write the report once pytest has its exit code; an exception at its end comes out here, and there is none."""
    reporter = _Reporter()
    config.pluginmanager.register(reporter)
    exit_code = yield
    # A worker of pytest-xdist has the same options.
    if (file := config.getoption("--run-report")) and not hasattr(config, "workerinput"):
        report = {
            "exit_code": exit_code,
            "collected": reporter.collected,
            "ran": reporter.ran,
            "failures": reporter.failures,
            "python": sys.executable,
            "options": [option for option in config.invocation_params.args if str(option).startswith("--late-ms")],
            "folder": str(config.rootpath),
        }
        Path(file).write_text(json.dumps(report), encoding="utf-8")
    return exit_code


class _Reporter:
    """What one run has come to."""

    def __init__(self) -> None:
        self.collected = 0
        self.ran = 0
        self.failures: list[dict[str, str]] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count the tests that are to run."""
        self.collected = len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Count the tests that are to run: each worker has collected all of them."""
        self.collected = len(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note each failure with its phase, and that a test has been torn down."""
        if report.failed:
            self.failures.append({"test": report.nodeid, "phase": report.when or "", "text": report.longreprtext})
        self.ran += report.when == "teardown"
