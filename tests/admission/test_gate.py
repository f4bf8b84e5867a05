"""A gate between real threads and event loops."""

from __future__ import annotations

import asyncio
import os
import pickle
import random
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest
import trio
import trio.testing

from fastlane import _clock
from fastlane.errors import ConfigurationError, QueueFullError, QueueTimeoutError
from fastlane.plays.urgency.admission import AdmissionSettings, Gate, Slot, _registry, gate_of, states
from fastlane.plays.urgency.pacing import Pacer
from fastlane.records.urgency import Level
from tests.admission import entering
from tests.admission.entering import free_slot
from tests.knowledge.forks import in_child

ONE = AdmissionSettings(max_concurrency=1)
FEW = AdmissionSettings(max_concurrency=3)


def gate_with(settings: AdmissionSettings, origin: str = "https://api.example.com") -> Gate:
    return gate_of(origin, b"account", "model", settings)


def entered(gate: Gate, settings: AdmissionSettings = ONE, level: Level = "interactive") -> Slot:
    return entering.entered(gate, settings, level)


async def async_entered(gate: Gate, settings: AdmissionSettings = ONE, level: Level = "interactive") -> Slot:
    return await entering.async_entered(gate, settings, level)


def until(holds: Callable[[], bool]) -> None:
    """Wait for what another thread is about to do."""
    for _ in range(6_000):
        if holds():
            return
        _clock.sleep(0.005)
    raise AssertionError("it never came to that")


def queued(gate: Gate) -> int:
    return sum(gate.state().queued.values())


def under_way(gate: Gate) -> int:
    return sum(gate.state().in_flight.values())


def test_clients_of_one_origin_account_and_model_share_a_gate() -> None:
    gate = gate_with(ONE)
    assert gate_with(FEW) is gate
    assert gate_of("https://api.example.com", b"another", "model", ONE) is not gate
    assert gate_of("https://api.example.com", b"account", None, ONE) is not gate


def test_the_strictest_bound_of_its_clients_holds() -> None:
    gate = gate_with(FEW)
    permit = entered(gate, ONE)
    assert free_slot(gate, FEW) is None
    assert gate.state().limit == 1
    permit.release(failed=False)


def test_a_place_is_given_back_once() -> None:
    gate = gate_with(FEW)
    first, second = entered(gate, FEW), entered(gate, FEW)
    first.release(failed=False)
    first.release()
    first.answered(429, {})
    assert under_way(gate) == 1
    second.release(failed=False)
    assert under_way(gate) == 0


def test_a_record_says_for_what_a_call_has_waited() -> None:
    gate = gate_with(ONE)
    first = entered(gate)
    assert first.record.waited_for is None
    assert first.record.waited_s == 0
    assert first.record.concurrency == 1
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(entered, gate)
        until(lambda: queued(gate) == 1)
        first.release(failed=False)
        record = second.result().record
    assert record.waited_for == "place"
    assert record.waited_s > 0
    assert record.ahead == 0


def test_threads_and_tasks_of_several_loops_never_have_more_places_than_there_are() -> None:
    gate = gate_with(FEW)
    together, most, calls = 0, 0, 0
    counting = threading.Lock()

    def count(change: int) -> None:
        nonlocal together, most, calls
        with counting:
            together += change
            most = max(most, together)
            calls += change > 0

    def of_thread() -> None:
        for number in range(20):
            permit = entered(gate, FEW, "background" if number % 3 else "interactive")
            count(1)
            _clock.sleep(0)
            count(-1)
            permit.release()

    async def of_task(number: int) -> None:
        for _ in range(20):
            permit = await async_entered(gate, FEW, "offline" if number % 3 else "interactive")
            count(1)
            await asyncio.sleep(0)
            count(-1)
            permit.release(failed=False)

    async def of_loop() -> None:
        await asyncio.gather(*(of_task(number) for number in range(12)))

    with ThreadPoolExecutor(14) as pool:
        for each in [pool.submit(of_thread) for _ in range(12)] + [pool.submit(asyncio.run, of_loop()) for _ in "ab"]:
            each.result()
    assert calls == 12 * 20 + 2 * 12 * 20
    assert 1 < most <= 3
    assert under_way(gate) == queued(gate) == 0


def test_cancellation_at_any_moment_gives_the_place_on() -> None:
    gate = gate_with(FEW)
    picks = random.Random(0)

    async def one() -> None:
        permit = await async_entered(gate, FEW, picks.choice(["interactive", "background", "offline"]))
        try:
            await asyncio.sleep(picks.choice([0, 0, 0.001]))
        finally:
            permit.release(failed=False)

    async def storm() -> None:
        tasks = [asyncio.create_task(one()) for _ in range(2_000)]
        for task in picks.sample(tasks, 1_500):
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(storm())
    assert under_way(gate) == queued(gate) == 0
    for _ in range(3):
        assert free_slot(gate, FEW) is not None


