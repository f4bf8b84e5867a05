"""One run: cell by cell and block by block through a process for each arm, into memory and files."""

from __future__ import annotations

import json
import math
import os
import platform
import signal
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from ..._clock import now_ns, wall_ns
from .. import load as planning
from ..load import Due, Pacing, RunBudget, RunCost
from ..progress import Progress, Watch
from ..recorded import (
    FAILED_ALIKE,
    ArmInfo,
    Cell,
    Header,
    RecordedRun,
    RunWriter,
    Sample,
    Vitals,
    duration_s,
    with_own_records,
)
from ..workloads import Workload
from ._requests import BeginCell, Done, EndCell, Ready, RequestMaker, RunFailedError, ScheduledRequest
from ._worker import LocalShard, MakeShard, Probe, Shard, ShardPlan

if TYPE_CHECKING:
    from ...emulator import RequestLog
    from .._experiment import Benchmark, RunningProvider

# In steps: on Windows an unlimited wait would not let Ctrl-C through.
_STEP_S: Final = 0.5
_START_NS: Final = 180_000_000_000
"""How long an arm's process may take to start and to make its client: seconds, unless the machine is overloaded."""
_GRACE_NS: Final = 1_000_000_000
_MOST_ALIKE: Final = 20
"""Failures with the same error that end a run, if more than half of all requests failed with it."""
_SETTINGS: Final = ("budget", "warm_up", "max_output_tokens", "passes", "processes", "seed")
_PACKAGES: Final = ("openai", "fastlane-llm", "numpy")


def run_benchmark(
    experiment: Benchmark,
    folder: Path | None,
    *,
    on_progress: Callable[[Progress], None] | None,
    make_shard: MakeShard | None,
) -> RecordedRun:
    with ExitStack() as stack:
        writer = None if folder is None else stack.enter_context(RunWriter(folder))
        provider = stack.enter_context(experiment.provider.running())
        return _Run(experiment, provider, writer, on_progress).run(make_shard or LocalShard)


