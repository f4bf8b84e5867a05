from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from fastlane.bench.load import RunBudget, RunCost, exhausted, share_of, share_spent
from fastlane.bench.recorded import Sample


@given(st.integers(1, 1_000), st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_cells_never_spend_more_than_the_budget_and_the_last_may_spend_all_the_rest(
    calls: int, uses: list[float]
) -> None:
    budget, spent = RunBudget(seconds=None, calls=calls), RunCost()
    for left, use in zip(range(len(uses), 0, -1), uses, strict=True):
        share = share_of(budget, spent, cells_left=left).calls or 0
        if left == 1:
            assert share == calls - spent.calls
        spent = RunCost(calls=spent.calls + round(share * use))

    assert spent.calls <= calls


def test_no_limit_is_never_spent() -> None:
    unlimited = RunBudget(seconds=None)

    assert exhausted(unlimited, RunCost(seconds=1e9, calls=10**9, money=1e6), calls_of_next=9) is None
    assert share_spent(unlimited, RunCost(seconds=1e9)) == 0.0


@pytest.mark.parametrize(
    ("budget", "spent", "why"),
    [
        (RunBudget(seconds=10.0), RunCost(seconds=10.0), "seconds spent"),
        (RunBudget(seconds=None, calls=10), RunCost(calls=8), "calls spent"),
        (RunBudget(seconds=None, money=0.5), RunCost(money=0.6), "money spent"),
    ],
)
def test_a_spent_limit_is_named(budget: RunBudget, spent: RunCost, why: str) -> None:
    assert exhausted(budget, spent, calls_of_next=3) == why


def test_a_block_that_just_fits_the_calls_may_start() -> None:
    assert exhausted(RunBudget(seconds=None, calls=10), RunCost(calls=7), calls_of_next=3) is None


def test_a_request_costs_a_call_and_its_price() -> None:
    sample = Sample(
        arm="a",
        tag="t",
        lane=0,
        block=0,
        conversation="c",
        turn=1,
        issued_ns=0,
        ended_ns=1,
        price=0.25,
    )

    assert RunCost().with_sample(sample).with_sample(sample) == RunCost(calls=2, money=0.5)
    assert share_spent(RunBudget(seconds=None, calls=8, money=1.0), RunCost(calls=2, money=0.5)) == 0.5
