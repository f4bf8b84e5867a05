"""Everything that one machine does of a run: it hands requests out to one process per arm, and yields what comes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Final, Self

from ..._clock import now_ns
from ..recorded import Sample, Vitals
from ._cell_state import CellState, block_s, until
from ._jobs import Jobs
from ._messages import (
    BeginCell,
    BlockDone,
    CellEnded,
    CellPlan,
    Done,
    EndCell,
    Event,
    NotMade,
    Ready,
    ScheduledRequest,
    Settle,
    ShardPlan as ShardPlan,
    WorkerEnded,
)
from ._pacing import ClosedPacing, Due, OpenPacing, Pacing
from ._probes import Probe
from ._workers import RunFailedError, Worker, ended_early

# In steps: on Windows an unlimited wait would not let Ctrl-C through.
_STEP_S = 0.5
MAKING_NS: Final = 180_000_000_000
"""How long an arm's process may take to start and to make its client: seconds, where the machine is not overloaded."""


class Shard:
    """One machine's part of a run: `start` it, `run` one cell after the other, `close` it.

    Making it starts the arms' processes; it is the plan that travels to another machine, not the shard.

    `run` is a generator: only while it is asked for the next event are requests handed out, so that whoever asks has
    to take events as they come. `end_cell` and `interrupt` may be called from any thread.
    """

    def __init__(self, plan: ShardPlan) -> None:
        self._plan = plan
        self._jobs = Jobs(plan)
        self._inbox: SimpleQueue[tuple[str | None, Any]] = SimpleQueue()
        self._workers: dict[str, Worker] = {}
        self._closing = ExitStack()
        self._block_s = 0.0
        self.clients: dict[str, Ready] = {}
        # Here, because it is in its main thread that a process can have its children begin deaf to Ctrl-C.
        try:
            for arm in plan.arms:
                worker = Worker(
                    arm,
                    base_url=plan.base_url,
                    api_key=plan.api_key,
                    shard=plan.shard,
                    environment=plan.environment,
                    heard=lambda name, what: self._inbox.put((name, what)),
                )
                self._workers[arm.name] = worker
                self._closing.callback(worker.close)
        except BaseException:
            self.abandon()
            self.close()
            raise

    def start(self) -> tuple[Sample, ...]:
        """Wait for the arms' processes, and send each one's first request of all.

        Raises RunFailedError if one fails: nothing that follows would be worth its time or its price.
        """
        plan = self._plan
        until_ns = now_ns() + MAKING_NS
        while len(self.clients) < len(plan.arms):
            name, what = self._hear()
            if now_ns() > until_ns:
                late = next(arm.name for arm in plan.arms if arm.name not in self.clients)
                raise RunFailedError(f"the client of arm {late!r} was not made within {MAKING_NS / 1e9:g} s")
            if isinstance(what, Ready) and name is not None:
                self.clients[name] = what
        samples = []
        for arm in plan.arms:
            sample = self._one(self._jobs.cold(arm.name))
            if sample.error is not None:
                whom = f" to {plan.host}" if plan.host else ""
                raise RunFailedError(
                    f"the first request of arm {arm.name!r}{whom} failed: {sample.error}: {sample.error_message}"
                )
            samples.append(sample)
        for worker in self._workers.values():
            worker.order(Settle())
        settled = 0
        while settled < len(self._workers):
            settled += isinstance(self._hear()[1], Settle)
        self._block_s = block_s(samples)
        return tuple(samples)

    def run(self, plan: CellPlan) -> Iterator[Event]:
        """Send a cell's requests, and yield every Sample, BlockDone and Vitals as it comes; CellEnded is the last.

        Raises RunFailedError where an arm's process ends.
        """
        probe = Probe(shard=self._plan.shard)
        for worker in self._workers.values():
            worker.order(BeginCell())
        probe.start()
        cell = CellState(plan, len(self._workers))
        warm = []
        for number in range(plan.warm_up):
            for arm in self._plan.arms:
                if cell.why is None:
                    sample = self._one(self._jobs.warm_up(plan, arm.name, number), cell)
                    if sample is not None:
                        warm.append(sample)
                        yield sample
        if warm:
            self._block_s = block_s(warm)
        yield from self._work(plan, cell)
        for worker in self._workers.values():
            worker.order(EndCell(plan.cell.name))
        missing = set(self._workers)
        while missing:
            name, what = self._hear()
            if isinstance(what, Vitals):
                missing.discard(name or "")
                yield what
            elif isinstance(what, Sample):
                yield from self._recorded(cell, what)
        yield probe.stop(plan.cell.name)
        yield CellEnded(
            why=cell.why or "finished", duration_s=cell.duration_s, abandoned=(*cell.in_flight, *cell.unrecorded)
        )

    def end_cell(self, cell: str) -> None:
        """Start no further block of a cell, if that is still the one that is running; those under way finish."""
        self._inbox.put((None, EndCell(cell)))

    def interrupt(self) -> None:
        """End the cell soon: requests that are under way get a moment to finish."""
        self._inbox.put((None, "interrupted"))

    def abandon(self) -> None:
        """Have the arms' processes end now, whatever they do."""
        for worker in self._workers.values():
            worker.abandon()

    def close(self) -> None:
        """End the arms' processes, which have nothing to do any more, or have been abandoned."""
        self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.abandon()
        self.close()

    def _work(self, plan: CellPlan, cell: CellState) -> Iterator[Event]:
        pacing = self._pacing(plan)
        cell.began_ns = cell.ended_ns = now_ns()
        pacing.begin(cell.began_ns)
        while True:
            now = now_ns()
            cell.check(pacing, now)
            due_ns = None if cell.why else pacing.next_ns()
            if due_ns is not None and due_ns <= now:
                cell.committed += len(self._workers)
                for due in pacing.start():
                    self._send(plan, cell, due)
                continue
            if due_ns is None and not cell.in_flight:
                return
            if cell.until_ns is not None and now >= cell.until_ns:
                return
            name, what = self._hear(until(now, due_ns, cell.until_ns))
            if name is None and what is not None:
                cell.stop(what)
            elif isinstance(what, Done | Sample):
                # First the next request, then whatever somebody does with this one's record.
                self._answered(plan, cell, pacing, what.tag)
                if isinstance(what, Sample):
                    yield from self._recorded(cell, what)

    def _answered(self, plan: CellPlan, cell: CellState, pacing: Pacing, tag: str) -> None:
        due = cell.in_flight.get(tag)
        if due is None:  # Its record follows the news of its end, or Ctrl-C has cut off the warm-up.
            return
        cell.unrecorded[tag] = cell.in_flight.pop(tag)
        following = pacing.answered(due, now_ns())
        if cell.until_ns is None:
            for each in following:
                self._send(plan, cell, each)

    def _recorded(self, cell: CellState, answer: Sample) -> Iterator[Event]:
        if answer.tag not in cell.unrecorded and answer.tag not in cell.in_flight:
            return
        due = cell.unrecorded.pop(answer.tag, None) or cell.in_flight.pop(answer.tag, None)
        sample = self._priced(answer)
        cell.took(sample, counts=due is not None)
        yield sample
        # A request of the warm-up, which Ctrl-C had cut off, belongs to no block.
        if due is not None and cell.is_done(due.block.lane, due.block.number):
            yield BlockDone(shard=self._plan.shard, lane=due.block.lane, block=due.block.number)

    def _pacing(self, plan: CellPlan) -> Pacing:
        arms = tuple(self._workers)
        shard, shards = self._plan.shard, self._plan.shards
        seed = f"{self._plan.seed}/{plan.cell.name}"
        if plan.cell.load == "open":
            return OpenPacing(plan, arms, shard=shard, shards=shards, seed=seed)
        return ClosedPacing(plan, arms, shard=shard, shards=shards, seed=seed, block_s=self._block_s)

    def _send(self, plan: CellPlan, cell: CellState, due: Due) -> None:
        job = self._jobs.of_block(plan, due)
        cell.in_flight[job.place.tag] = due
        self._workers[due.arm].order(job)

    def _one(self, job: ScheduledRequest, cell: CellState | None = None) -> Any:
        """Have one request sent, and wait for it; None where Ctrl-C cut it off."""
        self._workers[job.place.arm].order(job)
        while True:
            now = now_ns()
            if cell is not None and cell.until_ns is not None and now >= cell.until_ns:
                cell.in_flight[job.place.tag] = None
                return None
            name, what = self._hear(until(now, cell.until_ns if cell is not None else None))
            if name is None and what is not None and cell is not None:
                cell.stop(what)
            elif isinstance(what, Sample) and what.tag == job.place.tag:
                sample = self._priced(what)
                if cell is not None:
                    cell.committed += 1
                    cell.took(sample, counts=False)
                return sample

    def _hear(self, timeout_s: float | None = None) -> tuple[str | None, Any]:
        """Return the next message; (None, None) where none came in time. Raises RunFailedError for a worker's end."""
        try:
            name, what = self._inbox.get(timeout=_STEP_S if timeout_s is None else min(timeout_s, _STEP_S))
        except Empty:
            return None, None
        if isinstance(what, NotMade):
            raise RunFailedError(f"the client of arm {name!r} could not be made: {what.why}")
        if isinstance(what, WorkerEnded):
            raise ended_early(name or "")
        return name, what

    def _priced(self, sample: Sample) -> Sample:
        routed = sample.record.routing.price if sample.record is not None and sample.record.routing else None
        if routed is not None:
            return replace(sample, price=routed)
        if self._plan.price is None or sample.input_tokens is None or sample.output_tokens is None:
            return sample
        return replace(
            sample, price=self._plan.price.of(sample.input_tokens, sample.output_tokens, sample.cached_tokens or 0)
        )