class _Run:
    """The state of a run. One thread changes it; the arms' processes only put messages into the inbox."""

    def __init__(
        self,
        experiment: Benchmark,
        provider: RunningProvider,
        writer: RunWriter | None,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self._experiment, self._provider = experiment, provider
        self._writer, self._on_progress = writer, on_progress
        self._arms = tuple(arm.name for arm in experiment.resolved)
        self._cells = experiment.cells
        self._requests = RequestMaker(
            model=provider.model,
            limit_field=provider.limit_field,
            embedded=provider.embedded,
            seed=experiment.seed,
            max_output_tokens=experiment.max_output_tokens,
        )
        self._price = experiment.price
        self._inbox: SimpleQueue[tuple[int, str, Any]] = SimpleQueue()
        self._shards: list[Shard] = []
        self._ready: dict[tuple[int, str], Ready] = {}
        self._replies = 0
        """Workers that have followed the last order to all."""
        self._header: Header | None = None
        self._samples: list[Sample] = []
        self._vitals: list[Vitals] = []
        self._log: list[RequestLog] = []
        self._logged = 0
        """Entries of the provider's log that were read."""
        self._in_flight: dict[str, Due | None] = {}
        """Requests that have not ended, by their tags; None for one that belongs to no block."""
        self._unrecorded: dict[str, Due | None] = {}
        """Requests that have ended, whose samples have not come yet."""
        self._blocks: dict[tuple[int, int], dict[str, Sample]] = defaultdict(dict)
        """Samples of blocks that have not ended, by lane and number, and by the arm."""
        self._spent = RunCost()
        self._errors: Counter[str] = Counter()
        self._measured = self._blocks_done = self._cells_done = 0
        self._cell = self._cells[0]
        self._pacing: Pacing | None = None
        self._watch = Watch({}, ())
        self._why: str | None = None
        self._until_ns: int | None = None
        """When requests under way are given up, after Ctrl-C."""
        self._block_s = 0.0
        self._began_ns = 0

    def run(self, make_shard: MakeShard) -> RecordedRun:
        experiment, provider = self._experiment, self._provider
        with ExitStack() as stack:
            try:
                for number in range(experiment.processes):
                    plan = ShardPlan(
                        arms=experiment.resolved,
                        base_url=provider.base_url,
                        api_key=provider.api_key,
                        environment=provider.environment,
                        shard=number,
                    )
                    self._shards.append(make_shard(plan, partial(self._heard, number)))
                    stack.callback(self._shards[-1].close)
                self._start()
                with self._ctrl_c():
                    return self._run_cells()
            except BaseException:
                self._abandon()
                raise

    def _start(self) -> None:
        """Wait for the arms' processes, and send each one's first request, which is of the first cell's workload."""
        until_ns = now_ns() + _START_NS
        while missing := [arm for shard, arm in self._workers() if (shard, arm) not in self._ready]:
            if now_ns() > until_ns:
                raise RunFailedError(f"the client of arm {missing[0]!r} was not made within {_START_NS / 1e9:g} s")
            self._receive()
        workload = self._workload(self._cell)
        self._one_by_one([self._requests.unmeasured(workload, arm, shard=shard) for shard, arm in self._workers()])
        self._began_ns = now_ns()
        self._header = header = self._make_header()
        if self._writer is not None:
            self._writer.begin(header)
            for sample in self._samples:
                self._writer.sample(sample)

    def _run_cells(self) -> RecordedRun:
        reasons: list[str] = []
        for cell in self._cells:
            reasons.append(self._run_cell(cell))
            self._read_log()
            if reasons[-1] == "interrupted":
                self._abandon()
            if reasons[-1] in ("interrupted", FAILED_ALIKE):
                break
            self._cells_done += 1
        assert self._header is not None
        # The reason that cut a cell short counts most.
        spent = [reason for reason in reasons if reason.endswith(" spent")]
        ended = next((reason for reason in ("interrupted", FAILED_ALIKE, *spent) if reason in reasons), "finished")
        if self._writer is not None:
            self._writer.end(self._header, ended)
        return RecordedRun(
            header=self._header,
            samples=tuple(self._samples),
            vitals=tuple(self._vitals),
            log=tuple(self._log) if self._provider.embedded else None,
            duration_s=duration_s(self._samples),
            ended=ended,
        )

    def _run_cell(self, cell: Cell) -> str:
        """Run a cell, and return why it ended."""
        experiment = self._experiment
        self._cell, self._why, self._pacing = cell, None, None
        references = {arm.name: experiment.reference_of(arm) for arm in experiment.resolved}
        self._watch = Watch(references, experiment.metrics)
        limits = planning.limits_of(experiment.budget, self._spent, cells_left=len(self._cells) - self._cells_done)
        progress = partial(self._report_progress, limits, replace(self._spent), self._blocks_done)
        progress()
        probe = Probe()
        self._order_all(BeginCell())
        probe.start()
        workload = self._workload(cell)
        self._one_by_one(
            [
                self._requests.unmeasured(workload, arm, shard=shard, cell=cell, number=number)
                for number in range(experiment.warm_up)
                for shard, arm in self._workers()
            ]
        )
        self._run_blocks(limits, progress)
        self._order_all(EndCell(cell.name))
        self._add_vitals(probe.stop(cell.name))
        return self._why or "finished"

    def _run_blocks(self, limits: RunBudget, progress: Callable[[], None]) -> None:
        experiment, cell, load = self._experiment, self._cell, self._experiment.load
        workload, began_ns, before_s = self._workload(cell), now_ns(), self._spent.seconds
        seed = f"{experiment.seed}/{cell.name}"
        common: dict[str, Any] = {"passes": experiment.passes, "seed": seed}
        if isinstance(load, planning.Open):
            pacing = Pacing([planning.open_blocks(workload, self._arms, rate=cell.rate or 1.0, **common)], now=began_ns)
        else:
            users = cell.users or 1
            lanes = [planning.lane_of(workload, self._arms, lane=lane, lanes=users, **common) for lane in range(users)]
            pacing = Pacing(lanes, now=began_ns, think_s=load.think_s, block_s=self._block_s, seed=seed)
        self._pacing = pacing
        blocks = self._blocks_done
        while True:
            now = now_ns()
            self._spent.seconds = before_s + (now - began_ns) / 1e9
            if self._until_ns is not None:
                self._why = "interrupted"
            self._why = self._why or planning.exhausted(limits, self._spent, calls_of_next=len(self._arms))
            due_ns = None if self._why else pacing.next_ns()
            if due_ns is not None and due_ns <= now:
                self._spent.calls += len(self._arms)
                for due in pacing.start():
                    self._send(due)
            elif (due_ns is None and not self._in_flight) or self._given_up(now):
                break
            else:
                self._receive(due_ns)
            if self._blocks_done > blocks:
                blocks = self._blocks_done
                progress()
        if limits.seconds is not None:
            # A block that is under way when the time is over finishes, and no later cell pays for it.
            self._spent.seconds = min(self._spent.seconds, limits.seconds)

    def _one_by_one(self, requests: list[ScheduledRequest]) -> None:
        """Send requests that count for nothing, one after the other, and note about how long a block takes."""
        before = len(self._samples)
        for request in requests:
            tag = request.place.tag
            if self._until_ns is None:
                self._spent.calls += 1
                self._in_flight[tag] = None
                self._shards[request.place.shard].order(request.place.arm, request)
            while (tag in self._in_flight or tag in self._unrecorded) and not self._given_up(now_ns()):
                self._receive()
        if sent := self._samples[before:]:
            shortest_ns = min(sample.ended_ns - sample.issued_ns for sample in sent)
            self._block_s = shortest_ns / 1e9 * len({sample.arm for sample in sent})

    def _given_up(self, now: int) -> bool:
        return self._until_ns is not None and now >= self._until_ns

    # Messages

    def _heard(self, shard: int, arm: str, message: Any) -> None:
        self._inbox.put((shard, arm, message))  # In a thread of the shard's.

    def _receive(self, until_ns: int | None = None) -> None:
        """Apply the next message, if one comes in time. Raises RunFailedError for the end of an arm's process."""
        now = now_ns()
        waits_s = [(each - now) / 1e9 for each in (until_ns, self._until_ns) if each is not None and each > now]
        try:
            shard, arm, message = self._inbox.get(timeout=min([_STEP_S, *waits_s]))
        except Empty:
            return
        match message:
            case RunFailedError():
                raise message
            case KeyboardInterrupt():
                self._until_ns = self._until_ns or now_ns() + _GRACE_NS
            case Ready():
                self._ready[shard, arm] = message
            case BeginCell():
                self._replies += 1
            case Vitals():
                self._add_vitals(message)
                self._replies += 1
            case Done():
                self._end_request(message.tag)
            case Sample():
                # First the next request, then the work with this one's record.
                self._end_request(message.tag)
                self._record(message)

    def _end_request(self, tag: str) -> None:
        if tag not in self._in_flight:  # Done came before its Sample.
            return
        due = self._unrecorded[tag] = self._in_flight.pop(tag)
        if due is not None and self._pacing is not None:
            following = self._pacing.ended(due, now_ns())
            if following is not None and self._until_ns is None:
                self._send(following)

    def _record(self, received: Sample) -> None:
        if received.tag not in self._unrecorded:  # Ctrl-C has cut it off.
            return
        due = self._unrecorded.pop(received.tag)
        sample = self._complete(received)
        self._samples.append(sample)
        self._spent.money += sample.price or 0.0
        if self._header is None:
            if sample.error is not None:
                whom = "" if self._provider.embedded else f" to {self._provider.host}"
                failed = f"the first request of arm {sample.arm!r}{whom} failed"
                raise RunFailedError(f"{failed}: {sample.error}: {sample.error_message}")
        elif self._writer is not None:
            self._writer.sample(sample)
        if due is None:
            return
        self._measured += 1
        if sample.error is not None:
            self._errors[sample.error] += 1
            most = max(self._errors.values())
            if most >= _MOST_ALIKE and 2 * most > self._measured:
                self._why = FAILED_ALIKE
        key = due.block.lane, due.block.number
        self._blocks[key][sample.arm] = sample
        if len(self._blocks[key]) == len(self._arms):
            self._blocks_done += 1
            self._watch.pair(self._blocks.pop(key))

    def _complete(self, received: Sample) -> Sample:
        """Return a sample with its price, and with its client's record as plain data."""
        sample = with_own_records(received, round(self._provider.one_way_s * 2e9))
        price = sample.record.routing.price if sample.record is not None and sample.record.routing else None
        tokens = sample.input_tokens, sample.output_tokens
        if price is None and self._price is not None and None not in tokens:
            price = self._price.of(tokens[0] or 0, tokens[1] or 0, sample.cached_tokens or 0)
        return sample if price is None else replace(sample, price=price)

    def _add_vitals(self, vitals: Vitals) -> None:
        self._vitals.append(vitals)
        if self._writer is not None:
            self._writer.vitals(vitals)

    def _read_log(self) -> None:
        if self._provider.read_log is None:
            return
        entries = self._provider.read_log()
        # Requests that were cut off have no sample.
        abandoned = self._in_flight.keys() | self._unrecorded.keys()
        new = [entry for entry in entries[self._logged :] if entry.tag not in abandoned]
        self._logged = len(entries)
        self._log += new
        if self._writer is not None:
            self._writer.log(new)

    # Orders

    def _workers(self) -> Iterator[tuple[int, str]]:
        for shard in range(len(self._shards)):
            for arm in self._arms:
                yield shard, arm

    def _send(self, due: Due) -> None:
        # A user keeps its process, and with it its connections.
        number = due.block.lane if due.intended_ns is None else due.block.number
        request = self._requests.of_block(self._cell, due, shard=number % len(self._shards))
        self._in_flight[request.place.tag] = due
        self._shards[request.place.shard].order(request.place.arm, request)

    def _order_all(self, order: Any) -> None:
        """Give all workers an order, and wait until they have followed it."""
        workers, self._replies = list(self._workers()), 0
        for shard, arm in workers:
            self._shards[shard].order(arm, order)
        while self._replies < len(workers):
            self._receive()

    def _abandon(self) -> None:
        for shard in self._shards:
            shard.abandon()

    @contextmanager
    def _ctrl_c(self) -> Iterator[None]:
        """Have the first Ctrl-C end the cell soon; the next one raises KeyboardInterrupt."""
        is_main = threading.current_thread() is threading.main_thread()
        # The application may have its own handler.
        if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return

        def first(*_: object) -> None:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._inbox.put((0, "", KeyboardInterrupt()))

        signal.signal(signal.SIGINT, first)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    # What is known of the run

    def _workload(self, cell: Cell) -> Workload:
        return next(each for each in self._experiment.workloads if each.name == cell.workload)

    def _report_progress(self, limits: RunBudget, before: RunCost, blocks: int) -> None:
        """Report the progress of the cell, which began when `before` was spent and `blocks` were done."""
        if self._on_progress is None:
            return
        passes = self._experiment.passes
        planned = planning.blocks_in_pass(self._workload(self._cell)) * passes if passes is not None else math.inf
        share = min(1.0, max(planning.share_spent(limits, self._spent, before), (self._blocks_done - blocks) / planned))
        self._on_progress(
            Progress(
                cell=self._cell.name,
                cells_done=self._cells_done,
                cells=len(self._cells),
                blocks=self._blocks_done,
                requests=len(self._samples),
                failed=self._errors.total(),
                share=(self._cells_done + share) / len(self._cells),
                elapsed_s=(now_ns() - self._began_ns) / 1e9,
                ratios=self._watch.ratios(),
            )
        )

    def _make_header(self) -> Header:
        experiment, provider, workloads = self._experiment, self._provider, self._experiment.workloads
        settings = {
            "workloads": {workload.name: len(workload.conversations) for workload in workloads},
            "load": {"kind": type(experiment.load).__name__.lower(), **asdict(experiment.load)},
            **{name: getattr(experiment, name) for name in _SETTINGS},
        }
        arms = tuple(
            ArmInfo(
                name=arm.name,
                description=arm.description,
                role=experiment.role_of(arm),
                reference=experiment.reference_of(arm),
                client=self._ready[0, arm.name].client,
                plays=self._ready[0, arm.name].plays,
            )
            for arm in experiment.resolved
        )
        return Header(
            name=experiment.name,
            provider=experiment.provider.describe(),
            model=provider.model,
            embedded=provider.embedded,
            one_way_s=provider.one_way_s,
            arms=arms,
            cells=self._cells,
            metrics=tuple(experiment.metrics),
            workload=", ".join(workload.name for workload in workloads),
            workload_source="; ".join(dict.fromkeys(workload.source for workload in workloads if workload.source)),
            workload_notes=tuple(note for workload in workloads for note in workload.notes),
            # As a file gives it back: lists for tuples, objects for dataclasses.
            settings=json.loads(json.dumps(settings, default=asdict)),
            machine={
                "python": platform.python_version(),
                "system": f"{platform.system()} {platform.machine()}",
                "cores": os.cpu_count(),
                "packages": {name: version(name) for name in _PACKAGES},
            },
            started_at=datetime.fromtimestamp(wall_ns() / 1e9, UTC).isoformat(timespec="seconds"),
        )
