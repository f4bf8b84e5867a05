"""The shards of one machine: one in this process, or several in processes of their own, run side by side."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Final, Protocol, Self

from ..recorded import Sample
from ._messages import CellEnded, CellPlan, EndCell, Event, Ready, ShardPlan
from ._shard import Shard
from ._workers import PROCESSES, RunFailedError, deaf_to_ctrl_c

_STOP_TIMEOUT_S = 15.0
# In steps: on Windows an unlimited wait would not let Ctrl-C through.
_STEP_S = 0.5
_INTERRUPTED: Final = object()


class ShardRunner(Protocol):
    """What runs a shard: the shard itself, its process, or an actor on another machine. See Shard for the methods."""

    @property
    def clients(self) -> dict[str, Ready]:
        """What the arms' processes said of their clients."""
        ...

    def start(self) -> tuple[Sample, ...]: ...

    def run(self, plan: CellPlan) -> Iterator[Event]: ...

    def end_cell(self, cell: str) -> None: ...

    def interrupt(self) -> None: ...

    def abandon(self) -> None: ...

    def close(self) -> None: ...


class ShardProcess:
    """A shard in a process of its own, used as the shard itself is."""

    def __init__(self, plan: ShardPlan) -> None:
        self._shard = plan.shard
        self.clients: dict[str, Ready] = {}
        self._pipe, theirs = PROCESSES.Pipe()
        # No daemon: daemons may not have children, and this one has a process for each arm.
        self._process = PROCESSES.Process(target=_serve, args=(plan, theirs), daemon=False)
        with deaf_to_ctrl_c():
            self._process.start()
        theirs.close()

    def start(self) -> tuple[Sample, ...]:
        """Wait for the arms' first requests, which the process has sent by itself."""
        self.clients, samples = self._hear()
        return tuple(samples)

    def run(self, plan: CellPlan) -> Iterator[Event]:
        """Run one cell there."""
        self._tell(plan)
        while True:
            event = self._hear()
            yield event
            if isinstance(event, CellEnded):
                return

    def end_cell(self, cell: str) -> None:
        """Start no further block of a cell."""
        self._tell(EndCell(cell))

    def interrupt(self) -> None:
        """End the cell soon."""
        self._tell("interrupt")

    def abandon(self) -> None:
        """Have the arms' processes end now, whatever they do."""
        try:
            self._pipe.send("abandon")
        except OSError:
            return

    def close(self) -> None:
        """End the process, and with it the arms' processes."""
        try:
            self._pipe.send(None)
        except OSError:
            pass
        self._process.join(_STOP_TIMEOUT_S)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join()
        self._pipe.close()

    def _tell(self, what: Any) -> None:
        try:
            self._pipe.send(what)
        except OSError as error:
            raise self._ended() from error

    def _hear(self) -> Any:
        try:
            what = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise self._ended() from error
        if isinstance(what, BaseException):
            raise what
        return what

    def _ended(self) -> RunFailedError:
        return RunFailedError(f"the process of shard {self._shard} ended early: its stderr says why")


def _serve(plan: ShardPlan, pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    plans: SimpleQueue[CellPlan | None] = SimpleQueue()
    shard = Shard(plan)
    threading.Thread(target=_obey, args=(pipe, shard, plans.put), daemon=True).start()
    with shard:
        try:
            pipe.send((shard.clients, shard.start()))
            while (cell := plans.get()) is not None:
                for event in shard.run(cell):
                    pipe.send(event)
        except Exception as error:  # noqa: BLE001 - told to the parent, which raises it
            shard.abandon()
            try:
                pipe.send(error)
            except OSError:
                return


def _obey(pipe: Connection, shard: Shard, run: Callable[[CellPlan | None], None]) -> None:
    orders = {"interrupt": shard.interrupt, "abandon": shard.abandon}
    while True:
        try:
            order = pipe.recv()
        except (EOFError, OSError):
            # The parent is gone: nobody wants what is under way.
            shard.abandon()
            os._exit(1)
        if isinstance(order, str):
            orders[order]()
        elif isinstance(order, EndCell):
            shard.end_cell(order.cell)
        else:
            run(order)
            if order is None:
                return


class Crew:
    """All shards of a run, told and heard together."""

    def __init__(self, members: Sequence[ShardRunner]) -> None:
        self._members = tuple(members)
        self._queue: SimpleQueue[tuple[int, Any]] = SimpleQueue()

    @classmethod
    def of(cls, make: Callable[[ShardPlan], ShardRunner], plans: Sequence[ShardPlan]) -> Self:
        """Make a member for each plan; where one cannot be made, those before it are ended."""
        members: list[ShardRunner] = []
        try:
            members.extend(make(plan) for plan in plans)
        except BaseException:
            for member in members:
                member.abandon()
                member.close()
            raise
        return cls(members)

    def start(self) -> tuple[Sample, ...]:
        """Start every shard, and return the arms' first requests. Raises RunFailedError where one failed."""
        samples: list[Sample] = []
        for at in range(len(self._members)):
            self._thread(at, lambda member: self._queue.put((-1, member.start())))
        for _ in self._members:
            samples += self._hear()[1]
        return tuple(sorted(samples, key=lambda sample: sample.shard))

    @property
    def clients(self) -> dict[str, Ready]:
        """What the arms' processes said of their clients; the same in every shard."""
        return self._members[0].clients

    def run(self, plans: Sequence[CellPlan]) -> Iterator[Event]:
        """Run one cell, each shard its own part, and yield the events of all; raises what a shard raises."""
        for at, plan in enumerate(plans):
            self._thread(at, lambda member, plan=plan: self._pump(member, plan))  # type: ignore[misc]
        running = len(plans)
        while running:
            event = self._hear()[1]
            running -= isinstance(event, CellEnded)
            yield event

    def end_cell(self, cell: str) -> None:
        """Start no further block of a cell, if that is still the one that is running."""
        for member in self._members:
            member.end_cell(cell)

    def interrupted(self) -> None:
        """End the cell that is running soon. May be called in a signal's handler: the rest is done in `run`."""
        self._queue.put((0, _INTERRUPTED))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.abandon()
        for member in self._members:
            member.close()

    def abandon(self) -> None:
        """Have every arm's process end now, whatever it does."""
        for member in self._members:
            member.abandon()

    def _pump(self, member: ShardRunner, plan: CellPlan) -> None:
        for event in member.run(plan):
            self._queue.put((0, event))

    def _thread(self, at: int, act: Callable[[ShardRunner], None]) -> None:
        def guarded() -> None:
            # A shard that died unseen would be a run with fewer requests than it says.
            try:
                act(self._members[at])
            except BaseException as error:  # noqa: BLE001
                self._queue.put((at, error))

        threading.Thread(target=guarded, name=f"fastlane-bench-shard-{at}", daemon=True).start()

    def _hear(self) -> tuple[int, Any]:
        while True:
            try:
                at, what = self._queue.get(timeout=_STEP_S)
            except Empty:
                continue
            if isinstance(what, BaseException):
                raise what
            if what is _INTERRUPTED:
                for member in self._members:
                    member.interrupt()
                continue
            return at, what


@contextmanager
def ctrl_c(crew: Crew) -> Iterator[None]:
    """Have the first Ctrl-C end the cell soon; the next one is what it always is."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        # Somebody else's: what it does is theirs to say.
        yield
        return

    def first(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        crew.interrupted()

    signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
