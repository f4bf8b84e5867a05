"""A recording's file: it stays within its size, and half a line spoils nothing."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fastlane import OpenAI
from fastlane.bench.workloads import read_workload
from fastlane.recordings import record
from fastlane.recordings.recording import RecordingFile

HEADER = b'{"fastlane_recording":1}\n'
LIMIT = 1_000


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True) if path.exists() else []


def test_a_full_file_takes_no_more_lines(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    file = RecordingFile(path, LIMIT, HEADER)
    file.append(b"first\n")
    with pytest.raises(ValueError, match="max_bytes"):
        file.append(b"x" * LIMIT + b"\n")

    assert lines_of(path) == [HEADER, b"first\n"]


def test_half_a_line_that_a_killed_process_left_is_taken_away(arguments: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    for text in ("one", "two"):
        with OpenAI(**arguments) as client, record(client, path):
            client.chat.completions.create(model="fast-1", messages=[{"role": "user", "content": text}])
        with path.open("ab") as file:
            file.write(b'{"session":"1234","at":0.1,"messa')

    workload = read_workload(path)
    assert len(workload.conversations) == 2


def test_a_file_of_something_else_keeps_its_last_line(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"something\nelse")
    RecordingFile(path, LIMIT, HEADER).append(b"")

    assert path.read_bytes().startswith(b"something\nelse")


def test_a_disk_that_is_full_in_the_middle_of_a_line_leaves_no_half_of_it(tmp_path: Path) -> None:
    code = f"""
import errno, resource, signal, sys
from pathlib import Path
from fastlane.recordings.recording import RecordingFile
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
file = RecordingFile(Path(sys.argv[1]), {LIMIT}, {HEADER!r})
file.append(b"first\\n")
resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
try:
    file.append(b"x" * 200 + b"\\n")
except OSError as error:
    print(errno.errorcode[error.errno])
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
file.append(b"second\\n")
"""
    path = tmp_path / "calls.jsonl"
    ran = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)

    assert ran.stdout.split() == [errno.errorcode[errno.EFBIG]]
    assert lines_of(path) == [HEADER, b"first\n", b"second\n"]


def test_a_call_that_no_file_has_room_for_is_dropped(arguments: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    with OpenAI(**arguments) as client, record(client, path, text=True, max_bytes=65_536) as recording:
        for text in ("long " * 20_000, "short"):
            client.chat.completions.create(model="fast-1", messages=[{"role": "user", "content": text}])
        assert recording.flush()
        assert (recording.written, recording.dropped) == (1, 1)

    assert path.stat().st_size < 65_536
