"""The judging finds every loss: tests that fail with our clients, are skipped, or are not there any more.

These tests judge made-up runs; `python -m tests.conformance --self-check` judges broken clients by openai's own tests.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, strategies as st

from tests.conformance.judging import Results, Side, judged

# What a test does with one of the clients; "missing": it is not collected.
OUTCOMES = ("passed", "failed", "skipped", "missing")


@dataclass
class Played:
    """Runs whose tests have prescribed results, the same each time."""

    ours: Mapping[str, str]
    stock: Mapping[str, str]

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
        all_ends = self.ours if side == "ours" else self.stock
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
