from __future__ import annotations

from dataclasses import replace

from fastlane.bench.load import Closed, Open, cells_of
from fastlane.bench.workloads import Conversation, Workload

TALK = ({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello there."})
TALKS = Workload(name="talks", conversations=(Conversation(name="one", messages=TALK),))


def test_every_number_of_users_is_a_cell_and_their_order_is_drawn() -> None:
    load = Closed(users=(1, 2, 4, 8, 16))

    orders = {tuple(cell.users for cell in cells_of([TALKS], load, seed=seed)) for seed in range(20)}

    assert all(sorted(users for users in order if users) == [1, 2, 4, 8, 16] for order in orders)
    assert len(orders) > 10
    assert [cell.order for cell in cells_of([TALKS], load, seed=3)] == [0, 1, 2, 3, 4]


def test_scenarios_are_crossed_with_loads() -> None:
    long = replace(TALKS, name="long", caching_forbidden=True)

    cells = cells_of([TALKS, long], Open(rates=(1.0, 2.5)), seed=0)

    assert {(cell.scenario, cell.rate, cell.caching_forbidden) for cell in cells} == {
        ("talks", 1.0, False),
        ("talks", 2.5, False),
        ("long", 1.0, True),
        ("long", 2.5, True),
    }
    assert sorted(cell.name for cell in cells) == ["long, 1/s", "long, 2.5/s", "talks, 1/s", "talks, 2.5/s"]


def test_a_single_workload_is_no_scenario() -> None:
    (cell,) = cells_of([TALKS], Closed(users=(1,)), seed=0)

    assert (cell.name, cell.scenario, cell.load) == ("talks, 1 user", None, "closed")
