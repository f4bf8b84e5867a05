"""Requests in staggered lanes, sent and recorded by the harness's own workers, to a truth server."""

from __future__ import annotations

import contextlib
import heapq
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from time import perf_counter_ns as now_ns
from typing import Any, Final, TypeVar

from fastlane.bench._arms import Arm
from fastlane.bench.recorded import Part, Sample, SampleKey, Vitals
from fastlane.bench.running._requests import BeginCell, Done, EndCell, Ready, RunFailedError, ScheduledRequest
from fastlane.bench.running._worker import LocalShard, ShardPlan

THINK_S: Final = 0.02
"""A lane waits up to this long before each further request, so that lanes that once met do not stay together."""
_WARM_UP_ROUNDS: Final = 2
_PATIENCE_S: Final = 60.0
_CELL: Final = "self-test"
_Kind = TypeVar("_Kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """A closed load: each lane has one request in flight. Starts are spread over the time that one answer takes."""

    lanes: int
    requests: int
    """Of each lane that count."""
    answer_s: float
    """What one answer takes."""
    shards: int = 1
    """Processes that share the lanes."""


def read_lanes(arm: Arm, base_url: str, load: Lanes) -> tuple[Sample, ...]:
    """Send a load with one arm's client, and return the samples that count.

    Raises RunFailedError if a process ends.
    """
    with contextlib.ExitStack() as stack:
        messages: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        workers = [stack.enter_context(_worker(arm, base_url, shard, messages)) for shard in range(load.shards)]
        coordinator = _Coordinator(arm, load, workers, messages)
        coordinator.messages_of_each(Ready)
        coordinator.warm_up()
        coordinator.order_each(BeginCell())
        coordinator.messages_of_each(BeginCell)
        coordinator.run()
        # What was kept until there was time for it comes before the vitals.
        coordinator.order_each(EndCell(_CELL))
        coordinator.messages_of_each(Vitals)
    return tuple(coordinator.samples)


@contextlib.contextmanager
def _worker(arm: Arm, base_url: str, number: int, messages: SimpleQueue[tuple[int, Any]]) -> Iterator[LocalShard]:
    plan = ShardPlan(arms=(arm,), base_url=base_url, api_key="none", shard=number)
    shard = LocalShard(plan, lambda _, what: messages.put((number, what)))
    try:
        yield shard
    finally:
        shard.close()


class _Coordinator:
    def __init__(
        self, arm: Arm, load: Lanes, workers: Sequence[LocalShard], messages: SimpleQueue[tuple[int, Any]]
    ) -> None:
        self._arm = arm
        self._load = load
        self._workers = workers
        self._messages = messages
        self._random = random.Random(0)
        self._in_flight: dict[str, tuple[int, int]] = {}
        """Lane and number of every request that is not over."""
        self.samples: list[Sample] = []
        """Those that count. They may come long after their requests are over, when a worker has time."""

    def _send(self, lane: int, block: int, part: Part) -> None:
        tag = f"{self._arm.name}/{part}/{lane}/{block}".replace(" ", "-")
        place = SampleKey(
            arm=self._arm.name, tag=tag, cell=_CELL, lane=lane, block=block, conversation=tag, turn=0, part=part
        )
        body = {
            "model": "truth",
            "messages": [{"role": "user", "content": "Is water wet?"}],
            "stream_options": {"include_usage": True},
            # Not a header: what differs between calls in more than the body costs every client time to build.
            "user": tag,
        }
        self._in_flight[tag] = lane, block
        self._workers[lane % len(self._workers)].order(self._arm.name, ScheduledRequest(place, body, {}))

    def _next_message(self, timeout_s: float) -> Any:
        """The next message; raises queue.Empty where none comes in time."""
        _, what = self._messages.get(timeout=timeout_s)
        if isinstance(what, RunFailedError):
            raise what
        if isinstance(what, Sample):
            if what.error is not None:
                raise RunFailedError(f"a request of {self._arm.name!r} failed: {what.error}: {what.error_message}")
            if what.part == "measured":
                self.samples.append(what)
        return what

    def _over(self, what: Any) -> tuple[int, int] | None:
        """Lane and number of the request that a message says is over; None for any other message."""
        return self._in_flight.pop(what.tag, None) if isinstance(what, Done | Sample) else None

    def _silent(self) -> RunFailedError:
        return RunFailedError(f"no message came from {self._arm.name!r} for {_PATIENCE_S:.0f} s")

    def order_each(self, order: Any) -> None:
        """Order every worker the same."""
        for worker in self._workers:
            worker.order(self._arm.name, order)

    def messages_of_each(self, kind: type[_Kind]) -> list[_Kind]:
        """Wait until every worker has sent a message of this kind."""
        received: list[_Kind] = []
        while len(received) < len(self._workers):
            try:
                what = self._next_message(_PATIENCE_S)
            except Empty as error:
                raise self._silent() from error
            if isinstance(what, kind):
                received.append(what)
        return received

    def warm_up(self) -> None:
        """Have every process import what it needs and open its connections: one by one first, then all at once."""
        for shard in range(len(self._workers)):
            self._send(shard, -1, "cold")
            self._finish()
        for number in range(_WARM_UP_ROUNDS):
            for lane in range(self._load.lanes):
                self._send(lane, number, "warm-up")
            self._finish()

    def _finish(self) -> None:
        while self._in_flight:
            try:
                self._over(self._next_message(_PATIENCE_S))
            except Empty as error:
                raise self._silent() from error

    def run(self) -> None:
        """Every lane's requests, one after the other."""
        load = self._load
        begun_ns = now_ns()
        due = [(begun_ns + round(lane / load.lanes * load.answer_s * 1e9), lane, 0) for lane in range(load.lanes)]
        heapq.heapify(due)
        while due or self._in_flight:
            wait_s = (due[0][0] - now_ns()) / 1e9 if due else _PATIENCE_S
            if wait_s <= 0:
                _, lane, block = heapq.heappop(due)
                self._send(lane, block, "measured")
                continue
            try:
                over = self._over(self._next_message(wait_s))
            except Empty as error:
                if due:
                    continue
                raise self._silent() from error
            if over is not None and over[1] + 1 < load.requests:
                at_ns = now_ns() + round(self._random.uniform(0, THINK_S) * 1e9)
                heapq.heappush(due, (at_ns, over[0], over[1] + 1))
