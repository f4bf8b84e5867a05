from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings, strategies as st

from fastlane.plays.hedging.memory import Budget

# What happens to a budget: a call is over, or a second attempt is asked for, or the oldest one under way ends and has
# used this share of what was reserved for it.
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.floats(0, 1e5)),
        st.tuples(st.just("second"), st.floats(0, 2e4)),
        st.tuples(st.just("over"), st.floats(0, 1)),
    ),
    max_size=80,
)


@settings(max_examples=60)
@given(EVENTS, st.sampled_from([0.01, 0.05, 0.5, 1.0]))
def test_second_attempts_never_cost_more_than_their_share(events: list[tuple[str, float]], share: float) -> None:
    budget = Budget(share)
    tokens = used = 0.0
    under_way: list[float] = []
    for what, number in events:
        if what == "call":
            budget.earn(number)
            tokens += number
        elif what == "second" and budget.reserve(number):
            under_way.append(number)
        elif what == "over" and under_way:
            reserved = under_way.pop(0)
            budget.settle(reserved, reserved * number)
            used += reserved * number

        assert used + sum(under_way) <= share * tokens * (1 + 1e-9) + 1e-6


def test_what_a_second_attempt_did_not_use_is_there_for_the_next() -> None:
    budget = Budget(0.05)
    budget.earn(2_000)
    assert budget.reserve(100)
    budget.settle(100, 30)

    assert budget.reserve(70)
    assert not budget.reserve(1)


def test_what_one_cost_beyond_its_reserve_the_next_ones_wait_for() -> None:
    budget = Budget(0.1)
    budget.earn(1_000)
    assert budget.reserve(100)
    budget.settle(100, 150)
    budget.earn(500)

    assert not budget.reserve(1)
    budget.earn(10)
    assert budget.reserve(1)


def test_a_long_calm_is_not_saved_up_for_one_bad_minute() -> None:
    budget = Budget(0.05)
    for _ in range(10_000):
        budget.earn(1_000)

    assert budget.left == pytest.approx(0.05 * 400 * 1_000)


def test_calls_without_tokens_and_second_attempts_of_less_than_nothing_change_nothing() -> None:
    budget = Budget(0.05)
    budget.earn(0)
    budget.earn(float("nan"))
    budget.earn(100)

    assert not budget.reserve(-5)
    assert not budget.reserve(float("nan"))
    assert budget.left == pytest.approx(5)


def test_many_threads_reserve_no_more_than_there_is() -> None:
    budget = Budget(1.0)
    budget.earn(1_000)
    with ThreadPoolExecutor(8) as pool:
        allowed = list(pool.map(lambda _: budget.reserve(1), range(3_000)))

    assert sum(allowed) == 1_000
