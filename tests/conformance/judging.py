"""Judge two runs of openai's own test suite: what passes with the stock client, and not with ours?"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

Side = Literal["ours", "stock"]

# More than these are no accident of a busy machine: they are not tried again.
MOST_TRIED_AGAIN = 100
# Where more of the suite than this fails with the stock client too, the environment says little about ours.
MOST_FAILING_ANYWAY = 0.01


@dataclass(frozen=True, slots=True)
class Results:
    """What came of one run: the tests that were found, files that could not be searched, and how each test ended."""

    collected: frozenset[str]
    outcomes: dict[str, str]  # "passed", "failed" or "skipped", by pytest's id
    uncollected: tuple[str, ...] = ()

    @property
    def passed(self) -> frozenset[str]:
        """The tests that passed."""
        return frozenset(test for test, outcome in self.outcomes.items() if outcome == "passed")

    def count(self, outcome: str) -> int:
        """How many tests ended so."""
        return sum(one == outcome for one in self.outcomes.values())

    def of(self, test: str) -> str:
        """How one test ended; or "not run" where it was collected and never came to an end, or "not collected"."""
        return self.outcomes.get(test) or ("not run" if test in self.collected else "not collected")


Run = Callable[..., Results]
"""Runs the suite's tests with one of the two clients: see `Suite.run`."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether what passes with the stock client passes with ours."""

    ours: Results
    stock: Results
    lost: dict[str, str]  # how each ended with ours
    # What passed with ours after all, when it was run again, alone.
    unsteady: tuple[str, ...] = ()
    # What was lost, and was to be expected.
    expected: tuple[str, ...] = ()
    # Fails with the stock client too.
    failing_anyway: tuple[str, ...] = field(default=())

    @property
    def unfit(self) -> str | None:
        """Why this says nothing about our client, if so: a suite that cannot be run loses nothing."""
        if not self.stock.collected:
            return "no test was collected with the stock client"
        if self.stock.uncollected:
            return f"with the stock client these could not be collected: {', '.join(self.stock.uncollected[:5])}"
        failing = len(self.failing_anyway)
        if failing > MOST_FAILING_ANYWAY * len(self.stock.collected):
            return f"{failing:,} of {len(self.stock.collected):,} tests fail with the stock client too"
        return None

    @property
    def exit_code(self) -> int:
        """0 where nothing is lost, 1 where something is, 2 where the run says nothing."""
        return 1 if self.lost else 2 if self.unfit else 0


def judged(run: Run, *, expected: Sequence[str] = (), baseline: Results | None = None) -> Verdict:
    """Run ours, and judge it by what the stock client makes of the same tests.

    Without a `baseline` the stock client collects all tests, and runs those that did not pass with ours: no others can
    be lost.
    """
    ours = run("ours", "ours")
    stock = run("stock", "stock", without=ours.passed) if baseline is None else baseline
    open_tests = stock.collected - ours.passed
    passing = {test for test in open_tests if stock.of(test) == "passed"}
    failing = {test for test in open_tests if stock.of(test) in ("failed", "not run")}
    passing |= _passing_after_all(run, {test for test in failing if ours.of(test) != "skipped"})
    failing -= passing
    if baseline is not None:
        failing |= {test for test in stock.collected if stock.of(test) == "failed"} - passing
    excused = {test for test in passing if any(fnmatch.fnmatchcase(test, pattern) for pattern in expected)}
    candidates = passing - excused
    lost = _lost_again(run, candidates)
    return Verdict(
        ours,
        stock,
        lost={test: ours.of(test) for test in sorted(lost)},
        unsteady=tuple(sorted(candidates - lost)),
        expected=tuple(sorted(excused)),
        failing_anyway=tuple(sorted(failing)),
    )


def _passing_after_all(run: Run, tests: set[str]) -> set[str]:
    """Which pass with the stock client beside the others of their file, or alone: one failure may be an accident."""
    passing: set[str] = set()
    for name, only, alone in (("stock-files", None, False), ("stock-alone", tests, True)):
        left = tests - passing
        if left and len(tests) <= MOST_TRIED_AGAIN:
            passing |= left & run("stock", name, files=files_of(left), only=only and left, alone=alone).passed
    return passing


def _lost_again(run: Run, candidates: set[str]) -> set[str]:
    """Of lost tests those that are lost twice more: some depend on time, and the machine may be busy.

    Once alone; and once beside the others of their file, which have imported by then what the first call imports.
    """
    lost = set(candidates)
    if len(lost) <= MOST_TRIED_AGAIN:
        for name, alone in (("again-alone", True), ("again-files", False)):
            if lost:
                lost -= run("ours", name, files=files_of(lost), only=lost if alone else None, alone=alone).passed
    return lost


def files_of(tests: Collection[str]) -> list[str]:
    """The files in which tests stand."""
    return sorted({test.partition("::")[0] for test in tests})
