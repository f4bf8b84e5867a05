"""The fixture `fastlane_emulator`, as a user's own tests find it."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.programs import ROOT, run_python


def pytest_run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest with the plugin, as if it came by its entry point."""
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    command = ("-m", "pytest", "-p", "fastlane_testing", "-v", *arguments, ".")
    return run_python(*command, cwd=directory, environment=environment)


@pytest.mark.slow
def test_every_test_of_the_page_passes(tmp_path: Path) -> None:
    page = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
    code = "\n\n".join(re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    (tmp_path / "test_page.py").write_text(code, encoding="utf-8")
    ran = pytest_run(tmp_path)

    assert ran.returncode == 0, ran.stdout[-3000:]
    assert ran.stdout.count(" PASSED") == code.count("def test_") >= 5


@pytest.mark.slow
def test_each_test_finds_the_emulator_as_it_started(tmp_path: Path) -> None:
    (tmp_path / "test_state.py").write_text(
        """
import httpx2

def ask(emulator):
    headers = {"authorization": f"Bearer {emulator.api_key}"}
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    return httpx2.post(f"{emulator.base_url}/chat/completions", json=body, headers=headers)

def test_first(fastlane_emulator):
    fastlane_emulator.set_answers("one", "two", "three")
    fastlane_emulator.change(model_rate_limits={"m": {"requests_per_minute": 2, "window": "fixed"}})
    said = [ask(fastlane_emulator) for _ in range(3)]
    assert [answer.status_code for answer in said] == [200, 200, 429]
    assert [answer.json()["choices"][0]["message"]["content"] for answer in said[:2]] == ["one", "two"]
    fastlane_emulator.set_faults("status=500")

def test_second(fastlane_emulator):
    assert fastlane_emulator.log() == ()
    said = [ask(fastlane_emulator) for _ in range(3)]
    assert [answer.status_code for answer in said] == [200] * 3
    assert said[0].json()["choices"][0]["message"]["content"] != "three"
""",
        encoding="utf-8",
    )
    ran = pytest_run(tmp_path)

    assert ran.returncode == 0, ran.stdout[-3000:]


def test_pytest_plugin_imports_nothing_until_used(tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text(
        "import sys\n\ndef test_nothing():\n    assert not {'fastlane', 'openai', 'pydantic'} & sys.modules.keys()\n",
        encoding="utf-8",
    )
    ran = pytest_run(tmp_path)

    assert ran.returncode == 0, ran.stdout[-3000:]


def test_plugin_is_an_entry_point_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert project["project"]["entry-points"]["pytest11"] == {"fastlane": "fastlane_testing"}
