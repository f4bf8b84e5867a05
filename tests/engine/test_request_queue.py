"""The queue of requests: its order with a clock of the test's own, then between real threads and event loops."""

from __future__ import annotations

import asyncio
import os
import pickle
import random
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fastlane import _clock
from fastlane.engine.drivers import async_run, run
from fastlane.engine.effects import Acquire, Flow
from fastlane.engine.request_queue import GRANTED, QueueTicket, RequestQueue
from fastlane.errors import QueueFullError, QueueTimeoutError
from tests.knowledge.forks import in_child
from tests.waiting import until

S = 1_000_000_000
OPEN: Any = SimpleNamespace(is_closed=False)
"""An HTTP client that stays open."""


class FixedSlotQueue(RequestQueue):
    """So many tickets at once, some of them for level 0 alone, and so many seconds between two."""

    def __init__(self, slots: int, *, kept: int = 0, gap_s: float = 0.0, from_s: float = 0.0, **more: Any) -> None:
        self.slots, self.kept = slots, kept
        self.under_way = 0
        self.from_ns = int(from_s * S)
        """Before this, level 0 alone is granted."""
        self._gap_ns_between, self._next_ns = int(gap_s * S), 0
        super().__init__(**more)

    def ready_ns(self, ticket: QueueTicket, level: int, now: int) -> int | None:
        if self.under_way + (self.kept if level else 0) >= self.slots:
            return None
        return max(now, self._next_ns, self.from_ns if ticket.level else 0)

    def on_granted(self, ticket: QueueTicket, now: int) -> None:
        self.under_way += 1
        self._next_ns = now + self._gap_ns_between

    def on_released(self, ticket: QueueTicket, now: int, *, failed: bool) -> None:
        self.under_way -= 1

    def on_fork(self) -> None:
        self.under_way = 0


class Clock:
    """The time of a queue, which tests move; alarms ring as it passes them."""

    def __init__(self, slots: int, **more: Any) -> None:
        self.now_ns = 0
        self.alarms: list[tuple[int, Callable[[], None]]] = []
        self.queue = FixedSlotQueue(
            slots, clock=lambda: self.now_ns, call_at=lambda *alarm: self.alarms.append(alarm), **more
        )
        self.granted: list[QueueTicket] = []

    def at(self, seconds: float) -> None:
        self.go_on(int(seconds * S))

    def go_on(self, until_ns: int) -> None:
        while self.alarms and min(self.alarms)[0] <= until_ns:
            alarm = min(self.alarms)
            self.alarms.remove(alarm)
            self.now_ns = max(self.now_ns, alarm[0])
            alarm[1]()
        self.now_ns = until_ns

    def come(self, level: int, **more: Any) -> QueueTicket:
        ticket = QueueTicket(self.queue, level, **more)

        def wake() -> bool:
            self.granted.append(ticket)
            return True

        ticket.start(wake)
        return ticket


# Its order


def test_cancelled_tickets_do_not_fill_the_memory() -> None:
    clock = Clock(1)
    clock.come(0)
    clock.come(1)
    for _ in range(1_000):
        clock.come(1).release()
    assert sum(len(line) for line in clock.queue._lines) < 200
    assert clock.queue.queued == [0, 1, 0]


def test_background_ticket_gets_a_reserved_slot_after_its_wait() -> None:
    clock = Clock(4, kept=1)
    assert all(clock.come(1).is_granted for _ in range(3))
    waiting = clock.come(1)
    clock.at(29.9)
    assert not waiting.is_granted
    clock.at(30)
    assert waiting.is_granted


def test_background_tickets_get_at_least_one_slot_of_eight() -> None:
    clock = Clock(4)
    under_way = [clock.come(0) for _ in range(4)]
    background = [clock.come(1) for _ in range(3)]
    clock.at(31)
    for _ in range(40):
        clock.come(0)
        under_way.pop(0).release()
        under_way.append(clock.granted[-1])
    slots = [number for number, ticket in enumerate(clock.granted) if ticket in background]
    assert [later - earlier for earlier, later in pairwise(slots)] == [8, 8]


