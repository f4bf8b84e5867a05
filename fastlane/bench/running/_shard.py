"""Everything that one machine does of a run: it hands requests out to one process per arm, and yields what comes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self

from ..._clock import now_ns
from ...catalog import Price
from .._arms import Arm
from ..load import Spent, exhausted, first_turn
from ..recorded import Sample, Vitals
from ..workloads import Turn
from ._messages import BeginCell, BlockDone, CellEnded, CellPlan, EndCell, Ended, Event, Job, Place, Ready
from ._pacing import ClosedPacing, Due, OpenPacing, Pacing
from ._probes import Probe
from ._requests import Requests, tokens_of
from ._workers import RunFailedError, Worker, ended_early

GRACE_NS = 1_000_000_000
"""How long requests may take that are under way at Ctrl-C."""
# In steps: on Windows an unlimited wait would not let Ctrl-C through.
_STEP_S = 0.5
COLD_BLOCK = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPlan:
    """What a shard needs to know; it can be pickled, and taken to another machine."""

    arms: tuple[Arm, ...]
    base_url: str
    api_key: str = field(repr=False)
    model: str
    host: str = ""
    """What an error calls the provider; empty for the embedded one."""
    embedded: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the arms' processes need beside those that they inherit."""
    first: Turn
    """The request that every arm's process sends first."""
    price: Price | None = None
    max_output_tokens: int | None = None
    seed: int = 0
    shard: int = 0
    shards: int = 1
    session: int = 0
    """How often this run has been resumed."""


class Shard:
    """One machine's part of a run: `start` it, `run` one cell after the other, `close` it.

    Making it starts the arms' processes; it is the plan that travels to another machine, not the shard.

    `run` is a generator: only while it is asked for the next event are requests handed out, so that whoever asks has
    to take events as they come. `end_cell` and `interrupt` may be called from any thread.
    """

    def __init__(self, plan: ShardPlan) -> None:
        self._plan = plan
        self._requests = Requests(model=plan.model, embedded=plan.embedded, seed=plan.seed)
        self._inbox: SimpleQueue[tuple[str | None, Any]] = SimpleQueue()
        self._workers: dict[str, Worker] = {}
        self._closing = ExitStack()
        self._block_s = 0.0
        self._suffix = f"/{plan.session}" if plan.session else ""
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
        while len(self.clients) < len(plan.arms):
            name, what = self._hear()
            if isinstance(what, Ready) and name is not None:
                self.clients[name] = what
        samples = []
        for arm in plan.arms:
            tag = f"{arm.name}/cold" + (f"/{plan.shard}" if plan.shard else "") + self._suffix
            sample = self._one(self._single(arm.name, tag, plan.first, what="cold", part_cold=True))
            if sample.error is not None:
                whom = f" to {plan.host}" if plan.host else ""
                raise RunFailedError(
                    f"the first request of arm {arm.name!r}{whom} failed: {sample.error}: {sample.error_message}"
                )
            samples.append(sample)
        self._block_s = _block_s(samples)
        return tuple(samples)

    def run(self, plan: CellPlan) -> Iterator[Event]:
        """Send a cell's requests, and yield every Sample, BlockDone and Vitals as it comes; CellEnded is the last.

        Raises RunFailedError where an arm's process ends.
        """
        probe = Probe(shard=self._plan.shard)
        for worker in self._workers.values():
            worker.order(BeginCell())
        probe.start()
        cell = _Cell(plan, len(self._workers))
        warm = []
        for number in range(plan.warm_up):
            for arm in self._plan.arms:
                if cell.why is None:
                    tag = f"{plan.cell.order}/{arm.name}/warm-up/{self._plan.shard}/{number}{self._suffix}"
                    job = self._single(arm.name, tag, first_turn(plan.workload), what=f"{tag}", plan=plan)
                    sample = self._one(job, cell)
                    if sample is not None:
                        warm.append(sample)
                        yield sample
        if warm:
            self._block_s = _block_s(warm)
        yield from self._work(plan, cell)
        for worker in self._workers.values():
            worker.order(EndCell(plan.cell.name))
        missing = set(self._workers)
        while missing:
            name, what = self._hear()
            if isinstance(what, Vitals):
                missing.discard(name or "")
                yield what
        yield probe.stop(plan.cell.name)
        yield CellEnded(why=cell.why or "finished", duration_s=cell.duration_s, abandoned=tuple(cell.in_flight))

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

    def _work(self, plan: CellPlan, cell: _Cell) -> Iterator[Event]:
        pacing = self._pacing(plan)
        cell.began_ns = cell.ended_ns = now_ns()
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
            name, what = self._hear(_until(now, due_ns, cell.until_ns))
            if name is None and what is not None:
                cell.stop(what)
            elif isinstance(what, Sample):
                yield from self._answered(plan, cell, pacing, what)

    def _answered(self, plan: CellPlan, cell: _Cell, pacing: Pacing, answer: Sample) -> Iterator[Event]:
        due = cell.in_flight.pop(answer.tag, None)
        if due is None:  # A request of the warm-up that Ctrl-C cut off.
            return
        sample = self._priced(answer)
        cell.took(sample)
        following = pacing.answered(due, now_ns())
        if cell.until_ns is None:
            # First the next request, then whatever somebody does with this one's record.
            for each in following:
                self._send(plan, cell, each)
        yield sample
        if cell.is_done(due.block.lane, due.block.number):
            yield BlockDone(shard=self._plan.shard, lane=due.block.lane, block=due.block.number)

    def _pacing(self, plan: CellPlan) -> Pacing:
        arms = tuple(self._workers)
        shard, shards = self._plan.shard, self._plan.shards
        seed = f"{self._plan.seed}/{plan.cell.name}"
        if plan.cell.load == "open":
            return OpenPacing(plan, arms, shard=shard, shards=shards, seed=seed, now=now_ns())
        return ClosedPacing(
            plan, arms, shard=shard, shards=shards, seed=seed, block_s=self._block_s + plan.think_s, now=now_ns()
        )

    def _send(self, plan: CellPlan, cell: _Cell, due: Due) -> None:
        block = due.block
        tag = f"{plan.cell.order}/{due.arm}/{block.lane}/{block.number}{self._suffix}"
        replay = f"{plan.cell.name}/{block.replay}"
        if plan.cell.caching_forbidden:
            replay += f"/{block.turn.number}"
        tokens = tokens_of(block.turn, plan.max_output_tokens)
        place = Place(
            arm=due.arm,
            tag=tag,
            cell=plan.cell.name,
            shard=self._plan.shard,
            lane=block.lane,
            block=block.number,
            position=due.position,
            conversation=block.turn.conversation,
            turn=block.turn.number,
            intended_ns=due.intended_ns,
            asked_output_tokens=tokens,
            least_output_tokens=block.turn.least_answer_tokens,
            meant_input_tokens=block.turn.input_tokens,
        )
        draw = f"{plan.cell.name}/{block.lane}/{block.number}"
        cell.in_flight[tag] = due
        self._workers[due.arm].order(
            Job(
                place,
                self._requests.body(block.turn, salt=self._requests.salt(due.arm, replay), tokens=tokens),
                self._requests.headers(tag=tag, tokens=tokens, draw=draw),
            )
        )

    def _single(
        self, arm: str, tag: str, turn: Turn, *, what: str, plan: CellPlan | None = None, part_cold: bool = False
    ) -> Job:
        tokens = tokens_of(turn, self._plan.max_output_tokens if plan is None else plan.max_output_tokens)
        place = Place(
            arm=arm,
            tag=tag,
            cell="" if plan is None else plan.cell.name,
            shard=self._plan.shard,
            block=COLD_BLOCK,
            conversation=turn.conversation,
            turn=0,
            part="cold" if part_cold else "warm-up",
            asked_output_tokens=tokens,
        )
        return Job(
            place,
            self._requests.body(turn, salt=self._requests.salt(arm, what), tokens=tokens),
            self._requests.headers(tag=tag, tokens=tokens, draw=what),
        )

    def _one(self, job: Job, cell: _Cell | None = None) -> Any:
        """Have one request sent, and wait for it; None where Ctrl-C cut it off."""
        self._workers[job.place.arm].order(job)
        while True:
            now = now_ns()
            if cell is not None and cell.until_ns is not None and now >= cell.until_ns:
                cell.in_flight[job.place.tag] = None
                return None
            name, what = self._hear(_until(now, cell.until_ns if cell is not None else None))
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
        if isinstance(what, Ended):
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


