from __future__ import annotations

import heapq
import statistics
from dataclasses import replace
from itertools import islice, pairwise
from random import Random

import pytest
from hypothesis import given, strategies as st

from fastlane.bench.load import (
    Block,
    Closed,
    Due,
    Open,
    Pacing,
    RunBudget,
    RunCost,
    blocks_in_pass,
    cells_of,
    exhausted,
    lane_of,
    limits_of,
    open_blocks,
    share_spent,
)
from fastlane.bench.workloads import Conversation, Workload

ARMS = ("baseline", "fastlane", "baseline-again")


def workload(*lengths: int) -> Workload:
    exchange = ({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello there."})
    return Workload(
        name="talks",
        conversations=tuple(
            Conversation(name=f"talk {at}", messages=exchange * length) for at, length in enumerate(lengths)
        ),
    )


lengths = st.lists(st.integers(1, 5), min_size=1, max_size=8)


def all_lanes(talks: Workload, lanes: int, passes: int = 1) -> list[list[Block]]:
    return [list(lane_of(talks, ARMS, lane=lane, lanes=lanes, passes=passes, seed="0/cell")) for lane in range(lanes)]


@given(lengths, st.integers(1, 12), st.integers(1, 3))
def test_users_together_cover_every_pass_once(lengths: list[int], users: int, passes: int) -> None:
    talks = workload(*lengths)

    blocks = [block for lane in all_lanes(talks, users, passes) for block in lane]

    assert len(blocks) == passes * blocks_in_pass(talks) == passes * sum(lengths)
    assert len({(block.replay, block.turn.number) for block in blocks}) == len(blocks)
    assert len({(block.lane, block.number) for block in blocks}) == len(blocks)
    assert all(sorted(block.order) == sorted(ARMS) for block in blocks)


@given(lengths, st.integers(1, 12))
def test_one_user_takes_the_turns_of_a_conversation_in_order(lengths: list[int], users: int) -> None:
    for lane in all_lanes(workload(*lengths), users):
        assert [block.number for block in lane] == list(range(len(lane)))
        for before, after in pairwise(lane):
            if before.replay == after.replay:
                assert after.turn.number == before.turn.number + 1
            else:
                assert after.turn.number == 1


def test_arm_order_is_drawn_for_every_block_from_the_seed() -> None:
    def orders(seed: str) -> list[tuple[str, ...]]:
        blocks = lane_of(workload(3), ARMS, lane=0, lanes=1, passes=None, seed=seed)
        return [block.order for block in islice(blocks, 3_000)]

    assert orders("0/cell") == orders("0/cell") != orders("1/cell")
    positions = [order.index("fastlane") for order in orders("0/cell")]

    # Three positions at 1,000 each, give or take five standard deviations.
    assert all(abs(positions.count(position) - 1_000) < 5 * 26 for position in range(3))


def test_exhausted_workload_restarts_as_another_replay() -> None:
    blocks = list(islice(lane_of(workload(2), ARMS, lane=0, lanes=1, passes=None, seed="0/cell"), 6))

    assert [block.replay for block in blocks] == ["0/0", "0/0", "1/0", "1/0", "2/0", "2/0"]
    # Every user gets turns, also where there are fewer conversations.
    lanes = [lane_of(workload(1, 1), ARMS, lane=lane, lanes=5, passes=None, seed="0/cell") for lane in range(5)]
    assert [next(lane).replay for lane in lanes] == ["0/0", "0/1", "1/0", "1/1", "2/0"]


@given(lengths, st.floats(0.1, 50))
def test_open_load_sends_every_turn_and_spaces_its_arms(lengths: list[int], rate: float) -> None:
    blocks = list(open_blocks(workload(*lengths), ARMS, rate=rate, passes=2, seed="0/cell"))

    assert [block.number for block in blocks] == list(range(2 * sum(lengths)))
    assert len({(block.replay, block.turn.number) for block in blocks}) == len(blocks)
    for block in blocks:
        assert block.intended_s is not None
        first, *_, last = block.intended_s
        assert list(block.intended_s) == sorted(set(block.intended_s))
        assert last - first < min(1 / rate, 1.0)


@given(st.integers(1, 1_000), st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_cells_stay_within_call_budget(calls: int, uses: list[float]) -> None:
    budget, spent = RunBudget(seconds=None, calls=calls), RunCost()
    for left, use in zip(range(len(uses), 0, -1), uses, strict=True):
        limit = limits_of(budget, spent, cells_left=left).calls or 0
        if left == 1:
            assert limit == calls
        spent = RunCost(calls=spent.calls + round((limit - spent.calls) * use))

    assert spent.calls <= calls


UNLIMITED = RunBudget(seconds=None)


@pytest.mark.parametrize(
    ("budget", "spent", "why", "share"),
    [
        (RunBudget(seconds=10.0), RunCost(seconds=10.0), "seconds spent", 1.0),
        (RunBudget(seconds=None, calls=10), RunCost(calls=8), "calls spent", 0.8),
        (RunBudget(seconds=None, calls=10), RunCost(calls=7), None, 0.7),
        (RunBudget(seconds=None, money=0.5), RunCost(money=0.6), "money spent", 1.0),
        (RunBudget(seconds=None, calls=10, money=1.0), RunCost(calls=4, money=0.5), None, 0.5),
        (UNLIMITED, RunCost(seconds=1e9, calls=10**9, money=1e6), None, 0.0),
    ],
)
def test_exhausted_budget_names_its_limit(budget: RunBudget, spent: RunCost, why: str | None, share: float) -> None:
    assert exhausted(budget, spent, calls_of_next=3) == why
    assert share_spent(budget, spent, RunCost()) == pytest.approx(share)


def test_poisson_gaps_have_exponential_mean_and_deviation() -> None:
    blocks = islice(open_blocks(workload(3), ARMS, rate=5.0, passes=None, seed="7"), 20_001)
    moments = [block.intended_s[0] for block in blocks if block.intended_s is not None]
    gaps = [later - earlier for earlier, later in pairwise(moments)]

    # Both are 1 / rate; their standard errors at this n are 0.0014 and 0.002.
    assert statistics.mean(gaps) == pytest.approx(0.2, abs=0.007)
    assert statistics.stdev(gaps) == pytest.approx(0.2, abs=0.010)


TALKS = workload(1)


def test_cells_cover_all_user_counts_in_random_order() -> None:
    load = Closed(users=(1, 2, 4, 8, 16))

    orders = {tuple(cell.users for cell in cells_of([TALKS], load, seed=seed)) for seed in range(20)}

    assert all(sorted(users for users in order if users) == [1, 2, 4, 8, 16] for order in orders)
    assert len(orders) > 10
    assert [cell.order for cell in cells_of([TALKS], load, seed=3)] == [0, 1, 2, 3, 4]


def test_scenarios_are_crossed_with_loads() -> None:
    long = replace(TALKS, name="long", caching_forbidden=True)

    cells = cells_of([TALKS, long], Open(rates=(1.0, 2.5)), seed=0)

    assert {(cell.workload, cell.rate, cell.caching_forbidden) for cell in cells} == {
        ("talks", 1.0, False),
        ("talks", 2.5, False),
        ("long", 1.0, True),
        ("long", 2.5, True),
    }
    assert sorted(cell.name for cell in cells) == ["long, 1/s", "long, 2.5/s", "talks, 1/s", "talks, 2.5/s"]


FOUR_TALKS = workload(3, 3, 3, 3)


def closed(users: int, *, think_s: float = 0.0, passes: int = 2) -> Pacing:
    lanes = [lane_of(FOUR_TALKS, ARMS, lane=lane, lanes=users, passes=passes, seed="0/cell") for lane in range(users)]
    return Pacing(lanes, now=0, think_s=think_s, block_s=1.0, seed="0/cell")


def opened(rate: float) -> Pacing:
    return Pacing([open_blocks(FOUR_TALKS, ARMS, rate=rate, passes=2, seed="0/cell")], now=0)


def simulate(pacing: Pacing, durations: Random) -> list[tuple[int, int, Due]]:
    """Answer every request after a random time; return when each was handed out and answered."""
    under_way: list[tuple[int, int, int, Due]] = []
    sent: list[tuple[int, int, Due]] = []

    def send(now: int, due: Due) -> None:
        answered = now + durations.randrange(1, 3_000_000_000)
        heapq.heappush(under_way, (answered, len(sent), now, due))
        sent.append((now, answered, due))

    while True:
        start = pacing.next_ns()
        if start is not None and (not under_way or start <= under_way[0][0]):
            for due in pacing.start():
                send(start, due)
        elif under_way:
            now, _, _, due = heapq.heappop(under_way)
            following = pacing.ended(due, now)
            if following is not None:
                send(now, following)
        else:
            return sent


@given(st.integers(1, 9), st.integers(0, 99))
def test_closed_load_keeps_one_request_in_flight_per_user(users: int, seed: int) -> None:
    sent = simulate(closed(users), Random(seed))

    assert len(sent) == 2 * 12 * len(ARMS)
    assert len({(due.block.lane, due.block.number, due.arm) for _, _, due in sent}) == len(sent)
    for lane in range(users):
        mine = sorted((began, ended) for began, ended, due in sent if due.block.lane == lane)
        assert all(later[0] >= earlier[1] for earlier, later in pairwise(mine))


@given(st.integers(2, 50))
def test_users_start_one_after_the_other_within_one_block(users: int) -> None:
    sent = simulate(closed(users, passes=20), Random(1))
    starts: dict[int, int] = {}
    for began, _, due in sent:
        starts.setdefault(due.block.lane, began)

    assert list(starts) == list(range(users))
    assert len(set(starts.values())) == users
    assert max(starts.values()) < 1_000_000_000


def test_user_thinks_before_each_block_but_the_first() -> None:
    sent = simulate(closed(1, think_s=5.0), Random(1))
    blocks: dict[int, list[tuple[int, int]]] = {}
    for began, ended, due in sent:
        blocks.setdefault(due.block.number, []).append((began, ended))

    ends = {number: max(ended for _, ended in times) for number, times in blocks.items()}
    assert blocks[0][0][0] == 0
    assert all(blocks[number][0][0] == ends[number - 1] + 5_000_000_000 for number in range(1, 24))


@given(st.floats(0.2, 100), st.integers(0, 99), st.integers(0, 99))
def test_open_load_schedule_is_independent_of_response_times(rate: float, seed: int, other: int) -> None:
    def intended(pacing: Pacing, durations: Random) -> list[tuple[int, str, int | None]]:
        sent = simulate(pacing, durations)
        assert all(handed_out < (due.intended_ns or 0) for handed_out, _, due in sent)
        return [(due.block.number, due.arm, due.intended_ns) for _, _, due in sent]

    first = intended(opened(rate), Random(seed))

    assert first == intended(opened(rate), Random(other))
    assert len(first) == 2 * 12 * len(ARMS)
