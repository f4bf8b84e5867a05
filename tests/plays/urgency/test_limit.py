"""The limit of calls at once: none until the provider refuses, in simulated time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from fastlane.plays.urgency.slots import Slot, SlotQueue
from tests.plays.urgency.simulated import Load, S, Simulation


def sent(queue: SlotQueue, count: int) -> list[Slot]:
    slots = [Slot(queue, 0) for _ in range(count)]
    for slot in slots:
        slot.start(bool)
    assert all(slot.is_granted for slot in slots)
    return slots


def refuse(queue: SlotQueue, *slots: Slot, status: int = 503, headers: Mapping[str, str] = {}) -> None:
    for slot in slots:
        queue.answered(slot, status, headers)
        slot.release()


@pytest.mark.parametrize("refuses", [False, True])
def test_limit_is_unknown_while_nothing_is_refused(refuses: bool) -> None:
    load = Load(places=lambda _: 10_000, refuses=refuses, decode_s=10, background=500, interactive_per_s=20)
    outcome = Simulation(load).run(60)
    assert {limit for _, limit in outcome.limits} == {math.inf}
    assert outcome.most_under_way > 500
    assert max(waited for _, waited in outcome.waited) == 0


@pytest.mark.parametrize("places", [2, 16, 64])
def test_limit_of_a_refusing_provider_is_found(places: int) -> None:
    load = Load(places=lambda _: places, refuses=True, interactive_per_s=places / 24, seed=1)
    simulation = Simulation(load)
    outcome = simulation.run(150)
    before = outcome.refused
    assert simulation.run_on(300).limit(150) == pytest.approx(places, abs=max(1.1, 0.1 * places))
    assert outcome.refused - before <= max(10, 0.05 * outcome.background_per_s(150, 300) * 150)


def test_limit_follows_a_provider_that_shrinks_and_grows() -> None:
    load = Load(
        places=lambda at: 6 if 200 <= at < 400 else 24, refuses=True, seed=1, interactive_per_s=0.2,
    )  # fmt: skip
    outcome = Simulation(load).run(700)
    assert outcome.limit(100, 200) > 20
    assert outcome.limit(220, 400) < 8
    assert outcome.limit(500) > 20


def test_limit_grows_past_the_demand_when_refusals_stop() -> None:
    load = Load(places=lambda at: 10 if at < 100 else 10_000, refuses=True, decode_s=10, interactive_per_s=0)
    outcome = Simulation(load).run(300)
    assert outcome.limit(50, 100) < 12
    assert outcome.most_under_way == load.background


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("served", [1, 64, 450])
def test_limit_after_a_burst_is_what_was_served(served: int, in_order: bool) -> None:
    queue = SlotQueue()
    refused = sent(queue, 500)[served:]
    if not in_order:
        Random(0).shuffle(refused)
    refuse(queue, *refused)
    assert queue.limit.value == served


def test_limit_is_unchanged_where_all_calls_are_refused() -> None:
    """An outage has nothing to do with how many calls are under way."""
    queue = SlotQueue()
    refuse(queue, *sent(queue, 100))
    assert queue.limit.value == math.inf
    refuse(queue, *sent(queue, 100)[20:])
    assert queue.limit.value == 20


def test_limit_that_holds_nobody_back_is_forgotten() -> None:
    now_ns = [S]
    queue = SlotQueue(clock=lambda: now_ns[0])
    first = sent(queue, 40)
    refuse(queue, *first[20:])
    for slot in first[:20]:
        slot.release(failed=False)
    for at_s, limit in ((600, 20), (602, math.inf)):
        now_ns[0] = at_s * S
        sent(queue, 1)[0].release(failed=False)
        assert queue.limit.value == limit


@given(
    places=st.sampled_from([3, 10, 30]),
    decode_s=st.floats(min_value=0.1, max_value=3),
    jitter=st.floats(min_value=0, max_value=1),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=12, deadline=None)
def test_limit_never_collapses_and_never_runs_away(places: int, decode_s: float, jitter: float, seed: int) -> None:
    load = Load(
        places=lambda _: places, refuses=True, decode_s=decode_s, jitter=jitter, seed=seed, background=100,
        interactive_per_s=0.1,
    )  # fmt: skip
    outcome = Simulation(load).run(150)
    assert places / 2 <= outcome.limit(75) <= 1.5 * places


def test_interactive_calls_hardly_wait_beside_a_flood() -> None:
    outcome = Simulation(Load(places=lambda _: 64, refuses=True, interactive_per_s=2 / 3)).run(400)
    waited = sorted(waited for at, waited in outcome.waited if at > 150)
    assert waited[int(0.95 * len(waited))] < 0.1


def test_max_concurrency_holds_from_the_first_call_on() -> None:
    load = Load(places=lambda _: 64, max_concurrency=5, interactive_per_s=3)
    assert Simulation(load).run(60).most_under_way == 5


def test_limit_is_unchanged_by_a_call_refused_alone() -> None:
    queue = SlotQueue()
    for _ in range(10):
        refuse(queue, *sent(queue, 1))
    assert queue.limit.value == math.inf


@pytest.mark.parametrize(
    ("status", "headers", "teaches"),
    [
        (429, {"x-ratelimit-remaining-requests": "0"}, False),
        (429, {"retry-after": "1"}, False),
        (429, {"x-ratelimit-remaining-requests": "500", "retry-after-ms": "20"}, False),
        (429, {"x-ratelimit-remaining-requests": "500"}, True),
        (429, {}, True),
        (503, {}, True),
        (529, {}, True),
        (500, {}, False),
    ],
)
def test_limit_is_lowered_by_refusals_of_capacity(status: int, headers: dict[str, str], teaches: bool) -> None:
    queue = SlotQueue()
    refuse(queue, *sent(queue, 8)[4:], status=status, headers=headers)
    assert queue.limit.value == (4 if teaches else math.inf)
