"""`fastlane bench run` as a newcomer runs it: one screen, and everything else in a folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fastlane.cli import command_line

QUICK = ("--preset", "instant", "--rtt-ms", "5", "--think-s", "0", "--users", "2")


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(command_line("bench"), ["bench", *arguments])


def test_run_prints_one_screen_and_keeps_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    environment = dict(os.environ)

    result = bench("run", *QUICK, "--conversations", "1", "--passes", "1")

    assert result.exit_code in (0, 1), result.output
    # A busy machine gets so short a run refused: tests/bench/reports/test_screen.py has the figures.
    for expected in ("code-review", "round trip 5 ms", "fastlane bench run --base-url"):
        assert expected in result.stdout
    assert len(result.stdout.splitlines()) <= 25
    assert len(result.stdout.split()) <= 200
    (folder,) = Path("bench-results").iterdir()
    assert {"run.json", "records.jsonl", "server.jsonl", "summary.json", "report.html"} <= {
        file.name for file in folder.iterdir()
    }
    assert "<html" in (folder / "report.html").read_text()
    assert f"fastlane bench report {folder} --full" in result.stdout
    full = bench("report", str(folder), "--full").stdout
    for expected in ("baseline-again", "Time to first token", "API end-to-end", "Checks", "Definitions"):
        assert expected in full
    assert {**os.environ, "PYTEST_CURRENT_TEST": ""} == {**environment, "PYTEST_CURRENT_TEST": ""}
