"""With the openai that is installed, every fast path finds what it needs, whichever way an application goes in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastlane.emulator import Emulator

ROOT = Path(__file__).parent.parent.parent

# In a process of its own, where nothing has been asked or remembered yet.
USE = """
import json, logging, os

class Heard(logging.Handler):
    def emit(self, record):
        said.append(record.getMessage())

said = []
logging.getLogger("fastlane").addHandler(Heard(logging.WARNING))

import fastlane
from fastlane.decode import probes
from tests.contract.entry_points import ENTRIES
from tests.waiting import Form

where = {"api_key": "sk-test", "base_url": os.environ["BASE_URL"], "max_retries": 0}

all_called = True
for form in (Form("sync"), Form("async")):
    with form.make(fastlane, **where) as client:
        for entry in ENTRIES.values():
            entry(client)
        all_called = all_called and len(client.calls) == len(ENTRIES)
    form.close()
print(json.dumps({"all_called": all_called, "said": said, "seams": probes._found}))
"""


@pytest.mark.slow
def test_a_typical_use_of_every_entry_point_finds_every_seam_as_expected(provider: Emulator) -> None:
    environment = {**os.environ, **provider.environment, "BASE_URL": provider.base_url}
    ran = subprocess.run(
        [sys.executable, "-c", USE], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=50, check=False
    )

    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told["all_called"]
    assert told["said"] == []
    # Each look at openai's streams by a name of its own: two by one name, and the second is never taken.
    assert told["seams"].keys() >= {"openai.Stream", "openai.AsyncStream", "openai.Stream()"}
    assert [seam for seam, found in told["seams"].items() if not found] == []
