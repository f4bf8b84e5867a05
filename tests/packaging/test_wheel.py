"""What is wrong with a wheel is found: a checker that cannot fail says nothing."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from scripts import wheel
from scripts.environments import ROOT
from scripts.wheel import Finding

HOME = "fastlane_llm-0.1.0.dist-info"
NAMES = [Path("fastlane/__init__.py"), Path("fastlane/py.typed"), Path("README.md")]
FILES = {
    "fastlane/__init__.py": b"",
    "fastlane/py.typed": b"",
    f"{HOME}/METADATA": b"Name: other\n",
    f"{HOME}/WHEEL": b"",
    f"{HOME}/RECORD": b"",
    f"{HOME}/entry_points.txt": b"",
    f"{HOME}/licenses/LICENSE": b"",
}


def wheel_of(path: Path, files: dict[str, bytes], *, moment: tuple[int, ...] = (2020, 2, 2, 0, 0, 0)) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, moment), data)  # type: ignore[arg-type]
    return path


def broken(path: Path) -> str:
    findings: list[Finding] = list(wheel.contents(path, NAMES, ("/some/where",)))
    return "\n".join(f"{one.what}: {one.details}" for one in findings if one.outcome == "broken")


def test_wheel_that_holds_what_it_should_is_not_blamed_for_it(tmp_path: Path) -> None:
    assert broken(wheel_of(tmp_path / "one.whl", FILES)) == ""


@pytest.mark.parametrize(
    ("more", "details"),
    [
        ({"tests/test_x.py": b""}, "tests/test_x.py does not belong in it"),
        ({"fastlane/notes.py": b""}, "fastlane/notes.py does not belong in it"),
        ({"fastlane/__init__.py": b"# built in /some/where"}, "fastlane/__init__.py"),
    ],
)
def test_unwanted_wheel_contents_are_reported(more: dict[str, bytes], details: str, tmp_path: Path) -> None:
    assert details in broken(wheel_of(tmp_path / "one.whl", {**FILES, **more}))


def test_missing_wheel_files_are_reported(tmp_path: Path) -> None:
    files = {name: data for name, data in FILES.items() if "typed" not in name and "LICENSE" not in name}
    details = broken(wheel_of(tmp_path / "one.whl", files))
    assert "fastlane/py.typed is missing" in details
    assert "licenses/LICENSE is missing" in details


def test_wheels_differing_in_a_time_or_byte_are_not_equal(tmp_path: Path) -> None:
    one = wheel_of(tmp_path / "one.whl", FILES)
    later = wheel_of(tmp_path / "later.whl", FILES, moment=(2021, 1, 1, 0, 0, 0))
    other = wheel_of(tmp_path / "other.whl", {**FILES, "fastlane/py.typed": b"x"})

    assert wheel.same("", one, one).outcome == "holds"
    assert "fastlane/__init__.py" in wheel.same("", one, later).details
    assert wheel.same("", one, other).details == "fastlane/py.typed"


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="these files are not in a repository of git")
def test_repository_s_files_are_those_of_git() -> None:
    names = wheel.sources()
    assert Path("fastlane/py.typed") in names
    assert not [name for name in names if name.parts[0] in (".venv", "site", ".git")]
