"""Traces without a configured exporter go to files that are few, small and this user's alone."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fastlane import ConfigurationError
from fastlane.telemetry import trace_files
from fastlane.telemetry.trace_files import KEPT_FILES, MAX_AGE_S, TraceFile, directory, newest


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "kept" / "traces"
    monkeypatch.setenv("FASTLANE_TRACE_DIR", str(made))
    return made


def written_before(path: Path, age_s: float, text: str = "{}\n") -> Path:
    path.write_text(text)
    then = datetime.now(UTC).timestamp() - age_s
    os.utime(path, (then, then))
    return path


def test_newest_is_the_one_that_was_written_to_last(where: Path) -> None:
    assert newest() is None
    where.mkdir(parents=True)
    written_before(where / "20260101T000000Z-1.jsonl", 60)
    last = written_before(where / "20250101T000000Z-2-3.jsonl", 30)
    written_before(where / "20270101T000000Z-3.jsonl", 1, text="")
    written_before(where / "notes.jsonl", 2)

    assert newest() == last


@pytest.mark.parametrize("others", [3, KEPT_FILES + 10])
def test_old_trace_files_are_deleted_and_none_in_use(where: Path, others: int) -> None:
    where.mkdir(parents=True)
    day_s = 24 * 3600
    old = [written_before(where / f"20260101T0000{age:02}Z-1.jsonl", day_s + age) for age in range(KEPT_FILES + 5)]
    in_use = [written_before(where / f"20260102T0000{age:02}Z-1.jsonl", age) for age in range(others)]
    ancient = written_before(where / "20200101T000000Z-1.jsonl", MAX_AGE_S + 60)
    written_before(where / "20260101T000000Z-1.running", day_s)
    foreign = written_before(where / "mine.jsonl", MAX_AGE_S + 60)

    file = TraceFile()
    file.write("{}\n")

    kept = {file.path, *in_use, *old[: max(0, KEPT_FILES - 1 - others)], foreign}
    assert set(where.iterdir()) == kept
    assert ancient not in kept


def test_file_that_is_full_is_followed_by_another(where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_files, "MAX_FILE_BYTES", 10)
    file = TraceFile()
    paths = []
    for number in range(3):
        file.write(f'{{"number":{number}}}\n')
        paths.append(file.path)

    assert len(set(paths)) == 3
    assert [path.read_text() for path in paths] == [f'{{"number":{number}}}\n' for number in range(3)]
    assert newest() in paths


def test_unusable_trace_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FASTLANE_TRACE_DIR", str(tmp_path / "file"))
    with pytest.raises(ConfigurationError, match="set FASTLANE_TRACE_DIR to a directory"):
        TraceFile()


@pytest.mark.skipif(sys.platform in {"win32", "darwin"}, reason="they have directories of their own for that")
def test_directory_is_the_one_for_the_state_of_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/data/a-user")

    assert directory({}) == Path("/data/a-user/.local/state/fastlane/traces")
    assert directory({"XDG_STATE_HOME": "/state"}) == Path("/state/fastlane/traces")
    assert directory({"XDG_STATE_HOME": "relative"}) == Path("/data/a-user/.local/state/fastlane/traces")
    assert directory({"FASTLANE_TRACE_DIR": "~/traces", "XDG_STATE_HOME": "/state"}) == Path("/data/a-user/traces")
