"""A process for each arm: its own side, which sends the requests that it is ordered to, and its parent's."""

from __future__ import annotations

import asyncio
import gc
import heapq
import inspect
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler
from queue import SimpleQueue
from typing import Any, Final, Protocol

from ..._clock import cpu_ns, now_ns, sleep
from .._arms import Arm, is_asynchronous
from ..recorded import Vitals
from ._requests import (
    BeginCell,
    Done,
    EndCell,
    Ready,
    RunFailedError,
    ScheduledRequest,
    StreamReader,
    error_text,
    read,
    read_async,
    sample_of,
)

BUSY_CHUNKS_PER_S: Final = 3_000.0
"""From here on samples are kept until there is time for them.

To make and pickle a sample takes some 0.4 ms. At 3,000 chunks a second, every tenth chunk or more would wait for one.
"""
_MOST_KEPT: Final = 5_000
_MOST_THREADS: Final = 10_000
_STOP_TIMEOUT_S: Final = 5.0
# Not fork: a child must not inherit what the parent has imported, opened or locked.
_PROCESSES: Final = multiprocessing.get_context("spawn")

Send = Callable[[ScheduledRequest], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPlan:
    """What the processes of a shard need to know; it can be pickled and sent to another machine."""

    arms: tuple[Arm, ...]
    base_url: str
    api_key: str = field(repr=False)
    environment: Mapping[str, str] = field(default_factory=dict)
    shard: int = 0


class SampleSender:
    """Sends the samples of requests that have ended to the parent.

    `finished` makes the sample where the request was read: a second thread would take the interpreter's lock at each
    system call of the loop, for up to 5 ms. While many chunks come, it sends Done, and makes the sample later.
    """

    def __init__(self, client: Any, pipe: Connection) -> None:
        self._client, self._pipe = client, pipe
        self._kept: deque[tuple[ScheduledRequest, StreamReader]] = deque()
        self._in_flight = 0
        self._lock = threading.Lock()
        self._written: SimpleQueue[Any] = SimpleQueue()
        threading.Thread(target=self._write, name="fastlane-bench-samples", daemon=True).start()

    def begun(self) -> None:
        with self._lock:
            self._in_flight += 1

    def finished(self, request: ScheduledRequest, reading: StreamReader) -> None:
        """Send the sample of a request that has ended, at once or later."""
        with self._lock:
            taken_ns = reading.ended_ns - reading.issued_ns
            chunks_per_s = self._in_flight * len(reading.token_ns) / taken_ns * 1e9 if taken_ns > 0 else 0.0
            self._in_flight -= 1
            # If nothing else is in flight, no chunk waits for this sample.
            if self._in_flight and chunks_per_s > BUSY_CHUNKS_PER_S and len(self._kept) < _MOST_KEPT:
                self._kept.append((request, reading))
                self._put(Done(request.place.tag))
                return
            self._put_sample(request, reading)
            if self._kept:
                # One with each: all at once would be a long pause.
                self._put_sample(*self._kept.popleft())

    def tell(self, message: Any) -> None:
        with self._lock:
            self._put(message)

    def tell_kept(self) -> None:
        with self._lock:
            while self._kept:
                self._put_sample(*self._kept.popleft())

    def _put_sample(self, request: ScheduledRequest, reading: StreamReader) -> None:
        self._put(sample_of(self._client, request.place, reading, request.body))

    def _put(self, message: Any) -> None:
        # Pickled here: the writing thread must not need the interpreter for long.
        self._written.put(ForkingPickler.dumps(message))

    def _write(self) -> None:
        with suppress(OSError):
            while True:
                self._pipe.send_bytes(self._written.get())


# The arm's process


def serve(plan: ShardPlan, arm: Arm, pipe: Connection) -> None:
    """Send what is ordered over the pipe until it is closed; the process's main function."""
    # Ctrl-C reaches the whole process group; the parent decides when a worker ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(plan.environment)
    with _or_end():
        asyncio.run(_serve(plan, arm, pipe))
    sys.stdout.flush()
    sys.stderr.flush()
    # The client's threads must not keep the process.
    os._exit(0)


async def _serve(plan: ShardPlan, arm: Arm, pipe: Connection) -> None:
    probe = Probe(shard=plan.shard, arm=arm.name)
    try:
        client = arm.make_client(plan.base_url, plan.api_key)
        if inspect.isawaitable(client):
            client = await client
        asynchronous = is_asynchronous(client)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, the parent waits for it
        why = f"{type(error).__name__}: {error_text(error, plan.api_key)}"
        pipe.send(RunFailedError(f"the client of arm {arm.name!r} could not be made: {why}"))
        return
    sender, loop, ended = SampleSender(client, pipe), asyncio.get_running_loop(), asyncio.Event()
    if asynchronous:
        probe.watch(loop)
    send = _sending(client, sender, loop if asynchronous else None)
    kind, shell = type(client), getattr(client, "_fastlane", None)
    plays = None if shell is None else tuple(map(repr, shell.pipeline.plays))
    sender.tell(Ready(client=f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}", plays=plays))

    def obey() -> None:
        # However this thread ends, the process has to end with it: its parent would wait without end.
        try:
            _obey(pipe, send, sender, probe)
        finally:
            loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=obey, name="fastlane-bench-orders", daemon=True).start()
    await ended.wait()
    with suppress(Exception):
        closing = client.close()
        if closing is not None:
            await closing


def _obey(pipe: Connection, send: Send, sender: SampleSender, probe: Probe) -> None:
    timer = _Timer(send)
    with suppress(EOFError, OSError):
        while (order := pipe.recv()) is not None:
            if isinstance(order, ScheduledRequest):
                (send if order.place.intended_ns is None else timer.add)(order)
            elif isinstance(order, BeginCell):
                # What was imported and made so far stays: a collection that looks at it again takes tens of ms.
                gc.collect()
                gc.freeze()
                probe.start()
                sender.tell(order)
            elif isinstance(order, EndCell):
                # First the probe: making the samples that were kept is no work of the cell's.
                vitals = probe.stop(order.cell)
                sender.tell_kept()
                sender.tell(vitals)


def _sending(client: Any, sender: SampleSender, loop: asyncio.AbstractEventLoop | None) -> Send:
    """Return what sends a request at once, from any thread, by a task in `loop` for each request, or by a thread."""
    # The loop itself keeps only weak references to its tasks.
    running: set[asyncio.Task[None]] = set()
    pool = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="fastlane-bench-request")

    def run(request: ScheduledRequest) -> None:
        with _or_end():
            sender.finished(request, read(client, request))

    async def run_async(request: ScheduledRequest) -> None:
        reading = await read_async(client, request)
        with _or_end():
            sender.finished(request, reading)

    def start(request: ScheduledRequest) -> None:
        running.add(task := asyncio.ensure_future(run_async(request)))
        task.add_done_callback(running.discard)

    def send(request: ScheduledRequest) -> None:
        sender.begun()
        if loop is None:
            pool.submit(run, request)
        else:
            loop.call_soon_threadsafe(start, request)

    return send


