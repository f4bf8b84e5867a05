from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from fastlane import __version__
from fastlane._commands import app


@pytest.mark.parametrize("argument", ["--version", "version"])
def test_the_version_is_printed_either_way(argument: str) -> None:
    result = CliRunner().invoke(app, [argument])

    assert (result.exit_code, result.stdout) == (0, f"{__version__}\n")


def test_the_package_runs_as_a_module() -> None:
    ended = subprocess.run([sys.executable, "-m", "fastlane", "--version"], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"{__version__}\n", "")