def test_a_task_that_is_cancelled_with_its_place_in_hand_gives_it_on() -> None:
    gate = gate_with(ONE)

    async def both() -> None:
        first = await async_entered(gate)
        second = asyncio.create_task(async_entered(gate))
        third = asyncio.create_task(async_entered(gate))
        await asyncio.sleep(0)
        first.release(failed=False)
        second.cancel()
        (await third).release(failed=False)
        with pytest.raises(asyncio.CancelledError):
            await second

    asyncio.run(both())
    assert under_way(gate) == 0


def test_those_that_wait_in_a_closed_loop_take_no_place() -> None:
    gate = gate_with(ONE)
    permit = entered(gate)
    loop = asyncio.new_event_loop()
    waiting = [loop.create_task(async_entered(gate)) for _ in range(3)]
    loop.run_until_complete(asyncio.sleep(0))
    assert queued(gate) == 3
    loop.close()
    with ThreadPoolExecutor(1) as pool:
        alive = pool.submit(entered, gate)
        until(lambda: queued(gate) == 4)
        permit.release(failed=False)
        alive.result().release(failed=False)
    assert under_way(gate) == queued(gate) == 0
    for task in waiting:
        # Nobody can end them any more; asyncio would say so.
        task._log_destroy_pending = False  # type: ignore[attr-defined]


def test_a_task_of_trio_waits_too() -> None:
    gate = gate_with(ONE)
    order: list[str] = []

    async def second() -> None:
        permit = await async_entered(gate)
        order.append("second")
        permit.release(failed=False)

    async def both() -> None:
        first = await async_entered(gate)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(second)
            await trio.testing.wait_all_tasks_blocked()
            assert queued(gate) == 1
            with pytest.raises(QueueTimeoutError):
                await entering.async_entered(gate, ONE, max_wait_s=0.01)
            with trio.move_on_after(0.01):
                await async_entered(gate)
            order.append("first")
            first.release(failed=False)

    trio.run(both)
    assert order == ["first", "second"]
    assert under_way(gate) == queued(gate) == 0


def test_a_full_queue_refuses_and_says_so() -> None:
    settings = AdmissionSettings(max_concurrency=1, max_queued=1)
    gate = gate_with(settings)
    first = entered(gate, settings)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(entered, gate, settings, "background")
        until(lambda: queued(gate) == 1)
        with pytest.raises(QueueFullError, match="1 calls wait for their place, and max_queued is 1") as refused:
            entered(gate, settings, "offline")
        assert refused.value.queued == 1
        assert pickle.loads(pickle.dumps(refused.value)).queued == 1
        # What is less urgent fills no queue for what is more so.
        urgent = threading.Thread(target=lambda: entered(gate, settings).release(failed=False))
        urgent.start()
        until(lambda: queued(gate) == 2)
        first.release(failed=False)
        urgent.join(60)
        waiting.result(60).release(failed=False)
    assert gate.state().refused == 1


def test_one_whose_place_does_not_come_in_time_is_told_so() -> None:
    gate = gate_with(ONE)
    permit = entered(gate)
    with pytest.raises(QueueTimeoutError, match=r"its place did not come in time.*it may wait 0.01 s"):
        entering.entered(gate, ONE, max_wait_s=0.01)

    async def waits() -> None:
        with pytest.raises(QueueTimeoutError):
            await entering.async_entered(gate, ONE, max_wait_s=0.01)

    asyncio.run(waits())
    assert queued(gate) == 0
    permit.release(failed=False)
    assert under_way(gate) == 0


def test_one_that_would_certainly_wait_too_long_for_the_pace_does_not_wait_at_all() -> None:
    settings = AdmissionSettings(requests_per_minute=1)
    gate = gate_with(settings)
    while (permit := free_slot(gate, settings)) is not None:
        permit.release(failed=False)
    with pytest.raises(QueueTimeoutError, match="would come too late") as refused:
        entering.entered(gate, settings, max_wait_s=0.5)
    assert refused.value.expected_wait_s is not None
    assert refused.value.expected_wait_s > 0.5


def test_one_that_waits_for_the_pace_is_woken_at_its_time_though_nothing_happens() -> None:
    settings = AdmissionSettings(requests_per_minute=600)
    gate = gate_with(settings)
    while (permit := free_slot(gate, settings)) is not None:
        permit.release(failed=False)
    record = entered(gate, settings).record
    assert record.waited_for == "pace"
    assert record.waited_s > 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a platform without fork")
def test_a_child_starts_with_an_empty_gate() -> None:
    gate = gate_with(ONE)
    permit = entered(gate)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(entered, gate)
        until(lambda: queued(gate) == 1)
        held, let_go = threading.Event(), threading.Event()

        def hold() -> None:
            with gate._lock:
                held.set()
                let_go.wait(60)

        holder = threading.Thread(target=hold)
        holder.start()
        assert held.wait(60)

        def in_the_child() -> bool:
            empty = under_way(gate) == queued(gate) == 0
            permit.release(failed=False)
            entered(gate).release(failed=False)
            return empty and under_way(gate) == 0

        assert in_child(in_the_child)
        let_go.set()
        holder.join()
        permit.release(failed=False)
        waiting.result(60).release(failed=False)


