"""A process for each arm: its own side, which sends what it is ordered to, and the coordinator's."""

from __future__ import annotations

import asyncio
import gc
import heapq
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from queue import SimpleQueue
from typing import Any, Final, Protocol

from ..._clock import now_ns
from .._arms import Arm, is_asynchronous, made
from ._messages import BeginCell, Done, EndCell, Ready, RunFailedError, ScheduledRequest, Settle
from ._probes import Probe
from ._reading import StreamReader, read, read_async, sample_of, told

BUSY_CHUNKS_PER_S: Final = 3_000.0
"""From here on records are kept until there is time for them.

To make a record and to pickle it takes some 0.4 ms. At 3,000 chunks a second one that came meanwhile would on average
wait for a record every tenth time or more often.
"""
_MOST_KEPT: Final = 5_000


class SampleSender:
    """Tells the parent of requests that are over; `finished` is called where the request was read.

    In that thread, or in the event loop, and in no thread of its own: a second thread that works while a loop reads
    takes the interpreter's lock at each of the loop's system calls, and keeps it for up to 5 ms. Where many chunks
    come, only the fact is told, and the record is made once fewer come, or the cell has ended.
    """

    def __init__(self, client: Any, pipe: Connection) -> None:
        self._client = client
        self._pipe = pipe
        self._kept: deque[tuple[ScheduledRequest, StreamReader]] = deque()
        self._in_flight = 0
        self._lock = threading.Lock()
        self._written: SimpleQueue[Any] = SimpleQueue()
        threading.Thread(target=self._write, name="fastlane-bench-answers", daemon=True).start()

    def begun(self) -> None:
        """Take note of a request that begins."""
        with self._lock:
            self._in_flight += 1

    def finished(self, job: ScheduledRequest, reading: StreamReader) -> None:
        """Tell of a request that is over, at once or later."""
        with self._lock:
            chunks_per_s = self._in_flight * _chunks_per_s(reading)
            self._in_flight -= 1
            # Where nothing else is under way nobody is kept waiting, and what comes next may wait for this record.
            if self._in_flight and chunks_per_s > BUSY_CHUNKS_PER_S and len(self._kept) < _MOST_KEPT:
                self._kept.append((job, reading))
                self._put(Done(job.place.tag))
                return
            self._tell_of(job, reading)
            if self._kept:
                # One with each: all at once would be a pause of its own.
                self._tell_of(*self._kept.popleft())

    def tell(self, what: Any) -> None:
        """Tell anything else."""
        with self._lock:
            self._put(what)

    def tell_kept(self) -> None:
        """Tell all that was kept; once the cell has ended, and its probe."""
        with self._lock:
            while self._kept:
                self._tell_of(*self._kept.popleft())

    def _tell_of(self, job: ScheduledRequest, reading: StreamReader) -> None:
        self._put(sample_of(self._client, job.place, reading, job.body))

    def _put(self, what: Any) -> None:
        # Pickled here, so that the thread that writes has nothing to do that needs the interpreter for long.
        self._written.put(ForkingPickler.dumps(what))

    def _write(self) -> None:
        while True:
            try:
                self._pipe.send_bytes(self._written.get())
            except OSError:
                return


def _chunks_per_s(reading: StreamReader) -> float:
    taken_s = (reading.ended_ns - reading.issued_ns) / 1e9
    return len(reading.token_ns) / taken_s if taken_s > 0 else 0.0


_MOST_THREADS: Final = 10_000


def serve(
    arm: Arm,
    base_url: str,
    api_key: str,
    shard: int,
    environment: Mapping[str, str],
    pipe: Connection,
) -> None:
    """Send what comes over the pipe until it is closed; the process's main function."""
    # Ctrl-C reaches the whole process group; the parent decides when a worker ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(environment)
    # Jobs that are left when the pipe ends are nobody's any more: the threads of the client may not keep the process.
    probe = Probe(shard=shard, arm=arm.name)
    with _or_end():
        asyncio.run(_serve(arm, base_url, api_key, probe, pipe))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