class _Timer:
    """Sends each request at its intended time; an event loop's timer would round it to milliseconds."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._due: list[tuple[int, int, ScheduledRequest]] = []
        self._number = count()
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="fastlane-bench-timer", daemon=True).start()

    def add(self, request: ScheduledRequest) -> None:
        with self._changed:
            heapq.heappush(self._due, (request.place.intended_ns or 0, next(self._number), request))
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._due or self._due[0][0] > now_ns():
                    self._changed.wait((self._due[0][0] - now_ns()) / 1e9 if self._due else None)
                request = heapq.heappop(self._due)[2]
            self._send(request)


@contextmanager
def _or_end() -> Iterator[None]:
    """End the process if something fails: its parent would wait for it without end."""
    try:
        yield
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


# The parent's side


class Shard(Protocol):
    """A process for each arm, all on the same machine. Making it starts them."""

    def order(self, arm: str, order: Any) -> None: ...

    def abandon(self) -> None: ...

    def close(self) -> None: ...


MakeShard = Callable[[ShardPlan, Callable[[str, Any], None]], Shard]
"""Makes a shard, which calls the function with an arm's name and each message of its process."""


class LocalShard:
    """A shard on this machine. Each arm's own thread calls `on_message`; the last message is a RunFailedError."""

    def __init__(self, plan: ShardPlan, on_message: Callable[[str, Any], None]) -> None:
        self._on_message = on_message
        self._pipes: dict[str, Connection] = {}
        self._processes: list[SpawnProcess] = []
        self._listeners: list[threading.Thread] = []
        try:
            for arm in plan.arms:
                self._start(plan, arm)
        except BaseException:
            self.abandon()
            self.close()
            raise

    def _start(self, plan: ShardPlan, arm: Arm) -> None:
        self._pipes[arm.name], theirs = _PROCESSES.Pipe()
        process = _PROCESSES.Process(target=serve, args=(plan, arm, theirs), daemon=True)
        with _ignoring_ctrl_c():
            process.start()
        self._processes.append(process)
        # A pipe reports the end of the worker only once no other process holds the worker's side of it.
        theirs.close()
        name = f"fastlane-bench-{arm.name}"
        self._listeners.append(threading.Thread(target=self._listen, args=(arm.name,), name=name, daemon=True))
        self._listeners[-1].start()

    def order(self, arm: str, order: Any) -> None:
        """Send an order to an arm's process. Raises RunFailedError if it has ended."""
        try:
            self._pipes[arm].send(order)
        except OSError as error:
            raise _ended_early(arm) from error

    def abandon(self) -> None:
        for process in self._processes:
            process.terminate()

    def close(self) -> None:
        """End the processes, by force if they do not end in time."""
        for pipe in self._pipes.values():
            with suppress(OSError):
                pipe.send(None)
        for process in self._processes:
            process.join(_STOP_TIMEOUT_S)
            if process.is_alive():
                process.terminate()
                process.join()
        # Not earlier: a pipe that is closed while a thread reads from it stays open.
        for listener in self._listeners:
            listener.join()
        for pipe in self._pipes.values():
            pipe.close()

    def _listen(self, arm: str) -> None:
        with suppress(EOFError, OSError):
            while True:
                self._on_message(arm, self._pipes[arm].recv())
        self._on_message(arm, _ended_early(arm))


