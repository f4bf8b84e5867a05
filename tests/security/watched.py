"""Code that runs in a process of its own, in which every event that Python audits is noted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.programs import ROOT, printed_by

_PROBE = ROOT / "scripts/audit_probe.py"

Watch = Callable[[str, Mapping[str, str]], dict[str, Any]]
"""From code and variables of its environment to what it did: see `scripts/audit_probe.py`."""


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    """Run code, and give what it did; what it prints last is under "printed"."""

    def run(code: str, variables: Mapping[str, str]) -> dict[str, Any]:
        file = tmp_path / "watched.py"
        file.write_text(code, encoding="utf-8")
        environment = {"PYTHONPATH": str(ROOT), **variables}
        said = printed_by("-B", str(_PROBE), "run", str(file), cwd=tmp_path, environment=environment)
        *printed, last = said.splitlines()
        did: dict[str, Any] = {**json.loads(last), "printed": printed, "file": str(file)}
        return did

    return run
