"""The judging finds every loss: tests that fail with our clients, are skipped, or are not there any more.

Some of these tests run a small suite of their own with pytest, the others judge made-up runs.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tests.conformance.judging import Results, Side, judged
from tests.conformance.suite import HERE, Clients, Suite

# What a test does with one of the clients; "missing": it is not collected.
OUTCOMES = ("passed", "failed", "skipped", "missing")


@dataclass
class Played:
    """Runs whose tests have prescribed results; `later` is their results when run again."""

    ours: Mapping[str, str]
    stock: Mapping[str, str]
    later: Mapping[str, str] = field(default_factory=dict)
    stock_later: Mapping[str, str] = field(default_factory=dict)
    runs: list[str] = field(default_factory=list)

    def __call__(
        self,
        side: Side,
        name: str,
        *,
        files: Sequence[str] | None = None,
        only: Collection[str] | None = None,
        without: Collection[str] = (),
        alone: bool = False,
    ) -> Results:
        first = not any(run.startswith(side) for run in self.runs)
        self.runs.append(f"{side} {name}")
        all_ends = dict(self.ours if side == "ours" else self.stock)
        if not first:
            all_ends |= self.later if side == "ours" else self.stock_later
        there = {test: end for test, end in all_ends.items() if end != "missing"}
        if files is not None:
            there = {test: end for test, end in there.items() if test.partition("::")[0] in files}
        run = {test: end for test, end in there.items() if test not in without and (only is None or test in only)}
        return Results(frozenset(there), run)


def suite_of(ends: Sequence[str]) -> dict[str, str]:
    return {f"tests/test_{number % 3}.py::test_{number}": end for number, end in enumerate(ends)}


@given(st.lists(st.tuples(st.sampled_from(OUTCOMES), st.sampled_from(OUTCOMES)), max_size=30))
def test_quick_verdict_equals_verdict_of_full_runs(ends: list[tuple[str, str]]) -> None:
    ours, stock = suite_of([one for one, _ in ends]), suite_of([other for _, other in ends])
    whole = Played(ours, stock)("stock", "baseline")

    quick = judged(Played(ours, stock))
    both = judged(Played(ours, stock), baseline=whole)

    lost = {test: end for test, end in ours.items() if stock[test] == "passed" and end != "passed"}
    assert {test: end.replace("not collected", "missing") for test, end in quick.lost.items()} == lost
    assert quick.lost == both.lost
    assert quick.exit_code == both.exit_code or not quick.lost


def test_test_passing_on_rerun_is_reported_as_unsteady() -> None:
    ours, stock = suite_of(["failed", "passed"]), suite_of(["passed", "passed"])

    verdict = judged(Played(ours, stock, later={"tests/test_0.py::test_0": "passed"}))

    assert verdict.exit_code == 0
    assert verdict.unsteady == ("tests/test_0.py::test_0",)


def test_stock_failure_that_passes_on_rerun_counts_as_lost() -> None:
    ours, stock = suite_of(["failed", *["passed"] * 200]), suite_of(["failed", *["passed"] * 200])

    verdict = judged(Played(ours, stock, stock_later={"tests/test_0.py::test_0": "passed"}))

    assert list(verdict.lost) == ["tests/test_0.py::test_0"]


def test_expected_losses_are_counted_separately() -> None:
    ours, stock = suite_of(["failed", "passed"]), suite_of(["passed", "passed"])

    verdict = judged(Played(ours, stock), expected=["tests/test_0.py::*"])

    assert (verdict.exit_code, verdict.expected) == (0, ("tests/test_0.py::test_0",))


@pytest.mark.parametrize(
    ("ours", "stock", "why"),
    [
        ([], [], "no test was collected"),
        (["failed", "passed"], ["failed", "passed"], "1 of 2 tests fail with the stock client too"),
    ],
)
def test_unusable_suite_gives_no_verdict(ours: list[str], stock: list[str], why: str) -> None:
    verdict = judged(Played(suite_of(ours), suite_of(stock)))

    assert verdict.exit_code == 2
    assert verdict.unfit is not None
    assert why in verdict.unfit


# A small suite, and clients with every kind of error.

SMALL = """
import openai, pytest

def make():
    return openai.OpenAI(api_key="sk-test")

def test_passes():
    assert make().api_key == "sk-test"

def test_fails():
    assert not getattr(make(), "is_wrong", False)

def test_is_skipped():
    if getattr(make(), "is_wrong", False):
        pytest.skip("because of the client")

@pytest.fixture
def torn_down():
    yield
    assert not getattr(make(), "is_wrong", False)

def test_fails_at_its_end(torn_down):
    pass

@pytest.mark.parametrize("case", ["always", "stock"] if not hasattr(openai.OpenAI, "is_wrong") else ["always"])
def test_is_there(case):
    pass

def test_fails_anyway():
    assert False
"""
UNCOLLECTED = """
import openai

class Subclass(openai.OpenAI): ...

def test_in_a_file_that_cannot_be_collected():
    pass
"""
WRONG = """
import openai

class OpenAI(openai.OpenAI):
    is_wrong = True

    def __init_subclass__(cls):
        raise TypeError("no subclasses")

class AsyncOpenAI(openai.AsyncOpenAI): ...
"""


@pytest.fixture
def small(tmp_path: Path) -> Suite:
    """A suite of two files, and a module `wrong` with clients."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "tests" / "test_small.py").write_text(SMALL)
    (tmp_path / "tests" / "test_uncollected.py").write_text(UNCOLLECTED)
    (tmp_path / "wrong.py").write_text(WRONG)
    return Suite(
        python=Path(sys.executable),
        source=tmp_path,
        files=["tests"],
        clients=Clients("wrong", path=tmp_path),
        results=tmp_path / "results",
        plugins=("pytest_timeout",),
        processes=0,
    )


@pytest.mark.slow
def test_every_kind_of_loss_is_found_by_pytest_itself(small: Suite) -> None:
    verdict = judged(small.run)

    assert verdict.lost == {
        "tests/test_small.py::test_fails": "failed",
        "tests/test_small.py::test_fails_at_its_end": "failed",
        "tests/test_small.py::test_is_skipped": "skipped",
        "tests/test_small.py::test_is_there[stock]": "not collected",
        "tests/test_uncollected.py::test_in_a_file_that_cannot_be_collected": "not collected",
    }
    assert verdict.failing_anyway == ("tests/test_small.py::test_fails_anyway",)
    assert verdict.exit_code == 1


@pytest.mark.slow
def test_fastlane_clients_pass_the_small_suite(small: Suite) -> None:
    plays = 'Connection(http2="never")'
    verdict = judged(replace(small, clients=Clients("fastlane", path=HERE.parents[1], plays=plays)).run)

    assert verdict.lost == {}
    assert verdict.ours.count("passed") == 7
    log = (small.results / "ours.log").read_text()
    assert "OpenAI is fastlane.client.clients.OpenAI" in log