def _ended_early(arm: str) -> RunFailedError:
    return RunFailedError(f"the process of arm {arm!r} ended early: its stderr says why")


@contextmanager
def _ignoring_ctrl_c() -> Iterator[None]:
    """Have processes that are started here ignore Ctrl-C from their beginning: they would print a traceback each."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


# How the process itself fares


INTERVAL_S: Final = 0.01
"""How long the probing thread sleeps at a time.

The overshoot of such a sleep was seen to follow the true delay of received chunks (p99 2.5 ms beside 2.1, 19 beside
15, 458 beside 437, with sleeps of 5 ms). On two cores that others kept busy, probing every 5 ms took 0.7 % of a core,
every 10 ms 0.5 %: what measures must not be what loads.
"""
LOOP_INTERVAL_S: Final = 0.04
"""The same where it also rings in an event loop, which wakes two threads each time (every 20 ms took 1.1 %)."""


class Probe:
    """Probes this process while one cell runs: `start` it before, `stop` it after, and start it again for the next.

    A thread sleeps `INTERVAL_S` at a time and notes how late it is woken. If an event loop is watched, each wake-up
    also rings in the loop, as a socket that has become readable does; the lag is then the time until the loop answers.
    """

    def __init__(self, *, shard: int = 0, arm: str | None = None) -> None:
        self._shard = shard
        self._arm = arm
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to probe. Raises RuntimeError if it has begun already."""
        if self._thread is not None:
            raise RuntimeError("this probe has been started already: stop it before the next cell")
        self._over = False
        self._started_ns, self._cpu_ns = now_ns(), cpu_ns()
        self._lags, self._loop_lags = array("q"), array("q")
        self._rung_ns: int | None = None
        self._thread = threading.Thread(target=self._run, name="fastlane-probe", daemon=True)
        self._thread.start()

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def stop(self, cell: str) -> Vitals:
        """End probing, and return how the process fared since `start`. Raises RuntimeError if it was not started."""
        if self._thread is None:
            raise RuntimeError("this probe has not been started: start it before the cell")
        self._over = True
        self._thread.join()
        self._thread = None
        ended_ns, cpu_spent_ns = now_ns(), cpu_ns() - self._cpu_ns
        if self._rung_ns is not None:
            # A loop that has not answered by now is late by at least this.
            self._loop_lags.append(ended_ns - self._rung_ns)
            self._rung_ns = None
        lags, interval_s = (self._loop_lags, LOOP_INTERVAL_S) if self._loop_lags else (self._lags, INTERVAL_S)
        waits = sorted(waiting_times(lags, round(interval_s * 1e9)))
        p50_ms, p99_ms = (waits[int(share * len(waits))] / 1e6 if waits else None for share in (0.5, 0.99))
        return Vitals(
            cell=cell,
            shard=self._shard,
            arm=self._arm,
            duration_s=(ended_ns - self._started_ns) / 1e9,
            cpu_s=cpu_spent_ns / 1e9,
            loop_lag_p50_ms=p50_ms,
            loop_lag_p99_ms=p99_ms,
        )

    def _run(self) -> None:
        while not self._over:
            interval_s = INTERVAL_S if self._loop is None else LOOP_INTERVAL_S
            due_ns = now_ns() + round(interval_s * 1e9)
            sleep(interval_s)
            self._lags.append(now_ns() - due_ns)
            if self._loop is not None and self._rung_ns is None:
                self._rung_ns = due_ns
                try:
                    self._loop.call_soon_threadsafe(self._answered)
                except RuntimeError:  # The loop was closed.
                    self._loop = self._rung_ns = None

    def _answered(self) -> None:
        if self._rung_ns is not None:
            self._loop_lags.append(now_ns() - self._rung_ns)
            self._rung_ns = None


def waiting_times(lags: Iterable[int], interval_ns: int) -> list[int]:
    """Return the lags with those that a late probe could not take: a wake-up 20 ms late has missed three others.

    A quantile of them is of what something that comes at any moment has to wait (Gil Tene's correction).
    """
    waited = []
    for lag in lags:
        waited.append(lag)
        waited += range(lag - interval_ns, 0, -interval_ns)
    return waited
