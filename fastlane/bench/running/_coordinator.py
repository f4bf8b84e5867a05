"""What runs the cells: it hands requests out to one process per arm, or several, and yields what comes back."""

from __future__ import annotations

import signal
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from ..._clock import now_ns
from ..load import Open, RunBudget, RunCost, exhausted, lane_of, open_blocks
from ..recorded import Cell, Sample, Vitals, with_own_records
from ..workloads import Workload
from ._messages import (
    BeginCell,
    BlockDone,
    CellEnded,
    Done,
    EndCell,
    Event,
    Ready,
    RunFailedError,
    ScheduledRequest,
    Settle,
)
from ._probes import Probe
from ._schedule import ClosedPacing, Due, Jobs, OpenPacing, Pacing
from ._worker import MakeShard, Shard, ShardPlan

if TYPE_CHECKING:
    from .._experiment import Benchmark
    from .._provider import RunningProvider

# In steps: on Windows an unlimited wait would not let Ctrl-C through.
_STEP_S = 0.5
MAKING_NS: Final = 180_000_000_000
"""How long an arm's process may take to start and to make its client: seconds, where the machine is not overloaded."""
GRACE_NS: Final = 1_000_000_000
"""How long requests may take that are under way at Ctrl-C."""


class _Heard(NamedTuple):
    shard: int
    arm: str
    what: Any


_NOTHING: Final = _Heard(0, "", None)
_INTERRUPTED: Final = _Heard(0, "", "interrupted")


