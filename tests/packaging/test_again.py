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


# Fails only behind another one of its file: it is not excused by running it alone.
BEHIND_ANOTHER = """
seen = []

def test_other(): seen.append(1)

def test_flake(): assert not seen
"""

FAILS_AROUND = """
import pytest
from pathlib import Path
flag = Path(__file__).with_name("ran")

def once():
    if not flag.exists():
        flag.touch()
        raise OSError

@pytest.fixture
def resource():
    {}

def test_it(resource): pass
"""

# With two sets of parameters: that is no accident.
FAILS_TWICE = """
import pytest
from pathlib import Path

@pytest.mark.parametrize("n", "ab")
def test_flake(n):
    flag = Path(__file__).with_name(n)
    first = not flag.exists()
    flag.touch()
    assert not first, "late"
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


def test_again_with_an_honest_flake_prints_its_ledger_line(again: Again) -> None:
    outcome = again(FLAKE)

    assert outcome.exit_code == 0
    today = datetime.now(UTC).date()
    assert f"\n{today} tests/test_it.py::test_flake: AssertionError: late\n" in outcome.text
    assert outcome.text.count("1 passed") == 3


def test_again_with_a_flake_of_a_parallel_run_excuses(again: Again) -> None:
    assert again(FLAKE, "tests/test_it.py", *PARALLEL).exit_code == 0


INTERRUPTED = f"{FLAKE}\ndef test_second(flag=Path(__file__).with_name('second')):\n    "
REFUSED: dict[str, tuple[str, str, str]] = {
    # The tests, a line of the ledger, and what is said.
    "lasting failure": ("def test_it(): assert False", "", ""),
    "failure behind another test": (BEHIND_ANOTHER, "", ""),
    "Ctrl-C": (f"{INTERRUPTED}raise KeyboardInterrupt\n", "", "pytest ended with exit code 2"),
    "killed": (f"{INTERRUPTED}import os; os._exit(1)\n", "", "did not finish"),
    "error in setup": (FAILS_AROUND.format("once()\n    yield"), "", "test_it.py::test_it: an error in setup"),
    "error in teardown": (FAILS_AROUND.format("yield\n    once()"), "", "test_it.py::test_it: an error in teardown"),
    "entry of 29 days ago": (FLAKE, "29_DAYS_AGO tests/test_it.py::test_flake: late\n", "unsteady.txt has it from"),
    "unreadable ledger": (FLAKE, "yesterday tests/test_it.py::test_flake\n", "expected 'YYYY-MM-DD TEST: WHY'"),
    "failed twice": (FAILS_TWICE, "", "test_flake: failed more than once"),
    "leak blamed on another": (
        f"{LEAK}\ndef test_innocent(): gc.collect()\n", "", "tests/test_it.py::test_innocent: an unraisable error"
    ),
}  # fmt: skip


@pytest.mark.parametrize("failure", REFUSED)
def test_again_with_a_failure_that_is_no_flake_fails(again: Again, failure: str) -> None:
    source, ledger, said = REFUSED[failure]
    day = datetime.now(UTC).date() - timedelta(days=29)  # not the day on which the tests were found: midnight may pass
    outcome = again(source, ledger=ledger.replace("29_DAYS_AGO", str(day)))

    assert outcome.exit_code == 1
    assert said in outcome.text


@pytest.mark.parametrize(
    "file", ["tests/races/test_it.py", "tests/security/test_it.py", "tests/transport/test_leaks.py"]
)
def test_again_with_a_race_security_or_leak_test_fails(again: Again, file: str) -> None:
    outcome = again(FLAKE, file)

    assert outcome.exit_code == 1
    assert "a test of races, security or leaks" in outcome.text
