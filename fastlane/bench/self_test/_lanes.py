"""Requests in staggered lanes, sent and recorded by the harness's own workers, to a truth server."""

from __future__ import annotations

import contextlib
import heapq
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final

from ..._clock import now_ns
from .._arms import Arm
from ..recorded import Part, Sample, Vitals
from ..running._messages import BeginCell, EndCell, Ended, Job, NotMade, Place
from ..running._workers import RunFailedError, Worker

THINK_S: Final = 0.02
"""A lane waits up to this long before each further request, so that lanes that once met do not stay together."""
_WARM_UP_ROUNDS: Final = 2
_PATIENCE_S: Final = 60.0
_CELL: Final = "self-test"


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
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What one client's workers recorded."""

    samples: tuple[Sample, ...]
    """Those that count."""
    vitals: tuple[Vitals, ...]
    """How each process fared meanwhile."""


def read_lanes(arm: Arm, base_url: str, load: Lanes) -> Read:
    """Send a load with one arm's client, and return what was recorded. Raises RunFailedError where a process ends."""
    with contextlib.ExitStack() as stack:
        heard: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        workers = [stack.enter_context(_worker(arm, base_url, shard, heard)) for shard in range(load.shards)]
        coordinator = _Coordinator(arm, load, workers, heard)
        coordinator.wait(load.shards)
        coordinator.warm_up()
        for worker in workers:
            worker.order(BeginCell())
        samples = coordinator.run()
        for worker in workers:
            worker.order(EndCell(_CELL))
        vitals = coordinator.wait(load.shards)
    return Read(samples=tuple(samples), vitals=tuple(each for each in vitals if isinstance(each, Vitals)))


@contextlib.contextmanager
def _worker(arm: Arm, base_url: str, shard: int, heard: SimpleQueue[tuple[int, Any]]) -> Iterator[Worker]:
    worker = Worker(
        arm,
        base_url=base_url,
        api_key="none",
        shard=shard,
        environment={},
        capacity=None,
        heard=lambda _, what: heard.put((shard, what)),
    )
    try:
        yield worker
    finally:
        worker.close()


class _Coordinator:
    def __init__(self, arm: Arm, load: Lanes, workers: Sequence[Worker], heard: SimpleQueue[tuple[int, Any]]) -> None:
        self._arm = arm
        self._load = load
        self._workers = workers
        self._heard = heard
        self._random = random.Random(load.seed)

    def _send(self, lane: int, block: int, part: Part) -> None:
        tag = f"{self._arm.name}/{part}/{lane}/{block}".replace(" ", "-")
        place = Place(
            arm=self._arm.name, tag=tag, cell=_CELL, lane=lane, block=block, conversation=tag, turn=0, part=part
        )
        body = {
            "model": "truth",
            "messages": [{"role": "user", "content": "Is water wet?"}],
            "stream_options": {"include_usage": True},
            # Not a header: what differs between calls in more than the body costs every client time to build.
            "user": tag,
        }
        self._workers[lane % len(self._workers)].order(Job(place, body, {}))

    def _hear(self, timeout_s: float) -> Any:
        _, what = self._heard.get(timeout=timeout_s)
        if isinstance(what, Ended):
            raise RunFailedError(f"the process of arm {self._arm.name!r} ended early: its stderr says why")
        if isinstance(what, NotMade):
            raise RunFailedError(f"the client of {self._arm.name!r} could not be made: {what.why}")
        if isinstance(what, Sample) and what.error is not None:
            raise RunFailedError(f"a request of {self._arm.name!r} failed: {what.error}: {what.error_message}")
        return what

    def wait(self, count: int) -> list[Any]:
        """The next messages, of whatever kind."""
        try:
            return [self._hear(_PATIENCE_S) for _ in range(count)]
        except Empty as error:
            raise RunFailedError(f"nothing was heard of {self._arm.name!r} for {_PATIENCE_S:.0f} s") from error

    def warm_up(self) -> None:
        """Have every process import what it needs and open its connections: one by one first, then all at once."""
        for shard in range(len(self._workers)):
            self._send(shard, -1, "cold")
            self.wait(1)
        for number in range(_WARM_UP_ROUNDS):
            for lane in range(self._load.lanes):
                self._send(lane, number, "warm-up")
            self.wait(self._load.lanes)

    def run(self) -> list[Sample]:
        """Every lane's requests, one after the other."""
        load = self._load
        begun_ns = now_ns()
        due = [(begun_ns + round(lane / load.lanes * load.answer_s * 1e9), lane, 0) for lane in range(load.lanes)]
        heapq.heapify(due)
        samples: list[Sample] = []
        while len(samples) < load.lanes * load.requests:
            wait_s = (due[0][0] - now_ns()) / 1e9 if due else _PATIENCE_S
            if wait_s <= 0:
                _, lane, block = heapq.heappop(due)
                self._send(lane, block, "measured")
                continue
            try:
                sample = self._hear(wait_s)
            except Empty as error:
                if due:
                    continue
                raise RunFailedError(f"an answer for {self._arm.name!r} does not end") from error
            samples.append(sample)
            if sample.block + 1 < load.requests:
                at_ns = now_ns() + round(self._random.uniform(0, THINK_S) * 1e9)
                heapq.heappush(due, (at_ns, sample.lane, sample.block + 1))
        return samples