def test_gates_that_nobody_uses_are_forgotten_and_busy_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = gate_with(ONE)
    permit = entered(busy)
    monkeypatch.setattr(_registry.gates, "_max_entries", 4)
    for number in range(20):
        gate_with(ONE, f"https://{number}.example.com")
    assert len(states()) == 4
    assert gate_with(ONE) is busy
    assert states()[0].in_flight["interactive"] == 1
    permit.release(failed=False)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"max_concurrency": 0}, "max_concurrency takes a whole number of at least 1, got 0"),
        ({"max_concurrency": 2.5}, "max_concurrency takes a whole number"),
        ({"reserved": 1}, "reserved takes a share from 0 to below 1, got 1"),
        ({"ageing_s": 0}, "ageing_s takes seconds above 0"),
        ({"max_queued": None}, "max_queued takes a whole number of at least 1, got None"),
        ({"pacing": "yes"}, "pacing takes True or False"),
        ({"requests_per_minute": -1}, "requests_per_minute takes a number above 0"),
        ({"tokens_per_minute": float("nan")}, "tokens_per_minute takes a number above 0"),
    ],
)
def test_a_setting_that_cannot_work_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        AdmissionSettings(**wrong)


def refused_at(gate: Gate, held: int, status: int, headers: dict[str, str]) -> None:
    """Send so many calls, and have the last two refused."""
    permits = [entered(gate, AdmissionSettings()) for _ in range(held)]
    for permit in permits[-2:]:
        permit.answered(status, headers)
    for permit in permits:
        permit.release()


@pytest.mark.parametrize("status", [429, 503, 529])
def test_a_refusal_teaches_how_many_are_too_many(status: int) -> None:
    gate = gate_with(AdmissionSettings())
    refused_at(gate, 4, status, {})
    assert gate.state().limit == 2


def test_a_refusal_that_asks_for_a_rest_is_one_of_the_pace_and_not_of_places() -> None:
    gate = gate_with(AdmissionSettings())
    before = gate.state().limit
    refused_at(gate, 3, 429, {"retry-after": "20"})
    assert gate.state().limit == before
    assert free_slot(gate, AdmissionSettings()) is None


def test_other_failures_teach_nothing_of_places() -> None:
    gate = gate_with(AdmissionSettings())
    before = gate.state().limit
    refused_at(gate, 3, 500, {})
    assert gate.state().limit == before


def test_a_place_that_comes_in_the_moment_of_ctrl_c_is_given_back() -> None:
    gate = gate_with(ONE)
    held = entered(gate)

    def interrupt(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_qualname == "Pause._end":
            sys.setprofile(None)
            raise KeyboardInterrupt

    def let_it_in() -> None:
        until(lambda: queued(gate) == 1)
        held.release(failed=False)

    with ThreadPoolExecutor(1) as pool:
        leaving = pool.submit(let_it_in)
        sys.setprofile(interrupt)
        try:
            with pytest.raises(KeyboardInterrupt):
                entered(gate)
        finally:
            sys.setprofile(None)
        leaving.result(20)
    assert under_way(gate) == 0


def test_a_bound_holds_while_its_client_goes_on_calling_and_lapses_ten_minutes_later() -> None:
    time_s = [0]
    gate = Gate("https://api.example.com", "model", Pacer(), clock=lambda: time_s[0] * 10**9)
    free = AdmissionSettings()

    def places() -> int:
        held: list[Slot] = []
        while len(held) < 2 and (permit := free_slot(gate, free)) is not None:
            held.append(permit)
        for permit in held:
            permit.release(failed=False)
        return len(held)

    for _ in range(700):
        time_s[0] += 1
        entered(gate, ONE).release()
        entered(gate, free).release()
    assert places() == 1
    time_s[0] += 580
    assert places() == 1
    time_s[0] += 40
    assert places() == 2


def test_limit_grows_where_calls_take_ten_seconds() -> None:
    """A gate reads its clients' settings every ten seconds: the same settings do not begin the count anew."""
    time_s = [0]
    gate = Gate("https://api.example.com", "model", Pacer(), clock=lambda: time_s[0] * 10**9)
    settings = AdmissionSettings()
    held = deque(entered(gate, settings) for _ in range(40))
    for _ in range(20):
        refused = held.pop()
        refused.answered(503, {})
        refused.release()
    assert gate.state().limit == 20
    for _ in range(100):
        time_s[0] += 1
        for _ in range(len(held) // 10):
            held.popleft().release(failed=False)
        while len(held) < 100 and (permit := free_slot(gate, settings)) is not None:
            held.append(permit)
    assert len(held) > 30
