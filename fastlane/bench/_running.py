"""One run: cell by cell through its shards, into its files, until it is over or interrupted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from .._clock import now_ns, wall_ns
from ._failures import FAILED_ALIKE, Failures
from ._progress import Progress
from ._provider import RunningProvider
from ._settings import header_of
from .load import RunCost, blocks_in_pass, first_turn, share_of, share_spent
from .load._precision import Watch
from .recorded import Cell, Header, RecordedRun, Sample, Vitals
from .recorded._folder import RunWriter, spans_of, with_own_records
from .running import BlockDone, CellEnded, CellPlan, Crew, Shard, ShardPlan, ShardProcess, ShardRunner
from .running._crew import ctrl_c

if TYPE_CHECKING:
    from ..emulator import RequestLog
    from ._experiment import Benchmark


def run_session(
    experiment: Benchmark,
    folder: Path | None,
    *,
    on_progress: Callable[[Progress], None] | None,
    member_of: Callable[[ShardPlan], ShardRunner] | None,
) -> RecordedRun:
    """Run a benchmark. See Benchmark.run."""
    with ExitStack() as stack:
        writer = None if folder is None else stack.enter_context(RunWriter(folder))
        running = stack.enter_context(experiment.provider.running())
        plans = [_shard_plan(experiment, running, shard) for shard in range(experiment.processes)]
        make: Callable[[ShardPlan], ShardRunner] = member_of or (Shard if experiment.processes == 1 else ShardProcess)
        # One after the other on the stack, so that each that was started is ended, whatever becomes of the next.
        crew = stack.enter_context(Crew.of(make, plans))
        cold = crew.start()
        started_at = datetime.fromtimestamp(wall_ns() / 1e9, UTC).isoformat(timespec="seconds")
        header = header_of(experiment, running, crew.clients, started_at=started_at)
        work = _Session(experiment, running, crew, writer, header, on_progress)
        for sample in cold:
            work.take(sample)
        with ctrl_c(crew):
            return work.run()


class _Session:
    """What is known of a run while it goes on; all of it in one thread."""

    def __init__(
        self,
        experiment: Benchmark,
        running: RunningProvider,
        crew: Crew,
        writer: RunWriter | None,
        header: Header,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self._experiment = experiment
        self._running = running
        self._crew = crew
        self._writer = writer
        self._header = header
        self._on_progress = on_progress
        self._samples: list[Sample] = []
        self._vitals: list[Vitals] = []
        self._log: list[RequestLog] = []
        self._abandoned: set[str] = set()
        self._logged = 0
        self._spent = RunCost()
        self._blocks = 0
        self._failed = 0
        self._failures = Failures()
        self._cells_done = 0
        self._began_ns = now_ns()
        # Once: some workloads make thousands of requests to say it.
        self._cells = experiment.cells
        self._planned = None if experiment.passes is None else _planned(experiment, self._cells)
        if writer is not None:
            writer.begin(header)

    def run(self) -> RecordedRun:
        """Run the cells, and return the whole run."""
        reasons: list[str] = []
        for cell in self._cells:
            why = self._cell(cell)
            reasons.append(why)
            self._read_log()
            if why == "interrupted":
                self._crew.abandon()
            if why in ("interrupted", FAILED_ALIKE):
                break
            self._cells_done += 1
        ended = _run_ended(reasons)
        if self._writer is not None:
            self._writer.end(self._header, ended)
        return RecordedRun(
            header=self._header,
            samples=tuple(self._samples),
            vitals=tuple(self._vitals),
            log=tuple(self._log) if self._running.embedded else None,
            **spans_of(self._samples),
            ended=ended,
        )

    def take(self, event: Sample) -> Sample:
        """Count and keep a request that is over."""
        sample = with_own_records(event, round(self._header.one_way_s * 2e9))
        self._samples.append(sample)
        self._spent = self._spent.with_sample(sample)
        self._failed += sample.error is not None
        self._failures.add(sample)
        if self._writer is not None:
            self._writer.sample(sample)
        return sample

    def _cell(self, cell: Cell) -> str:
        experiment = self._experiment
        shards = experiment.processes
        load = experiment.load
        cells_left = len(self._cells) - self._cells_done
        plans = [
            CellPlan(
                cell=cell,
                workload=next(each for each in experiment.workloads if each.name == cell.workload),
                think_s=getattr(load, "think_s", 0.0),
                arrivals=getattr(load, "arrivals", "poisson"),
                speed=getattr(load, "speed", 1.0),
                budget=share_of(experiment.budget, self._spent, cells_left=cells_left, shard=shard, shards=shards),
                turns=experiment.turns,
                passes=experiment.passes,
                max_output_tokens=experiment.max_output_tokens,
                warm_up=experiment.warm_up,
            )
            for shard in range(shards)
        ]
        precision = experiment.precision
        watched = dict.fromkeys([*experiment.metrics, *([precision.metric] if precision else [])])
        references = {arm.name: experiment.reference_of(arm) for arm in experiment.resolved}
        watch = Watch(cell.name, references, list(watched))
        open_blocks: dict[tuple[str, int, int, int], dict[str, Sample]] = defaultdict(dict)
        whole = share_of(experiment.budget, self._spent, cells_left=cells_left)
        planned = None if self._planned is None else self._planned[cell.name]
        began_ns, before, blocks, enough = now_ns(), self._spent, 0, False
        ended: list[CellEnded] = []
        self._say(cell, watch, 0.0)
        for event in self._crew.run(plans):
            if isinstance(event, Sample):
                sample = self.take(event)
                if self._failures.are_alike:
                    self._crew.end_cell(cell.name)
                if sample.part == "measured":
                    open_blocks[sample.key][sample.arm] = sample
            elif isinstance(event, BlockDone):
                self._blocks += 1
                blocks += 1
                watch.pair(open_blocks.pop((cell.name, event.shard, event.lane, event.block)))
                if precision is not None and not enough and watch.reached(precision):
                    enough = True
                    self._crew.end_cell(cell.name)
                spent = RunCost(
                    seconds=(now_ns() - began_ns) / 1e9,
                    calls=self._spent.calls - before.calls,
                    tokens=self._spent.tokens - before.tokens,
                    money=self._spent.money - before.money,
                )
                done = min(1.0, blocks / planned) if planned else 0.0
                self._say(cell, watch, max(share_spent(whole, spent), done))
            elif isinstance(event, Vitals):
                self._vitals.append(event)
                if self._writer is not None:
                    self._writer.vitals(event)
            else:
                ended.append(event)
                self._abandoned.update(event.abandoned)
        # A block that is under way when the time is over finishes, and no later cell pays for it.
        self._spent = self._spent.with_seconds(
            min([max(each.duration_s for each in ended), *([] if whole.seconds is None else [whole.seconds])])
        )
        return FAILED_ALIKE if self._failures.are_alike else _cell_ended([each.why for each in ended])

    def _read_log(self) -> None:
        if self._running.read_log is None:
            return
        entries = self._running.read_log()
        new = [entry for entry in entries[self._logged :] if entry.tag not in self._abandoned]
        self._logged = len(entries)
        self._log += new
        if self._writer is not None:
            self._writer.log(new)

    def _say(self, cell: Cell, watch: Watch, share: float) -> None:
        if self._on_progress is None:
            return
        self._on_progress(
            Progress(
                cell=cell.name,
                cells_done=self._cells_done,
                cells=len(self._cells),
                blocks_done=self._blocks,
                blocks_planned=None if self._planned is None else sum(self._planned.values()),
                requests=len(self._samples),
                failed=self._failed,
                share=(self._cells_done + share) / len(self._cells),
                elapsed_s=(now_ns() - self._began_ns) / 1e9,
                ratios=watch.ratios(),
                last=self._samples[-1] if self._samples else None,
            )
        )


def _cell_ended(reasons: Sequence[str]) -> str:
    """Return why a cell ended, of which each shard says why it did."""
    if "interrupted" in reasons:
        return "interrupted"
    if "ended early" in reasons:
        return "precision reached"
    return next((why for why in reasons if why.endswith(" spent")), "finished")


def _run_ended(reasons: Sequence[str]) -> str:
    """Return why a run ended whose cells ended so: what kept any of them from its end counts most."""
    for why in (
        *(each for each in reasons if each in ("interrupted", FAILED_ALIKE)),
        *(each for each in reasons if each.endswith(" spent")),
        *(each for each in reasons if each == "precision reached"),
    ):
        return why
    return "finished"


def _shard_plan(experiment: Benchmark, running: RunningProvider, shard: int) -> ShardPlan:
    first = next(each for each in experiment.workloads if each.name == experiment.cells[0].workload)
    return ShardPlan(
        arms=experiment.resolved,
        base_url=running.base_url,
        api_key=running.api_key,
        model=running.model,
        host="" if running.embedded else running.host,
        embedded=running.embedded,
        environment=running.environment,
        limit_field=running.limit_field,
        first=first_turn(first),
        price=experiment.price,
        max_output_tokens=experiment.max_output_tokens,
        seed=experiment.seed,
        shard=shard,
        shards=experiment.processes,
    )


def _planned(experiment: Benchmark, cells: Sequence[Cell]) -> dict[str, int]:
    blocks = {each.name: blocks_in_pass(each, experiment.turns) for each in experiment.workloads}
    return {cell.name: blocks[cell.workload] * (experiment.passes or 1) for cell in cells}
