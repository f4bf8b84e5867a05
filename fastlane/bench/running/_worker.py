"""An arm's own process: it makes the client, sends what it is told to, and records it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import heapq
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from multiprocessing.connection import Connection
from typing import Any, Final

from ..._clock import now_ns
from .._arms import Arm, is_asynchronous, made
from ._messages import BeginCell, EndCell, Ready, RunFailedError, ScheduledRequest, Settle
from ._probes import Probe
from ._reading import told
from ._recorder import read, read_async
from ._telling import SampleSender

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
    with contextlib.suppress(Exception):
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


@contextlib.contextmanager
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
