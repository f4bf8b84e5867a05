from __future__ import annotations

import stat
import webbrowser
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fastlane.cli import command_line
from tests.traces.recorded import everyday, recording


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command_line("trace"), ["trace", *map(str, arguments)])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return everyday(tmp_path / "spans.jsonl")


def test_page_is_written_beside_the_file_with_its_mode(file: Path) -> None:
    file.chmod(0o600)

    result = run("view", file)

    page = file.with_name("spans.html")
    assert (result.exit_code, result.stdout) == (0, f"{page}\n")
    assert page.read_text().startswith("<!doctype html>")
    assert stat.S_IMODE(page.stat().st_mode) == 0o600


def test_page_can_be_written_elsewhere_and_opened(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)

    result = run("view", file, "--out", tmp_path / "other.html", "--open")

    assert result.exit_code == 0
    assert opened == [(tmp_path / "other.html").as_uri()]


def test_list_has_a_line_for_each_entry(file: Path, tmp_path: Path) -> None:
    lines = run("list", file).stdout.splitlines()
    file.write_text(file.read_text().replace("answer ticket", "\\u001b[2Janswer"))

    assert len(lines) == 6
    assert "answer ticket  (2 calls)" in lines[0]
    assert "failed: AuthenticationError" in lines[3]
    assert "\x1b" not in run("list", file).stdout
    with recording(tmp_path / "arms.jsonl") as made:
        made.chat(0, 400, fastlane__experiment__name="answer tickets", fastlane__experiment__arm="baseline")
    (arm,) = run("list", tmp_path / "arms.jsonl").stdout.splitlines()
    assert arm.endswith("answer tickets: baseline")


def test_last_option_opens_the_newest_trace_file(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTLANE_TRACE_DIR", str(tmp_path / "traces"))
    assert "no file of spans was written yet" in run("view", "--last").stderr
    (tmp_path / "traces").mkdir()
    file.rename(tmp_path / "traces" / "20261122T120000Z-7.jsonl")

    result = run("view", "--last")

    assert result.exit_code == 0
    written = Path(result.stdout.strip())
    assert written.parent != tmp_path / "traces"
    assert written.name.startswith("20261122T120000Z-7")
    written.unlink()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["view"], "give a file of spans, or --last for the newest that fastlane wrote"),
        (["view", "missing.jsonl"], "cannot read missing.jsonl: No such file or directory"),
        (["view", "x.jsonl", "--last"], "give a file or --last, not both"),
        (["list", "."], "cannot read .: Is a directory"),
    ],
)
def test_invalid_trace_arguments_exit_with_code_2(arguments: list[str], message: str) -> None:
    result = run(*arguments)

    assert result.exit_code == 2
    assert result.stderr.startswith("fastlane trace: ")
    assert message in result.stderr


def test_unwritable_page_is_reported(file: Path, tmp_path: Path) -> None:
    result = run("view", file, "--out", tmp_path / "no" / "page.html")

    assert (result.exit_code, "cannot write" in result.stderr) == (2, True)
