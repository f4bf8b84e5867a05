"""Which Pythons are found, and the error for one that is not installed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from scripts import pythons

pytestmark = pytest.mark.skipif(os.name == "nt", reason="looks for `python3.x` in folders named `bin`")

HERE = "{}.{}".format(*sys.version_info)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pyenv keeps its Pythons, with this one in it and one that does not run."""
    for version in ("3.99", HERE):
        (tmp_path / f"versions/{version}.9/bin").mkdir(parents=True)
    (tmp_path / f"versions/{HERE}.9/bin/python{HERE}").symlink_to(sys.executable)
    broken = tmp_path / "versions/3.99.9/bin/python3.99"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    return tmp_path


def test_python_of_pyenv_is_found(kept: Path) -> None:
    assert pythons.interpreter(HERE) == kept / f"versions/{HERE}.9/bin/python{HERE}"


def test_python_that_does_not_run_is_not_found(kept: Path) -> None:
    assert pythons.interpreter("3.99") is None


def test_pythons_script_without_pythons_reports_a_skip(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pythons, "interpreter", lambda version: None)

    assert pythons.main(["--others"]) == 0
    output = capsys.readouterr().out
    assert output.startswith("SKIPPED no Python of ")
    assert HERE not in output


def test_missing_requested_python_is_an_error(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pythons.main(["--python", "3.99"]) == 2
    assert "Python 3.99 is not installed" in capsys.readouterr().err


def test_every_test_of_the_quick_set_is_there() -> None:
    assert [test for test in pythons.QUICK if not (Path(__file__).parents[2] / test).exists()] == []
