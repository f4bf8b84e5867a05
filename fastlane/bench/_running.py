"""One run: cell by cell through its shards, into its files, until it is over or interrupted."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._clock import now_ns, wall_ns
from ._failures import FAILED_ALIKE, Failures
from ._provider import RunningProvider
from .load import RunCost, blocks_in_pass, share_of, share_spent
from .progress import Progress, Watch
from .recorded import ArmInfo, Cell, Header, RecordedRun, RunWriter, Sample, Vitals, duration_s
from .running import BlockDone, CellEnded, Coordinator, LocalShard, MakeShard

if TYPE_CHECKING:
    from ..emulator import RequestLog
    from ._experiment import Benchmark
    from .running._messages import Ready

_PLAIN = ("budget", "precision", "warm_up", "max_output_tokens", "passes", "processes", "seed")
_PACKAGES = ("openai", "httpx", "httpx2", "aiohttp", "fastlane-llm", "numpy")


def _settings_of(experiment: Benchmark) -> dict[str, Any]:
    """Return load, budget, seed and the like, which the header has no field for, as plain JSON data."""
    settings = {
        "workloads": {workload.name: len(workload.conversations) for workload in experiment.workloads},
        "load": {"kind": type(experiment.load).__name__.lower(), **asdict(experiment.load)},
        **{name: getattr(experiment, name) for name in _PLAIN},
    }
    # As a file gives it back: lists for tuples, objects for dataclasses.
    plain: dict[str, Any] = json.loads(json.dumps(settings, default=asdict))
    return plain


def header_of(
    experiment: Benchmark, running: RunningProvider, clients: Mapping[str, Ready], *, started_at: str
) -> Header:
    """Return a run's header; `clients` are what the arms' processes said of theirs."""
    workloads = experiment.workloads
    return Header(
        name=experiment.name,
        provider=experiment.provider.describe(),
        model=running.model,
        embedded=running.embedded,
        one_way_s=running.one_way_s,
        arms=tuple(
            ArmInfo(
                name=arm.name,
                description=arm.description,
                role=experiment.role_of(arm),
                reference=experiment.reference_of(arm),
                client=clients[arm.name].client,
                plays=clients[arm.name].plays,
            )
            for arm in experiment.resolved
        ),
        cells=experiment.cells,
        metrics=tuple(experiment.metrics),
        workload=", ".join(workload.name for workload in workloads),
        workload_source="; ".join(dict.fromkeys(workload.source for workload in workloads if workload.source)),
        workload_notes=tuple(note for workload in workloads for note in workload.notes),
        settings=_settings_of(experiment),
        machine={
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
            "cores": os.cpu_count(),
            "packages": _versions(),
        },
        started_at=started_at,
    )


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def run_session(
    experiment: Benchmark,
    folder: Path | None,
    *,
    on_progress: Callable[[Progress], None] | None,
    make_shard: MakeShard | None,
) -> RecordedRun:
    """Run a benchmark. See Benchmark.run."""
    with ExitStack() as stack:
        writer = None if folder is None else stack.enter_context(RunWriter(folder))
        running = stack.enter_context(experiment.provider.running())
        coordinator = stack.enter_context(Coordinator(experiment, running, make_shard or LocalShard))
        # Once: some workloads make thousands of requests to say it.
        cells = experiment.cells
        cold = coordinator.start(cells[0])
        started_at = datetime.fromtimestamp(wall_ns() / 1e9, UTC).isoformat(timespec="seconds")
        header = header_of(experiment, running, coordinator.clients, started_at=started_at)
        work = _Session(experiment, cells, running, coordinator, writer, header, on_progress)
        for sample in cold:
            work.take(sample)
        with coordinator.ctrl_c():
            return work.run()


class _Session:
    """What is known of a run while it goes on; all of it in one thread."""

    def __init__(
        self,
        experiment: Benchmark,
        cells: Sequence[Cell],
        running: RunningProvider,
        coordinator: Coordinator,
        writer: RunWriter | None,
        header: Header,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self._experiment = experiment
        self._running = running
        self._coordinator = coordinator
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
        self._cells = cells
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
                self._coordinator.abandon()
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
            duration_s=duration_s(self._samples),
            ended=ended,
        )

    def take(self, sample: Sample) -> None:
        """Count and keep a request that is over."""
        self._samples.append(sample)
        self._spent = self._spent.with_sample(sample)
        self._failed += sample.error is not None
        self._failures.add(sample)
        if self._writer is not None:
            self._writer.sample(sample)

    def _cell(self, cell: Cell) -> str:
        experiment = self._experiment
        precision = experiment.precision
        watched = dict.fromkeys([*experiment.metrics, *([precision.metric] if precision else [])])
        references = {arm.name: experiment.reference_of(arm) for arm in experiment.resolved}
        watch = Watch(cell.name, references, list(watched))
        budget = share_of(experiment.budget, self._spent, cells_left=len(self._cells) - self._cells_done)
        planned = None if self._planned is None else self._planned[cell.name]
        began_ns, before, blocks = now_ns(), self._spent, 0
        why = ""
        self._say(cell, watch, 0.0)
        for event in self._coordinator.run(cell, budget):
            if isinstance(event, Sample):
                self.take(event)
                if self._failures.are_alike:
                    self._coordinator.end_cell()
            elif isinstance(event, BlockDone):
                self._blocks += 1
                blocks += 1
                watch.pair(event.samples)
                if precision is not None and watch.reached(precision):
                    self._coordinator.end_cell()
                spent = RunCost(
                    seconds=(now_ns() - began_ns) / 1e9,
                    calls=self._spent.calls - before.calls,
                    money=self._spent.money - before.money,
                )
                done = min(1.0, blocks / planned) if planned else 0.0
                self._say(cell, watch, max(share_spent(budget, spent), done))
            elif isinstance(event, Vitals):
                self._vitals.append(event)
                if self._writer is not None:
                    self._writer.vitals(event)
            elif isinstance(event, CellEnded):
                self._abandoned.update(event.abandoned)
                # A block that is under way when the time is over finishes, and no later cell pays for it.
                limits = [] if budget.seconds is None else [budget.seconds]
                self._spent = self._spent.with_seconds(min([event.duration_s, *limits]))
                why = "precision reached" if event.why == "ended early" else event.why
        return FAILED_ALIKE if self._failures.are_alike else why

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
            )
        )


def _run_ended(reasons: Sequence[str]) -> str:
    """Return why a run ended whose cells ended so: what kept any of them from its end counts most."""
    for why in (
        *(each for each in reasons if each in ("interrupted", FAILED_ALIKE)),
        *(each for each in reasons if each.endswith(" spent")),
        *(each for each in reasons if each == "precision reached"),
    ):
        return why
    return "finished"


def _planned(experiment: Benchmark, cells: Sequence[Cell]) -> dict[str, int]:
    blocks = {each.name: blocks_in_pass(each) for each in experiment.workloads}
    return {cell.name: blocks[cell.workload] * (experiment.passes or 1) for cell in cells}
