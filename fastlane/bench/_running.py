"""One session of a run: cell by cell through its shards, into its files, until it is over or interrupted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from .._clock import now_ns, wall_ns
from ..errors import ConfigurationError
from ._failures import FAILED_ALIKE, Failures
from ._following import Follow, earlier_blocks, run_ended, why_ended
from ._progress import Progress
from ._provider import RunningProvider
from ._settings import header_of, same_settings, settings_of
from .load import RunCost, blocks_in_pass, first_turn, share_of, share_spent
from .load._precision import Watch
from .recorded import Cell, Header, RecordedRun, Sample, Vitals
from .recorded._folder import RUN, RunWriter, StoredRun, read_kept, spans_of, whole_blocks, with_own_records, without
from .running import BlockDone, CellPlan, Crew, Shard, ShardPlan, ShardProcess, ShardRunner
from .running._interrupting import ctrl_c

if TYPE_CHECKING:
    from ..emulator import RequestLog
    from ._experiment import Benchmark


def run_session(
    experiment: Benchmark,
    folder: Path | None,
    *,
    resume: bool,
    on_progress: Callable[[Progress], None] | None,
    member_of: Callable[[ShardPlan], ShardRunner] | None,
) -> RecordedRun:
    """Run a benchmark, or continue it. See Benchmark.run."""
    kept = _kept(experiment, folder) if resume else None
    if kept is not None and kept.over:
        return kept.recorded
    session = kept.sessions if kept is not None else 0
    whole = kept.whole_sessions if kept is not None else ()
    with ExitStack() as stack:
        writer = (
            None if folder is None else stack.enter_context(RunWriter(folder, session=session, whole_sessions=whole))
        )
        if writer is not None and session == 0:
            writer.must_be_new()
        running = stack.enter_context(experiment.provider.running())
        plans = [_shard_plan(experiment, running, shard, session) for shard in range(experiment.processes)]
        make: Callable[[ShardPlan], ShardRunner] = member_of or (Shard if experiment.processes == 1 else ShardProcess)
        # One after the other on the stack, so that each that was started is ended, whatever becomes of the next.
        crew = stack.enter_context(Crew.of(make, plans))
        cold = crew.start()
        started_at = kept.recorded.header.started_at if kept is not None else _started_at()
        work = _Session(experiment, running, crew, writer, kept, on_progress)
        work.begin(header_of(experiment, running, crew.clients, started_at=started_at), cold)
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
        kept: StoredRun | None,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self._experiment = experiment
        self._running = running
        self._crew = crew
        self._writer = writer
        self._before = kept
        self._on_progress = on_progress
        self._samples: list[Sample] = []
        self._vitals: list[Vitals] = []
        self._log: list[RequestLog] = []
        self._abandoned: set[str] = set()
        self._logged = 0
        earlier = () if kept is None else kept.recorded.samples
        self._spent = RunCost(seconds=0.0 if kept is None else _seconds_spent(experiment, kept))
        for sample in earlier:
            self._spent = self._spent.with_sample(sample)
        self._done = whole_blocks(earlier, len(experiment.resolved))
        self._blocks = sum(map(len, self._done.values()))
        self._failed = sum(sample.error is not None for sample in earlier)
        self._failures = Failures(earlier)
        self._cells_done = set(() if kept is None else kept.cells_done)
        self._began_ns = now_ns()
        # Once: some workloads make thousands of requests to say it.
        self._cells = experiment.cells
        self._planned = None if experiment.passes is None else _planned(experiment, self._cells)

    def begin(self, header: Header, cold: tuple[Sample, ...]) -> None:
        """Open the files, and take the arms' first requests."""
        self._header = header
        if self._writer is not None:
            self._writer.begin(header, cells_done=self._cells_done)
        for sample in cold:
            self._take(sample)

    def run(self) -> RecordedRun:
        """Run the cells that are not done, and return the whole run."""
        reasons: list[str] = []
        cells = self._cells
        for cell in cells:
            if cell.name in self._cells_done:
                continue
            why = self._cell(cell, cells_left=len(cells) - len(self._cells_done))
            reasons.append(why)
            self._read_log()
            if why == "interrupted":
                self._crew.abandon()
            if why in ("interrupted", FAILED_ALIKE):
                break
            self._cells_done.add(cell.name)
            if self._writer is not None:
                self._writer.cell_done(self._header, self._cells_done)
        ended = run_ended(reasons)
        if self._writer is not None:
            self._writer.end(self._header, ended, self._cells_done)
        return self._recorded(ended)

    def _cell(self, cell: Cell, *, cells_left: int) -> str:
        experiment = self._experiment
        shards = experiment.processes
        workload = next(each for each in experiment.workloads if each.name == cell.workload)
        load = experiment.load
        done = self._done.get(cell.name, frozenset())
        plans = [
            CellPlan(
                cell=cell,
                workload=workload,
                think_s=getattr(load, "think_s", 0.0),
                arrivals=getattr(load, "arrivals", "poisson"),
                speed=getattr(load, "speed", 1.0),
                budget=share_of(experiment.budget, self._spent, cells_left=cells_left, shard=shard, shards=shards),
                turns=experiment.turns,
                passes=experiment.passes,
                max_output_tokens=experiment.max_output_tokens,
                warm_up=experiment.warm_up,
                done=done,
            )
            for shard in range(shards)
        ]
        references = {arm.name: experiment.reference_of(arm) for arm in experiment.resolved}
        watch = Watch(cell.name, references, self._watched())
        follow = Follow(
            watch,
            blocks=len(done),
            planned=None if self._planned is None else self._planned[cell.name],
        )
        for block in earlier_blocks(self._before, cell.name, len(references)):
            watch.pair(block)
        whole = share_of(experiment.budget, self._spent, cells_left=cells_left)
        began_ns, before, ended = now_ns(), self._spent, []
        self._say(cell, follow, 0.0)
        for event in self._crew.run(plans):
            if isinstance(event, Sample):
                sample = self._take(event)
                if self._failures.are_alike:
                    self._crew.end_cell(cell.name)
                if sample.part == "measured":
                    follow.blocks_open[sample.key][sample.arm] = sample
            elif isinstance(event, BlockDone):
                self._blocks += 1
                follow.block_done(event, cell.name)
                if experiment.precision is not None and watch.reached(experiment.precision) and not follow.enough:
                    follow.enough = True
                    self._crew.end_cell(cell.name)
                spent = RunCost(
                    seconds=(now_ns() - began_ns) / 1e9,
                    calls=self._spent.calls - before.calls,
                    tokens=self._spent.tokens - before.tokens,
                    money=self._spent.money - before.money,
                )
                self._say(cell, follow, max(share_spent(whole, spent), follow.share))
            elif isinstance(event, Vitals):
                self._take_vitals(event)
            else:
                ended.append(event)
                self._abandoned.update(event.abandoned)
        # A block that is under way when the time is over finishes, and no later cell pays for it.
        self._spent = self._spent.with_seconds(
            min([max(each.duration_s for each in ended), *([] if whole.seconds is None else [whole.seconds])])
        )
        return FAILED_ALIKE if self._failures.are_alike else why_ended(ended)

    def _watched(self) -> list[str]:
        wanted = list(self._experiment.metrics)
        precision = self._experiment.precision
        return wanted if precision is None or precision.metric in wanted else [*wanted, precision.metric]

    def _take(self, event: Sample) -> Sample:
        sample = with_own_records(event, round(self._header.one_way_s * 2e9))
        self._samples.append(sample)
        self._spent = self._spent.with_sample(sample)
        self._failed += sample.error is not None
        self._failures.add(sample)
        if self._writer is not None:
            self._writer.sample(sample)
        return sample

    def _take_vitals(self, vitals: Vitals) -> None:
        self._vitals.append(vitals)
        if self._writer is not None:
            self._writer.vitals(vitals)

    def _read_log(self) -> None:
        if self._running.read_log is None:
            return
        entries = self._running.read_log()
        new = [entry for entry in entries[self._logged :] if entry.tag not in self._abandoned]
        self._logged = len(entries)
        self._log += new
        if self._writer is not None:
            self._writer.log(new)

    def _say(self, cell: Cell, follow: Follow, share: float) -> None:
        if self._on_progress is None:
            return
        cells = len(self._cells)
        earlier = 0 if self._before is None else len(self._before.recorded.samples)
        self._on_progress(
            Progress(
                cell=cell.name,
                cells_done=len(self._cells_done),
                cells=cells,
                blocks_done=self._blocks,
                blocks_planned=None if self._planned is None else sum(self._planned.values()),
                requests=earlier + len(self._samples),
                failed=self._failed,
                share=(len(self._cells_done) + share) / cells,
                elapsed_s=(now_ns() - self._began_ns) / 1e9,
                ratios=follow.watch.ratios(),
                last=self._samples[-1] if self._samples else None,
            )
        )

    def _recorded(self, ended: str) -> RecordedRun:
        before = None if self._before is None else self._before.recorded
        again = {sample.key for sample in self._samples if sample.part == "measured"}
        kept = (
            []
            if before is None
            else [each for each in before.samples if each.part != "measured" or each.key not in again]
        )
        # What was sent again is in neither account.
        replaced = set() if before is None else {each.tag for each in before.samples}.difference(s.tag for s in kept)
        earlier_log = () if before is None else without(before.log or (), replaced)
        session = 0 if self._before is None else self._before.sessions
        # Of earlier sessions the folder knows the spans; here they are one.
        spans = spans_of([(session, sample) for sample in self._samples])
        if before is not None:
            cells: dict[str, float] = defaultdict(float, before.cell_durations_s or {})
            for name, seconds in spans["cell_durations_s"].items():
                cells[name] += seconds
            spans = {"duration_s": sum(cells.values()), "cell_durations_s": dict(cells)}
        return RecordedRun(
            header=self._header,
            samples=(*kept, *self._samples),
            vitals=(*(before.vitals if before is not None else ()), *self._vitals),
            log=(*earlier_log, *self._log) if self._running.embedded else None,
            unlogged=() if before is None else tuple(tag for tag in before.unlogged if tag not in replaced),
            **spans,
            ended=ended,
        )


def _kept(experiment: Benchmark, folder: Path | None) -> StoredRun | None:
    if folder is None:
        raise ConfigurationError("a run is resumed from its folder, got none: name the folder that it was begun in")
    if not (folder / RUN).exists():
        return None
    kept = read_kept(folder)
    same_settings(kept.recorded.header.settings, settings_of(experiment))
    return kept


def _shard_plan(experiment: Benchmark, running: RunningProvider, shard: int, session: int) -> ShardPlan:
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
        session=session,
    )


def _seconds_spent(experiment: Benchmark, kept: StoredRun) -> float:
    durations = (kept.recorded.cell_durations_s or {}).values()
    limit = experiment.budget.seconds
    return sum(durations) if limit is None else sum(min(each, limit / len(experiment.cells)) for each in durations)


def _planned(experiment: Benchmark, cells: Sequence[Cell]) -> dict[str, int]:
    blocks = {each.name: blocks_in_pass(each, experiment.turns) for each in experiment.workloads}
    return {cell.name: blocks[cell.workload] * (experiment.passes or 1) for cell in cells}


def _started_at() -> str:
    return datetime.fromtimestamp(wall_ns() / 1e9, UTC).isoformat(timespec="seconds")