def test_old_ticket_does_not_pass_an_interactive_one_of_its_age() -> None:
    clock = Clock(1)
    held = clock.come(0)
    interactive, background = clock.come(0), clock.come(1)
    clock.at(100)
    held.release()
    assert (interactive.is_granted, background.is_granted) == (True, False)


def test_old_ticket_that_is_held_back_holds_back_no_other() -> None:
    clock = Clock(4, from_s=500.0)
    background = clock.come(1)
    clock.at(100)
    assert clock.come(0).is_granted
    clock.at(501)
    assert background.is_granted


def test_full_queue_refuses_and_counts_no_less_urgent_ones() -> None:
    clock = Clock(1)
    clock.come(0)
    clock.come(1, max_queued=1)
    with pytest.raises(QueueFullError, match="1 calls wait already, and max_queued is 1") as raised:
        clock.come(2, max_queued=1)
    assert pickle.loads(pickle.dumps(raised.value)).queued == 1
    clock.come(0, max_queued=1)


class Queues(RuleBasedStateMachine):
    """Tickets of all levels come, end and are cancelled, and time passes, in any order."""

    @initialize(slots=st.integers(1, 9), kept=st.integers(0, 1), gap_s=st.sampled_from([0.0, 0.5]))
    def begin(self, slots: int, kept: int, gap_s: float) -> None:
        self.clock = Clock(slots, kept=min(kept, slots - 1), gap_s=gap_s)
        self.tickets: list[QueueTicket] = []

    def having(self, state: int) -> list[QueueTicket]:
        return [ticket for ticket in self.tickets if ticket.state == state]

    @rule(level=st.integers(0, 2))
    def come(self, level: int) -> None:
        waiting = self.having(1)
        ticket = self.clock.come(level, ageing_s=5.0)
        self.tickets.append(ticket)
        if ticket.is_granted:
            assert not any(one.level <= level for one in waiting)

    @precondition(lambda self: self.tickets)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        ticket = self.tickets.pop(data.draw(st.integers(0, len(self.tickets) - 1)))
        ticket.release()
        ticket.release()

    @rule(seconds=st.floats(0, 20))
    def time_passes(self, seconds: float) -> None:
        self.clock.go_on(self.clock.now_ns + int(seconds * S))

    @invariant()
    def no_slot_is_lost_or_made(self) -> None:
        if hasattr(self, "clock"):
            queue = self.clock.queue
            assert queue.under_way == len(self.having(GRANTED)) <= queue.slots
            assert sum(queue.queued) == len(self.having(1))
            for level in range(3):
                line = [one for one in self.tickets if one.level == level]
                order = [one.is_granted for one in sorted(line, key=lambda one: (one.arrived_ns, one.arrival))]
                assert order == sorted(order, reverse=True)

    @invariant()
    def no_ticket_waits_beside_a_free_slot(self) -> None:
        if hasattr(self, "clock") and self.having(1):
            queue = self.clock.queue
            assert queue.under_way == queue.slots or self.clock.alarms
            if queue.under_way == 0:
                assert queue._gap_ns_between

    def teardown(self) -> None:
        """Every ticket is granted in the end."""
        if hasattr(self, "clock"):
            for _ in range(1_000):
                if not self.tickets:
                    break
                for ticket in self.having(GRANTED):
                    self.tickets.remove(ticket)
                    ticket.release()
                self.time_passes(1.0)
            assert not self.tickets


Queues.TestCase.settings = settings(stateful_step_count=40)
TestQueues = Queues.TestCase


# Between threads and event loops


def acquired(queue: RequestQueue, level: int, max_wait_s: float | None) -> Flow:
    """Acquire a ticket as a session does, and release it where that fails."""
    ticket = QueueTicket(queue, level, max_wait_s=max_wait_s)
    try:
        try:
            yield Acquire(OPEN, ticket, max_wait_s)
        except TimeoutError:
            queue.give_up(ticket)
    except BaseException:
        ticket.release()
        raise
    return ticket


def entered(queue: RequestQueue, level: int = 0, max_wait_s: float | None = 60) -> QueueTicket:
    ticket: QueueTicket = run(acquired(queue, level, max_wait_s))
    return ticket


