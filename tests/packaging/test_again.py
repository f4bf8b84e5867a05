"""Which failures `.ci/again` excuses, by real runs of pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
AGAIN = ROOT / ".ci/again"

# Fails in the first run only.
FLAKE = """
from pathlib import Path

def test_flake(flag=Path(__file__).with_name("ran")):
    first = not flag.exists()
    flag.touch()
    assert not first, "late"
"""

LEAK = """
import gc, socket
from pathlib import Path
leaked = Path(__file__).with_name("leaked")

class Cycle: pass

def test_leaves_a_socket_open():
    gc.disable()
    if not leaked.exists():
        leaked.touch()
        one = Cycle()
        one.itself, one.socket = one, socket.socket()
"""


class Outcome(NamedTuple):
    """What `.ci/again` ended with."""

    exit_code: int
    text: str


Again = Callable[..., Outcome]

PARALLEL = ("-p", "xdist", "--numprocesses", "2", "--dist", "loadfile")


@pytest.fixture
def again(tmp_path: Path) -> Again:
    """Run a file of tests, and then `.ci/again` on what came of it."""

    def run(source: str, file: str = "tests/test_it.py", *options: str, ledger: str = "") -> Outcome:
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text(source, encoding="utf-8")
        (tmp_path / "pytest.toml").write_text('[pytest]\nfilterwarnings = ["error"]\n', encoding="utf-8")
        (tmp_path / "unsteady.txt").write_text(f"# DATE TEST: WHY\n{ledger}", encoding="utf-8")
        report = tmp_path / "report.json"
        # Other plugins take a second to load, and a killed run ends as it likes.
        variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        here: dict[str, Any] = {"cwd": tmp_path, "env": variables, "capture_output": True, "text": True}
        plugins = ("-p", "no:cacheprovider", "-p", "tests.run_report", f"--run-report={report}")
        subprocess.run([sys.executable, "-m", "pytest", *plugins, *options, file], check=False, **here)
        judge = [sys.executable, str(AGAIN), str(report), "--ledger", "unsteady.txt"]
        done = subprocess.run(judge, check=False, **here)
        return Outcome(done.returncode, done.stdout + done.stderr)

    return run


def entry(days_ago: int) -> str:
    return f"{datetime.now(UTC).date() - timedelta(days=days_ago)} tests/test_it.py::test_flake: late\n"


def test_again_with_an_honest_flake_prints_its_ledger_line(again: Again) -> None:
    outcome = again(FLAKE)

    assert outcome.exit_code == 0
    today = datetime.now(UTC).date()
    assert f"\n{today} tests/test_it.py::test_flake: AssertionError: late\n" in outcome.text
    assert outcome.text.count("1 passed") == 3


def test_again_with_a_lasting_failure_fails(again: Again) -> None:
    assert again("def test_it(): assert False").exit_code == 1


def test_again_reruns_the_whole_file(again: Again) -> None:
    """A test that fails only behind another one of its file is not excused by running it alone."""
    source = """
import os
seen = []

def test_other(): seen.append(1)

def test_flake(): assert not seen
"""
    assert again(source).exit_code == 1


@pytest.mark.parametrize(
    "end", ["raise KeyboardInterrupt", "import pytest; pytest.exit('enough')", "import os; os._exit(1)"]
)
def test_again_with_an_interrupted_run_fails(again: Again, end: str) -> None:
    outcome = again(f"{FLAKE}\ndef test_second(flag=Path(__file__).with_name('second')):\n    {end}\n")

    assert outcome.exit_code == 1
    assert "pytest ended with exit code 2" in outcome.text or "did not finish" in outcome.text


@pytest.mark.parametrize("phase", ["setup", "teardown"])
def test_again_with_an_error_around_a_test_fails(again: Again, phase: str) -> None:
    once = "if not flag.exists():\n        flag.touch()\n        raise OSError"
    body = f"{once}\n    yield" if phase == "setup" else f"yield\n    {once}"
    outcome = again(f"""
import pytest
from pathlib import Path
flag = Path(__file__).with_name("ran")

@pytest.fixture
def resource():
    {body}

def test_it(resource): pass
""")

    assert outcome.exit_code == 1
    assert f"tests/test_it.py::test_it: an error in {phase}" in outcome.text


def test_again_with_an_error_in_a_thread_fails(again: Again) -> None:
    outcome = again("""
import threading
from pathlib import Path

def test_it(flag=Path(__file__).with_name("ran")):
    def run():
        if not flag.exists():
            flag.touch()
            raise OSError
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
""")

    assert outcome.exit_code == 1
    assert "an unraisable error" in outcome.text


@pytest.mark.parametrize(
    "file", ["tests/races/test_it.py", "tests/security/test_it.py", "tests/transport/test_leaks.py"]
)
def test_again_with_a_race_security_or_leak_test_fails(again: Again, file: str) -> None:
    outcome = again(FLAKE, file)

    assert outcome.exit_code == 1
    assert "a test of races, security or leaks" in outcome.text


def test_again_with_an_entry_of_the_last_30_days_fails(again: Again) -> None:
    outcome = again(FLAKE, ledger=entry(29))

    assert outcome.exit_code == 1
    assert "unsteady.txt has it from" in outcome.text


def test_again_with_a_ledger_line_it_cannot_read_fails(again: Again) -> None:
    outcome = again(FLAKE, ledger="yesterday tests/test_it.py::test_flake\n")

    assert outcome.exit_code == 1
    assert "expected 'YYYY-MM-DD TEST: WHY'" in outcome.text


def test_again_with_one_test_failing_twice_fails(again: Again) -> None:
    """With two sets of parameters: that is no accident."""
    parameters = "import pytest\n" + FLAKE.replace("def test_flake(", '@pytest.mark.parametrize("n", "ab")\n<>')
    source = (
        parameters.replace("<>", "def test_flake(n, ")
        .replace('with_name("ran")', "parent")
        .replace("first = not flag.exists()", "flag = flag / n; first = not flag.exists()")
    )
    outcome = again(source)

    assert outcome.exit_code == 1
    assert "test_flake: failed more than once" in outcome.text


def test_again_with_a_flake_of_a_parallel_run_excuses(again: Again) -> None:
    assert again(FLAKE, "tests/test_it.py", *PARALLEL).exit_code == 0


def test_again_with_a_leak_blamed_on_another_test_fails(again: Again) -> None:
    outcome = again(f"{LEAK}\ndef test_innocent(): gc.collect()\n")

    assert outcome.exit_code == 1
    assert "tests/test_it.py::test_innocent: an unraisable error" in outcome.text
