"""What fastlane writes to disk of calls is its owner's alone, whatever the umask of the process lets others do."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fastlane.emulator import Emulator

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no modes of this kind")

# Each writes into the folder that it runs in.
WRITERS = {
    "a queue of the offline lane and its answers": """
import os, fastlane
from fastlane.batch import Queue
from fastlane.cli import command_line
with fastlane.OpenAI() as client, Queue("jobs.sqlite", client) as queue:
    queue.submit({"model": "m", "messages": [{"role": "user", "content": "secret"}]}, key="1")
    command_line("batch")(["batch", "results", "jobs.sqlite", "--out", "answers.jsonl"])
    os._exit(0)  # what SQLite keeps beside it stays
""",
    "spans": """
import fastlane
fastlane.telemetry.configure(level="phases")
with fastlane.OpenAI() as client:
    client.chat.completions.create(model="m", messages=[{"role": "user", "content": "secret"}])
""",
}


@pytest.mark.parametrize("what", WRITERS)
def test_file_of_calls_is_its_owner_s_alone(what: str, provider: Emulator, tmp_path: Path) -> None:
    folder = tmp_path / "place"
    folder.mkdir()
    variables = {
        "OPENAI_BASE_URL": provider.base_url,
        "OPENAI_API_KEY": "sk-test",
        "FASTLANE_TRACE_DIR": str(folder / "traces"),
    }
    ran = subprocess.run(
        [sys.executable, "-c", WRITERS[what]],
        cwd=folder,
        umask=0,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **variables},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr

    modes = {path.relative_to(folder).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}
    assert modes
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}