async def async_entered(queue: RequestQueue, level: int = 0, max_wait_s: float | None = 60) -> QueueTicket:
    ticket: QueueTicket = await async_run(acquired(queue, level, max_wait_s))
    return ticket


def test_threads_and_tasks_never_exceed_the_slots() -> None:
    queue = FixedSlotQueue(3)
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
            ticket = entered(queue, min(1, number % 3))
            count(1)
            _clock.sleep(0)
            count(-1)
            ticket.release()

    async def of_task(number: int) -> None:
        for _ in range(20):
            ticket = await async_entered(queue, number % 3)
            count(1)
            await asyncio.sleep(0)
            count(-1)
            ticket.release()

    async def of_loop() -> None:
        await asyncio.gather(*(of_task(number) for number in range(12)))

    with ThreadPoolExecutor(14) as pool:
        for each in [pool.submit(of_thread) for _ in range(12)] + [pool.submit(asyncio.run, of_loop()) for _ in "ab"]:
            each.result()
    assert calls == 12 * 20 + 2 * 12 * 20
    assert 1 < most <= 3
    assert queue.under_way == sum(queue.queued) == 0


@pytest.mark.asyncio
async def test_cancelled_ticket_at_any_moment_releases_its_slot() -> None:
    queue = FixedSlotQueue(3)
    picks = random.Random(0)

    async def one() -> None:
        ticket = await async_entered(queue, picks.randrange(3))
        try:
            await asyncio.sleep(picks.choice([0, 0, 0.001]))
        finally:
            ticket.release()

    tasks = [asyncio.create_task(one()) for _ in range(2_000)]
    for task in picks.sample(tasks, 1_500):
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert queue.under_way == sum(queue.queued) == 0


def test_tasks_of_a_closed_loop_take_no_slot() -> None:
    queue = FixedSlotQueue(1)
    held = entered(queue)
    loop = asyncio.new_event_loop()
    waiting = [loop.create_task(async_entered(queue)) for _ in range(3)]
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    with ThreadPoolExecutor(1) as pool:
        alive = pool.submit(entered, queue)
        until(lambda: sum(queue.queued) == 4)
        held.release()
        alive.result().release()
    assert queue.under_way == sum(queue.queued) == 0
    for task in waiting:
        # They can never end; asyncio would log that.
        task._log_destroy_pending = False  # type: ignore[attr-defined]


def test_trio_task_waits_for_a_slot() -> None:
    queue = FixedSlotQueue(1)

    async def both() -> None:
        first = await async_entered(queue)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(async_entered, queue)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(QueueTimeoutError):
                await async_entered(queue, max_wait_s=0.01)
            with trio.move_on_after(0.01):
                await async_entered(queue)
            assert sum(queue.queued) == 1
            first.release()

    trio.run(both)
    assert (queue.under_way, sum(queue.queued)) == (1, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a platform without fork")
def test_child_process_starts_with_an_empty_queue() -> None:
    queue = FixedSlotQueue(1)
    held = entered(queue)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(entered, queue)
        until(lambda: sum(queue.queued) == 1)
        locked, unlock = threading.Event(), threading.Event()

        def hold() -> None:
            with queue.lock:
                locked.set()
                unlock.wait(60)

        holder = threading.Thread(target=hold)
        holder.start()
        assert locked.wait(60)

        def child() -> bool:
            empty = queue.under_way == sum(queue.queued) == 0
            held.release()
            entered(queue).release()
            return empty and queue.under_way == 0

        assert in_child(child)
        unlock.set()
        holder.join()
        held.release()
        waiting.result(60).release()


def test_slot_granted_during_interrupt_is_released() -> None:
    queue = FixedSlotQueue(1)
    held = entered(queue)

    def interrupt(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_qualname == "Pause._end":
            sys.setprofile(None)
            raise KeyboardInterrupt

    def let_it_in() -> None:
        until(lambda: sum(queue.queued) == 1)
        held.release()

    with ThreadPoolExecutor(1) as pool:
        leaving = pool.submit(let_it_in)
        sys.setprofile(interrupt)
        try:
            with pytest.raises(KeyboardInterrupt):
                entered(queue)
        finally:
            sys.setprofile(None)
        leaving.result(20)
    assert queue.under_way == 0