async def _serve(arm: Arm, base_url: str, api_key: str, probe: Probe, pipe: Connection) -> None:
    try:
        client = await made(arm, base_url, api_key)
        asynchronous = is_asynchronous(client)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, it is told to whoever waits for the client
        pipe.send(
            RunFailedError(
                f"the client of arm {arm.name!r} could not be made: {type(error).__name__}: {told(error, api_key)}"
            )
        )
        return
    telling = SampleSender(client, pipe)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    send: Callable[[ScheduledRequest], None]
    if asynchronous:
        probe.watch(loop)
        send = _Tasks(client, loop, telling).send
    else:
        send = _Threads(client, telling).send
    telling.tell(Ready(client=_class_of(client), plays=_plays_of(client)))
    orders = threading.Thread(
        target=_obey,
        args=(pipe, send, telling, probe, lambda: loop.call_soon_threadsafe(ended.set)),
        name="fastlane-bench-orders",
        daemon=True,
    )
    orders.start()
    await ended.wait()
    with suppress(Exception):
        closing = client.close()
        if closing is not None:
            await closing


def _obey(
    pipe: Connection,
    send: Callable[[ScheduledRequest], None],
    telling: SampleSender,
    probe: Probe,
    end: Callable[[], Any],
) -> None:
    # However this thread ends, the process has to end with it: its parent would wait for ever otherwise.
    try:
        timer = _Timer(send)
        while True:
            try:
                order = pipe.recv()
            except (EOFError, OSError):
                return
            if order is None:
                return
            if isinstance(order, ScheduledRequest):
                (send if order.place.intended_ns is None else timer.add)(order)
            elif isinstance(order, Settle):
                # What was imported and made so far lives on: a collection that looks at it again takes tens of ms.
                gc.collect()
                gc.freeze()
                telling.tell(order)
            elif isinstance(order, BeginCell):
                probe.start()
            elif isinstance(order, EndCell):
                # First the probe: to make the records that were kept is no work of the cell's.
                vitals = probe.stop(order.cell)
                telling.tell_kept()
                telling.tell(vitals)
    finally:
        end()


class _Timer:
    """Sends each job at its intended time.

    Jobs come some time ahead, so that neither their way here nor the coordinator's other work delays them; and a
    thread is woken more precisely than an event loop's timer, which is rounded to milliseconds.
    """

    def __init__(self, send: Callable[[ScheduledRequest], None]) -> None:
        self._send = send
        self._due: list[tuple[int, int, ScheduledRequest]] = []
        self._number = count()
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="fastlane-bench-timer", daemon=True).start()

    def add(self, job: ScheduledRequest) -> None:
        """Take a job that is to be sent at its intended time, or at once where that has passed."""
        with self._changed:
            heapq.heappush(self._due, (job.place.intended_ns or 0, next(self._number), job))
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._due or self._due[0][0] > now_ns():
                    self._changed.wait((self._due[0][0] - now_ns()) / 1e9 if self._due else None)
                job = heapq.heappop(self._due)[2]
            self._send(job)


class _Threads:
    """A thread for each request of a synchronous client that is in flight; those that are done take the next."""

    def __init__(self, client: Any, telling: SampleSender) -> None:
        self._client = client
        self._telling = telling
        # It starts a thread only where none is idle.
        self._pool = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="fastlane-bench-request")

    def send(self, job: ScheduledRequest) -> None:
        """Have a job done at once."""
        self._telling.begun()
        self._pool.submit(self._run, job)

    def _run(self, job: ScheduledRequest) -> None:
        with _or_end():
            self._telling.finished(job, read(self._client, job))


class _Tasks:
    """A task for each request of an asynchronous client that is in flight, all of them in one event loop."""

    def __init__(self, client: Any, loop: asyncio.AbstractEventLoop, telling: SampleSender) -> None:
        self._client = client
        self._loop = loop
        self._telling = telling
        self._running: set[asyncio.Task[None]] = set()

    def send(self, job: ScheduledRequest) -> None:
        """Have a job done at once; from any thread."""
        self._telling.begun()
        self._loop.call_soon_threadsafe(self._start, job)

    def _start(self, job: ScheduledRequest) -> None:
        task = self._loop.create_task(self._run(job))
        # The loop itself keeps only weak references to its tasks.
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, job: ScheduledRequest) -> None:
        reading = await read_async(self._client, job)
        with _or_end():
            self._telling.finished(job, reading)


@contextmanager
def _or_end() -> Iterator[None]:
    """End the process where something fails: its parent would wait for it for ever."""
    try:
        yield
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def _class_of(client: Any) -> str:
    kind = type(client)
    return f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}"


