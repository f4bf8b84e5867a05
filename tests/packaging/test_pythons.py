"""Which Pythons are found, and what is said of one that is not here."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from scripts import pythons

pytestmark = pytest.mark.skipif(os.name == "nt", reason="looks for `python3.x` in folders named `bin`")

HERE = sys.version_info[:2]
NAMED = f"python{HERE[0]}.{HERE[1]}"


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pyenv keeps its Pythons, with this one in it and one that does not run."""
    for version in ("3.99.0", "{}.{}.9".format(*HERE), "{}.{}.10".format(*HERE)):
        (tmp_path / f"versions/{version}/bin").mkdir(parents=True)
    for patch in (9, 10):
        (tmp_path / f"versions/{HERE[0]}.{HERE[1]}.{patch}/bin/{NAMED}").symlink_to(sys.executable)
    broken = tmp_path / "versions/3.99.0/bin/python3.99"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    return tmp_path


def test_the_newest_of_a_version_is_found_by_its_number(kept: Path) -> None:
    assert pythons.interpreters()[HERE] == kept / f"versions/{HERE[0]}.{HERE[1]}.10/bin/{NAMED}"


def test_one_that_does_not_run_is_none(kept: Path) -> None:
    assert (3, 99) not in pythons.interpreters()


def test_a_version_or_a_path_may_be_asked_for(kept: Path) -> None:
    assert pythons.chosen(["{}.{}".format(*HERE)], others=False) == [pythons.interpreters()[HERE]]
    assert pythons.chosen([sys.executable], others=False) == [Path(sys.executable)]
    assert pythons.interpreters()[HERE] not in pythons.chosen([], others=True)


def test_pythons_without_any_other_says_that_it_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pythons, "_candidates", lambda: iter([Path(sys.executable)]))

    assert pythons.main(["--others"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("SKIPPED no Python other than this one from 3.11 to 3.14 is here")
    assert "passed" not in said


@pytest.mark.parametrize("name", ["3.99", "2.7", "nothing"])
def test_one_that_is_not_here_is_named_with_those_that_are(
    name: str, kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pythons.main(["--python", name]) == 2
    said = capsys.readouterr().err
    assert f"{name} is no Python that can be used" in said
    assert "{}.{}".format(*HERE) in said


def test_every_test_of_the_quick_set_is_there() -> None:
    assert [test for test in pythons.QUICK if not (Path(__file__).parents[2] / test).exists()] == []
