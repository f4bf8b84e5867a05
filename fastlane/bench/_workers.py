"""A process for each arm, so that no arm lends another its connections, its imports or its interpreter's lock."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import openai

from .._clock import cpu_ns
from ._arms import Arm
from ._recorder import Place, Sample, record
from .running import RunFailedError

# Not fork: a child must not inherit what the parent has imported, opened or locked.
_PROCESSES = multiprocessing.get_context("spawn")
_STOP_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class _Job:
    place: Place
    body: Mapping[str, Any]
    headers: Mapping[str, str]


class Worker:
    """One arm's client in its own process. Each lane has a pipe to it, and may use it while other lanes do."""

    def __init__(self, arm: Arm, base_url: str, api_key: str, lanes: int) -> None:
        self._arm = arm.name
        # One for each lane, and the last for questions about the process itself.
        pipes = [_PROCESSES.Pipe() for _ in range(lanes + 1)]
        self._pipes = [ours for ours, _ in pipes]
        theirs = [theirs for _, theirs in pipes]
        self._process = _PROCESSES.Process(target=_serve, args=(arm, base_url, api_key, theirs), daemon=True)
        with _deaf_to_ctrl_c():
            self._process.start()
        # A pipe reports the end of the worker only once nobody else holds the worker's side of it.
        for pipe in theirs:
            pipe.close()

    def send(self, lane: int, place: Place, body: Mapping[str, Any], headers: Mapping[str, str]) -> Sample:
        """Have one request sent, and wait for its record. Raises RunFailedError where the process has ended."""
        sample: Sample = self._ask(lane, _Job(place, body, headers))
        return sample

    def cpu_ns(self) -> int:
        """Return the CPU nanoseconds that the process has used so far."""
        used: int = self._ask(-1, None)
        return used

    def abandon(self) -> None:
        """Have the process end now, whatever it does."""
        self._process.terminate()

    def close(self) -> None:
        """End the process: `abandon` first, or wait a while for requests that are under way."""
        for pipe in self._pipes:
            pipe.close()
        self._process.join(_STOP_TIMEOUT_S)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join()

    def _ask(self, lane: int, question: _Job | None) -> Any:
        try:
            self._pipes[lane].send(question)
            return self._pipes[lane].recv()
        except (EOFError, OSError) as error:
            raise RunFailedError(f"the process of arm {self._arm!r} ended early: its stderr says why") from error


@contextmanager
def workers(arms: tuple[Arm, ...], *, base_url: str, api_key: str, lanes: int) -> Iterator[dict[str, Worker]]:
    """Start a worker for each arm; their end is the end of the `with` block, at once where it is left by an error."""
    started: dict[str, Worker] = {}
    with ExitStack() as stack:
        try:
            for arm in arms:
                started[arm.name] = Worker(arm, base_url, api_key, lanes)
                stack.callback(started[arm.name].close)
            yield started
        except BaseException:
            for worker in started.values():
                worker.abandon()
            raise


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    # A process that ignores Ctrl-C starts others that do: these would greet it with a traceback each while they import.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _serve(arm: Arm, base_url: str, api_key: str, pipes: list[Connection]) -> None:
    # Ctrl-C reaches the whole process group; the parent decides when a worker ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with arm.make_client(base_url, api_key) as client:
        threads = [threading.Thread(target=_answer, args=(client, pipe)) for pipe in pipes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _answer(client: openai.OpenAI, pipe: Connection) -> None:
    # However this thread ends, the pipe's end tells the lane, which would wait for ever otherwise.
    with pipe:
        while True:
            try:
                job: _Job | None = pipe.recv()
            except (EOFError, OSError):
                return
            answer = cpu_ns() if job is None else record(client, job.place, job.body, job.headers)
            try:
                pipe.send(answer)
            except OSError:
                return