class Coordinator:
    """Runs cells: `start` it, `run` one cell after the other, and leave its `with` block. Making it starts processes.

    `run` is a generator: only while it is asked for the next event are requests handed out, so that events have to be
    taken as they come.
    """

    def __init__(self, experiment: Benchmark, running: RunningProvider, make_shard: MakeShard) -> None:
        self._experiment = experiment
        self._arms = tuple(arm.name for arm in experiment.resolved)
        self._host = "" if running.embedded else running.host
        self._round_trip_ns = round(running.one_way_s * 2e9)
        self._jobs = Jobs(
            model=running.model,
            limit_field=running.limit_field,
            embedded=running.embedded,
            seed=experiment.seed,
            max_output_tokens=experiment.max_output_tokens,
        )
        self._price = experiment.price
        self._inbox: SimpleQueue[_Heard] = SimpleQueue()
        self._shards: list[Shard] = []
        self._closing = ExitStack()
        self._block_s = 0.0
        self._until_ns: int | None = None
        """When requests under way are given up, after Ctrl-C."""
        self._cell: _CellState | None = None
        self.clients: dict[str, Ready] = {}
        """What the arms' processes said of their clients; the same in every shard."""
        try:
            for number in range(experiment.processes):
                plan = ShardPlan(
                    arms=experiment.resolved,
                    base_url=running.base_url,
                    api_key=running.api_key,
                    environment=running.environment,
                    shard=number,
                )
                shard = make_shard(plan, partial(self._take, number))
                self._shards.append(shard)
                self._closing.callback(shard.close)
        except BaseException:
            self.abandon()
            self._closing.close()
            raise

    def start(self, cell: Cell) -> tuple[Sample, ...]:
        """Wait for the arms' processes, and send each one's first request of all, which is one of `cell`'s.

        Raises RunFailedError if one fails: nothing that follows would be worth its time or its price.
        """
        until_ns = now_ns() + MAKING_NS
        missing = dict.fromkeys(self._workers())
        while missing:
            shard, arm, what = self._hear()
            if now_ns() > until_ns:
                _, late = next(iter(missing))
                raise RunFailedError(f"the client of arm {late!r} was not made within {MAKING_NS / 1e9:g} s")
            if isinstance(what, Ready):
                self.clients[arm] = what
                del missing[shard, arm]
        samples = []
        first = self._workload_of(cell)
        for shard, arm in self._workers():
            sample = self._one(self._jobs.cold(first, arm, shard=shard))
            if sample is None:
                raise KeyboardInterrupt
            if sample.error is not None:
                whom = f" to {self._host}" if self._host else ""
                raise RunFailedError(
                    f"the first request of arm {arm!r}{whom} failed: {sample.error}: {sample.error_message}"
                )
            samples.append(sample)
        self._order_all(Settle())
        settled = 0
        while settled < len(self._shards) * len(self._arms):
            settled += isinstance(self._hear().what, Settle)
        self._block_s = _block_s(samples)
        return tuple(samples)

    def run(self, cell: Cell, budget: RunBudget) -> Iterator[Event]:
        """Send a cell's requests, and yield every Sample, BlockDone and Vitals as it comes; CellEnded is the last.

        Raises RunFailedError where an arm's process ends.
        """
        workload = self._workload_of(cell)
        probe = Probe()
        self._order_all(BeginCell())
        probe.start()
        state = self._cell = _CellState(cell, budget, len(self._arms))
        warm = []
        for number in range(self._experiment.warm_up):
            for shard, arm in self._workers():
                if self._until_ns is None:
                    sample = self._one(self._jobs.warm_up(cell, workload, arm, number, shard=shard), state)
                    if sample is not None:
                        warm.append(sample)
                        yield sample
        if warm:
            self._block_s = _block_s(warm)
        yield from self._work(state, self._pacing(cell, workload))
        self._order_all(EndCell(cell.name))
        missing = set(self._workers())
        while missing:
            shard, arm, what = self._hear()
            if isinstance(what, Vitals):
                missing.discard((shard, arm))
                yield what
            elif isinstance(what, Sample):
                yield from self._recorded(state, what)
        yield probe.stop(cell.name)
        yield CellEnded(
            why=state.why or "finished",
            duration_s=(state.ended_ns - state.began_ns) / 1e9,
            abandoned=(*state.in_flight, *state.unrecorded),
        )

    def end_cell(self) -> None:
        """Start no further block of the cell that is running; those under way finish."""
        if self._cell is not None:
            self._cell.why = self._cell.why or "ended early"

    @contextmanager
    def ctrl_c(self) -> Iterator[None]:
        """Have the first Ctrl-C end the cell soon; the next one is what it always is."""
        if (
            threading.current_thread() is not threading.main_thread()
            # Somebody else's: what it does is theirs to say.
            or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        ):
            yield
            return

        def first(*_: object) -> None:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._inbox.put(_INTERRUPTED)

        signal.signal(signal.SIGINT, first)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def abandon(self) -> None:
        """Have the arms' processes end now, whatever they do."""
        for shard in self._shards:
            shard.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.abandon()
        self._closing.close()

    def _workers(self) -> Iterator[tuple[int, str]]:
        for shard in range(len(self._shards)):
            for arm in self._arms:
                yield shard, arm

    def _workload_of(self, cell: Cell) -> Workload:
        return next(each for each in self._experiment.workloads if each.name == cell.workload)

    def _pacing(self, cell: Cell, workload: Workload) -> Pacing:
        experiment, load = self._experiment, self._experiment.load
        seed = f"{experiment.seed}/{cell.name}"
        common: dict[str, Any] = {"passes": experiment.passes, "seed": seed}
        if isinstance(load, Open):
            return OpenPacing(open_blocks(workload, self._arms, rate=cell.rate or 1.0, **common))
        users = cell.users or 1
        lanes = [lane_of(workload, self._arms, lane=lane, lanes=users, **common) for lane in range(users)]
        return ClosedPacing(lanes, think_s=load.think_s, block_s=self._block_s, seed=seed)

    def _work(self, state: _CellState, pacing: Pacing) -> Iterator[Event]:
        state.began_ns = state.ended_ns = now_ns()
        pacing.begin(state.began_ns)
        while True:
            now = now_ns()
            if self._until_ns is not None:
                state.why = "interrupted"
            state.check(pacing, now)
            due_ns = None if state.why else pacing.next_ns()
            if due_ns is not None and due_ns <= now:
                state.committed += len(self._arms)
                for due in pacing.start():
                    self._send(state, due)
                continue
            if due_ns is None and not state.in_flight:
                return
            if self._until_ns is not None and now >= self._until_ns:
                return
            what = self._hear(_seconds_until(now, due_ns, self._until_ns)).what
            if isinstance(what, Done | Sample):
                # First the next request, then whatever somebody does with this one's record.
                self._answered(state, pacing, what.tag)
                if isinstance(what, Sample):
                    yield from self._recorded(state, what)

    def _send(self, state: _CellState, due: Due) -> None:
        # A user keeps its process, and with it its connections.
        number = due.block.number if due.block.intended_s is not None else due.block.lane
        job = self._jobs.of_block(state.cell, due, shard=number % len(self._shards))
        state.in_flight[job.place.tag] = due
        self._order(job)

    def _order(self, job: ScheduledRequest) -> None:
        self._shards[job.place.shard].order(job.place.arm, job)

    def _order_all(self, what: Any) -> None:
        for shard, arm in self._workers():
            self._shards[shard].order(arm, what)

    def _answered(self, state: _CellState, pacing: Pacing, tag: str) -> None:
        due = state.in_flight.get(tag)
        if due is None:  # Its record follows the news of its end, or Ctrl-C has cut off the warm-up.
            return
        state.unrecorded[tag] = state.in_flight.pop(tag)
        # By this machine's clock: a shard may be on another one.
        state.ended_ns = now_ns()
        following = pacing.answered(due, state.ended_ns)
        if self._until_ns is None:
            for each in following:
                self._send(state, each)

    def _recorded(self, state: _CellState, answer: Sample) -> Iterator[Event]:
        if answer.tag not in state.unrecorded and answer.tag not in state.in_flight:
            return
        due = state.unrecorded.pop(answer.tag, None) or state.in_flight.pop(answer.tag, None)
        sample = self._completed(answer)
        state.spent = state.spent.with_sample(sample)
        yield sample
        # A request of the warm-up, which Ctrl-C had cut off, belongs to no block.
        if due is not None:
            block = state.blocks[due.block.lane, due.block.number]
            block[sample.arm] = sample
            if len(block) == len(self._arms):
                yield BlockDone(state.blocks.pop((due.block.lane, due.block.number)))

    def _one(self, job: ScheduledRequest, state: _CellState | None = None) -> Sample | None:
        """Have one request sent, and wait for it; None where Ctrl-C cut it off."""
        self._order(job)
        while True:
            now = now_ns()
            if self._until_ns is not None and now >= self._until_ns:
                if state is not None:
                    state.in_flight[job.place.tag] = None
                return None
            what = self._hear(_seconds_until(now, self._until_ns)).what
            if isinstance(what, Sample) and what.tag == job.place.tag:
                sample = self._completed(what)
                if state is not None:
                    state.committed += 1
                    state.spent = state.spent.with_sample(sample)
                return sample

    def _take(self, shard: int, arm: str, what: Any) -> None:
        """Take what an arm's process says; in a thread of the shard's."""
        self._inbox.put(_Heard(shard, arm, what))

    def _hear(self, timeout_s: float | None = None) -> _Heard:
        """Return the next message, or nothing where none came in time. Raises RunFailedError for a worker's end."""
        try:
            heard = self._inbox.get(timeout=_STEP_S if timeout_s is None else min(timeout_s, _STEP_S))
        except Empty:
            return _NOTHING
        if isinstance(heard.what, RunFailedError):
            raise heard.what
        if heard is _INTERRUPTED:
            self._until_ns = self._until_ns or now_ns() + GRACE_NS
        return heard

    def _completed(self, answer: Sample) -> Sample:
        """Return a sample with its price, and with its client's record as plain data."""
        sample = with_own_records(answer, self._round_trip_ns)
        routed = sample.record.routing.price if sample.record is not None and sample.record.routing else None
        if routed is not None:
            return replace(sample, price=routed)
        if self._price is None or sample.input_tokens is None or sample.output_tokens is None:
            return sample
        return replace(
            sample, price=self._price.of(sample.input_tokens, sample.output_tokens, sample.cached_tokens or 0)
        )