def _plays_of(client: Any) -> tuple[str, ...] | None:
    shell = getattr(client, "_fastlane", None)
    return None if shell is None else tuple(map(repr, shell.pipeline.plays))


# Not fork: a child must not inherit what the parent has imported, opened or locked.
PROCESSES = multiprocessing.get_context("spawn")
_STOP_TIMEOUT_S = 5.0


class Worker:
    """One arm's process as its coordinator sees it: orders go in, and `heard` is called with what comes out.

    `heard` is called in a thread of the worker's own, with RunFailedError as the last message of all.
    """

    def __init__(
        self,
        arm: Arm,
        *,
        base_url: str,
        api_key: str,
        shard: int,
        environment: Mapping[str, str],
        heard: Callable[[str, Any], None],
    ) -> None:
        self.arm = arm.name
        self._heard = heard
        self._pipe, theirs = PROCESSES.Pipe()
        self._process = PROCESSES.Process(
            target=serve, args=(arm, base_url, api_key, shard, environment, theirs), daemon=True
        )
        with deaf_to_ctrl_c():
            self._process.start()
        # A pipe reports the end of the worker only once nobody else holds the worker's side of it.
        theirs.close()
        self._listener = threading.Thread(target=self._listen, name=f"fastlane-bench-{arm.name}", daemon=True)
        self._listener.start()

    def order(self, what: Any) -> None:
        """Send an order. Raises RunFailedError where the process has ended."""
        try:
            self._pipe.send(what)
        except OSError as error:
            raise self._ended_early() from error

    def abandon(self) -> None:
        """Have the process end now, whatever it does."""
        self._process.terminate()

    def close(self) -> None:
        """End the process, whether it has been abandoned or is idle; by force where it does not end in time."""
        with suppress(OSError):
            self._pipe.send(None)
        self._process.join(_STOP_TIMEOUT_S)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join()
        # Not earlier: a pipe that is closed while a thread reads from it stays open.
        self._listener.join()
        self._pipe.close()

    def _listen(self) -> None:
        while True:
            try:
                what = self._pipe.recv()
            except (EOFError, OSError):
                self._heard(self.arm, self._ended_early())
                return
            self._heard(self.arm, what)

    def _ended_early(self) -> RunFailedError:
        return RunFailedError(f"the process of arm {self.arm!r} ended early: its stderr says why")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPlan:
    """What the processes of a shard need to know; it can be pickled, and taken to another machine."""

    arms: tuple[Arm, ...]
    base_url: str
    api_key: str = field(repr=False)
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the processes need beside those that they inherit."""
    shard: int = 0


class Shard(Protocol):
    """A process for each arm, all on the same machine. Making it starts them."""

    def order(self, arm: str, what: Any) -> None:
        """Send an order to an arm's process. Raises RunFailedError where it has ended."""
        ...

    def abandon(self) -> None:
        """Have the processes end now, whatever they do."""
        ...

    def close(self) -> None:
        """End the processes, which have nothing to do any more, or have been abandoned."""
        ...


MakeShard = Callable[[ShardPlan, Callable[[str, Any], None]], Shard]
"""Makes a shard, which calls the function with an arm's name and what its process says."""


class LocalShard:
    """A shard on this machine."""

    def __init__(self, plan: ShardPlan, heard: Callable[[str, Any], None]) -> None:
        self._workers: dict[str, Worker] = {}
        self._closing = ExitStack()
        try:
            for arm in plan.arms:
                worker = Worker(
                    arm,
                    base_url=plan.base_url,
                    api_key=plan.api_key,
                    shard=plan.shard,
                    environment=plan.environment,
                    heard=heard,
                )
                self._workers[arm.name] = worker
                self._closing.callback(worker.close)
        except BaseException:
            self.abandon()
            self.close()
            raise

    def order(self, arm: str, what: Any) -> None:
        self._workers[arm].order(what)

    def abandon(self) -> None:
        for worker in self._workers.values():
            worker.abandon()

    def close(self) -> None:
        self._closing.close()


@contextmanager
def deaf_to_ctrl_c() -> Iterator[None]:
    """Have the processes that are started meanwhile ignore Ctrl-C from their beginning.

    A process that ignores Ctrl-C starts others that do: these would greet it with a traceback each while they import.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)
