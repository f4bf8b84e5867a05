from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from fastlane.bench.load import Budget, Spent, exhausted, share_of, share_spent
from fastlane.bench.recorded import Sample


@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 9))
def test_what_shards_may_spend_is_together_what_the_cell_may(calls: int, shards: int, cells: int) -> None:
    budget = Budget(seconds=60.0, calls=calls, tokens=calls * 7, money=1.5)
    parts = [share_of(budget, Spent(), cells_left=cells, shard=shard, shards=shards) for shard in range(shards)]

    assert sum(part.calls or 0 for part in parts) == calls // cells
    assert sum(part.tokens or 0 for part in parts) == calls * 7 // cells
    assert sum(part.money or 0 for part in parts) == pytest.approx(1.5 / cells)
    assert {part.seconds for part in parts} == {60.0 / cells}


@given(st.integers(1, 1_000), st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_cells_never_spend_more_than_the_budget_and_the_last_may_spend_all_the_rest(
    calls: int, uses: list[float]
) -> None:
    budget, spent = Budget(seconds=None, calls=calls), Spent()
    for left, use in zip(range(len(uses), 0, -1), uses, strict=True):
        share = share_of(budget, spent, cells_left=left).calls or 0
        if left == 1:
            assert share == calls - spent.calls
        spent = Spent(calls=spent.calls + round(share * use))

    assert spent.calls <= calls


def test_no_limit_is_never_spent() -> None:
    unlimited = Budget(seconds=None)

    assert exhausted(unlimited, Spent(seconds=1e9, calls=10**9, tokens=10**12, money=1e6), calls_of_next=9) is None
    assert share_spent(unlimited, Spent(seconds=1e9)) == 0.0


@pytest.mark.parametrize(
    ("budget", "spent", "why"),
    [
        (Budget(seconds=10.0), Spent(seconds=10.0), "seconds spent"),
        (Budget(seconds=None, calls=10), Spent(calls=8), "calls spent"),
        (Budget(seconds=None, tokens=10), Spent(tokens=10), "tokens spent"),
        (Budget(seconds=None, money=0.5), Spent(money=0.6), "money spent"),
    ],
)
def test_a_spent_limit_is_named(budget: Budget, spent: Spent, why: str) -> None:
    assert exhausted(budget, spent, calls_of_next=3) == why


def test_a_block_that_just_fits_the_calls_may_start() -> None:
    assert exhausted(Budget(seconds=None, calls=10), Spent(calls=7), calls_of_next=3) is None


def test_a_request_costs_a_call_its_tokens_and_its_price() -> None:
    sample = Sample(
        arm="a",
        tag="t",
        lane=0,
        block=0,
        conversation="c",
        turn=1,
        issued_ns=0,
        ended_ns=1,
        input_tokens=100,
        output_tokens=20,
        price=0.25,
    )

    assert Spent().with_sample(sample).with_sample(sample) == Spent(calls=2, tokens=240, money=0.5)
    assert share_spent(Budget(seconds=None, calls=8, money=1.0), Spent(calls=2, money=0.5)) == 0.5