class _CellState:
    """How far a cell is, and why it ends."""

    def __init__(self, cell: Cell, budget: RunBudget, arms: int) -> None:
        self.cell = cell
        self._budget = budget
        self._arms = arms
        self.spent = RunCost()
        self.committed = 0
        """Requests that are sent, or will be: a block is sent whole."""
        self.in_flight: dict[str, Due | None] = {}
        """By the tag; None for one of the warm-up."""
        self.unrecorded: dict[str, Due | None] = {}
        """Requests that are over, whose records have not come yet."""
        self.blocks: dict[tuple[int, int], dict[str, Sample]] = defaultdict(dict)
        """Samples of blocks that are not done, by lane and number, and by the arm."""
        self.began_ns = self.ended_ns = now_ns()
        self.why: str | None = None

    def check(self, pacing: Pacing, now: int) -> None:
        """See whether a further block may start."""
        if self.why is None:
            arrives_s = pacing.arrives_s()
            seconds = (now - self.began_ns) / 1e9 if arrives_s is None else arrives_s
            spent = replace(self.spent, seconds=seconds, calls=self.committed)
            self.why = exhausted(self._budget, spent, calls_of_next=self._arms)


def _block_s(samples: Sequence[Sample]) -> float:
    """Return about how long a block takes, by requests that were sent one after the other."""
    return min((sample.ended_ns - sample.issued_ns) / 1e9 for sample in samples) * len({each.arm for each in samples})


def _seconds_until(now: int, *moments: int | None) -> float | None:
    """Return the seconds until the first of some moments; None where there is none."""
    known = [moment for moment in moments if moment is not None]
    return max(0, min(known) - now) / 1e9 if known else None