class _Cell:
    """How far a cell is, and why it ends."""

    def __init__(self, plan: CellPlan, arms: int) -> None:
        self._name = plan.cell.name
        self._budget = plan.budget
        self._arms = arms
        self._spent = Spent()
        self._answers: dict[tuple[int, int], int] = {}
        self.in_flight: dict[str, Due | None] = {}
        self.committed = 0
        self.began_ns = self.ended_ns = now_ns()
        self.why: str | None = None
        self.until_ns: int | None = None
        """When requests under way are given up, after Ctrl-C."""

    @property
    def duration_s(self) -> float:
        return (self.ended_ns - self.began_ns) / 1e9

    def check(self, pacing: Pacing, now: int) -> None:
        """See whether a further block may start."""
        if self.why is None:
            arrives_s = pacing.arrives_s()
            seconds = (now - self.began_ns) / 1e9 if arrives_s is None else arrives_s
            spent = replace(self._spent, seconds=seconds, calls=self.committed)
            self.why = exhausted(self._budget, spent, calls_of_next=self._arms)

    def stop(self, why: Any) -> None:
        """Start no further block; after Ctrl-C, wait only a moment for what is under way."""
        if why == "interrupted":
            self.until_ns = self.until_ns or now_ns() + GRACE_NS
            self.why = why
        elif why == EndCell(self._name):
            self.why = self.why or "ended early"

    def took(self, sample: Sample, *, counts: bool = True) -> None:
        """Take note of what a request has cost."""
        self._spent = self._spent.with_sample(sample)
        if counts:
            self.ended_ns = max(self.ended_ns, sample.ended_ns)

    def is_done(self, lane: int, number: int) -> bool:
        """Take note of an arm's answer, and say whether it was the block's last."""
        answers = self._answers.pop((lane, number), 0) + 1
        if answers < self._arms:
            self._answers[lane, number] = answers
        return answers == self._arms


def _block_s(samples: list[Sample]) -> float:
    return min((sample.ended_ns - sample.issued_ns) / 1e9 for sample in samples) * len({each.arm for each in samples})


def _until(now: int, *moments: int | None) -> float | None:
    known = [moment for moment in moments if moment is not None]
    return max(0, min(known) - now) / 1e9 if known else None
