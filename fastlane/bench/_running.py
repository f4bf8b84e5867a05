"""One run: cell by cell through its shards, into its files, until it is over or interrupted."""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .._clock import now_ns, wall_ns
from ._provider import RunningProvider
from .load import RunCost, blocks_in_pass, share_of, share_spent
from .progress import Progress, Watch
from .recorded import FAILED_ALIKE, ArmInfo, Cell, Header, RecordedRun, RunWriter, Sample, Vitals, duration_s
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


MOST_ALIKE: Final = 20
"""Failures with the same error that end a run, if more than half of all requests failed with it."""


class Failures:
    """Counts the failures of a run."""

    def __init__(self) -> None:
        self._requests = 0
        self._errors: Counter[str] = Counter()

    def add(self, sample: Sample) -> None:
        """Count a request that counts."""
        if sample.part == "measured":
            self._requests += 1
            if sample.error is not None:
                self._errors[sample.error] += 1

    @property
    def count(self) -> int:
        """Requests that counted and failed."""
        return self._errors.total()

    @property
    def are_alike(self) -> bool:
        """Whether the run is to end, because it would only show how requests fail."""
        most = max(self._errors.values(), default=0)
        return most >= MOST_ALIKE and 2 * most > self._requests


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
        if writer is not None:
            writer.begin(header)
        work = _Session(
            experiment=experiment,
            cells=cells,
            running=running,
            coordinator=coordinator,
            writer=writer,
            header=header,
            on_progress=on_progress,
        )
        for sample in cold:
            work.take(sample)
        with coordinator.ctrl_c():
            return work.run()


@dataclass(kw_only=True)
class _Session:
    """What is known of a run while it goes on; all of it in one thread."""

    experiment: Benchmark
    cells: Sequence[Cell]
    running: RunningProvider
    coordinator: Coordinator
    writer: RunWriter | None
    header: Header
    on_progress: Callable[[Progress], None] | None
    samples: list[Sample] = field(default_factory=list)
    all_vitals: list[Vitals] = field(default_factory=list)
    log: list[RequestLog] = field(default_factory=list)
    logged: int = 0
    """Entries of the provider's log that were read."""
    abandoned: set[str] = field(default_factory=set)
    spent: RunCost = field(default_factory=RunCost)
    blocks: int = 0
    failures: Failures = field(default_factory=Failures)
    cells_done: int = 0
    began_ns: int = field(default_factory=now_ns)

    def run(self) -> RecordedRun:
        """Run the cells, and return the whole run."""
        reasons: list[str] = []
        for cell in self.cells:
            why = self._cell(cell)
            reasons.append(why)
            self._read_log()
            if why == "interrupted":
                self.coordinator.abandon()
            if why in ("interrupted", FAILED_ALIKE):
                break
            self.cells_done += 1
        ended = _run_ended(reasons)
        if self.writer is not None:
            self.writer.end(self.header, ended)
        return RecordedRun(
            header=self.header,
            samples=tuple(self.samples),
            vitals=tuple(self.all_vitals),
            log=tuple(self.log) if self.running.embedded else None,
            duration_s=duration_s(self.samples),
            ended=ended,
        )

    def take(self, sample: Sample) -> None:
        """Count and keep a request that is over."""
        self.samples.append(sample)
        self.spent = self.spent.with_sample(sample)
        self.failures.add(sample)
        if self.writer is not None:
            self.writer.sample(sample)

    def _cell(self, cell: Cell) -> str:
        experiment = self.experiment
        precision = experiment.precision
        watched = dict.fromkeys([*experiment.metrics, *([precision.metric] if precision else [])])
        references = {arm.name: experiment.reference_of(arm) for arm in experiment.resolved}
        watch = Watch(references, list(watched))
        budget = share_of(experiment.budget, self.spent, cells_left=len(self.cells) - self.cells_done)
        planned = self._planned(cell)
        began_ns, before, blocks = now_ns(), self.spent, 0
        why = ""
        self._say(cell, watch, 0.0)
        for event in self.coordinator.run(cell, budget):
            if isinstance(event, Sample):
                self.take(event)
                if self.failures.are_alike:
                    self.coordinator.end_cell()
            elif isinstance(event, BlockDone):
                self.blocks += 1
                blocks += 1
                watch.pair(event.samples)
                if precision is not None and watch.reached(precision):
                    self.coordinator.end_cell()
                spent = RunCost(
                    seconds=(now_ns() - began_ns) / 1e9,
                    calls=self.spent.calls - before.calls,
                    money=self.spent.money - before.money,
                )
                done = min(1.0, blocks / planned) if planned else 0.0
                self._say(cell, watch, max(share_spent(budget, spent), done))
            elif isinstance(event, Vitals):
                self.all_vitals.append(event)
                if self.writer is not None:
                    self.writer.vitals(event)
            elif isinstance(event, CellEnded):
                self.abandoned.update(event.abandoned)
                # A block that is under way when the time is over finishes, and no later cell pays for it.
                limits = [] if budget.seconds is None else [budget.seconds]
                self.spent = self.spent.with_seconds(min([event.duration_s, *limits]))
                why = "precision reached" if event.why == "ended early" else event.why
        return FAILED_ALIKE if self.failures.are_alike else why

    def _planned(self, cell: Cell) -> int | None:
        """Return how many blocks the passes over a cell's workload have; None where something else ends it."""
        if self.experiment.passes is None:
            return None
        workload = next(each for each in self.experiment.workloads if each.name == cell.workload)
        return blocks_in_pass(workload) * self.experiment.passes

    def _read_log(self) -> None:
        if self.running.read_log is None:
            return
        entries = self.running.read_log()
        new = [entry for entry in entries[self.logged :] if entry.tag not in self.abandoned]
        self.logged = len(entries)
        self.log += new
        if self.writer is not None:
            self.writer.log(new)

    def _say(self, cell: Cell, watch: Watch, share: float) -> None:
        if self.on_progress is None:
            return
        self.on_progress(
            Progress(
                cell=cell.name,
                cells_done=self.cells_done,
                cells=len(self.cells),
                blocks=self.blocks,
                requests=len(self.samples),
                failed=self.failures.count,
                share=(self.cells_done + share) / len(self.cells),
                elapsed_s=(now_ns() - self.began_ns) / 1e9,
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
