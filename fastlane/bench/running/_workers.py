"""A process for each arm, so that no arm lends another its connections, its imports or its interpreter's lock."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from .._arms import Arm
from ._messages import RunFailedError
from ._worker import serve

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
        with contextlib.suppress(OSError):
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
