"""Count the calls of an experiment in the background, share the sums through a store, and end arms."""

from __future__ import annotations

import atexit
import logging
import sqlite3
import weakref
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import uniform
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import TypeAdapter

from .._clock import wall_ns
from .._fork import new_library_lock, starts_over
from ..errors import ConfigurationError
from ..knowledge.timer import call_later
from ..records.record import ExperimentRecord
from .comparison import ALPHA, ArmSums, Guard, metric_values

if TYPE_CHECKING:
    from ..engine.call_state import CallState

log = logging.getLogger("fastlane")

# Where the state is kept: in this process, in a SQLite file, or at a Redis server

# Only the timer's threads wait for a store, and code that makes an experiment or a report.
_TIMEOUT_S = 1.0
_EXPIRY_S = 90 * 86_400
_TABLE = "CREATE TABLE IF NOT EXISTS fastlane_experiments (key TEXT PRIMARY KEY, state TEXT NOT NULL) WITHOUT ROWID"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedArm:
    """An arm that gets no calls any more."""

    experiment: str
    arm: str
    reason: str
    """In words. Holds nothing of any call."""
    by: str
    """"fuse", "application", or the guard's metric."""
    wall_ns: int
    calls: int
    """Calls of the arm until then."""


@dataclass(slots=True)
class ExperimentState:
    """What the processes of an experiment share."""

    arms: dict[str, ArmSums] = field(default_factory=dict)
    ended: dict[str, EndedArm] = field(default_factory=dict)


_STATE = TypeAdapter(ExperimentState)
Change: TypeAlias = Callable[[ExperimentState | None], ExperimentState]


class MemoryStore:
    """Keeps the state in this process.

    All stores have one method. Whatever goes wrong there is raised.
    """

    def __init__(self) -> None:
        self._state: ExperimentState | None = None

    def change(self, change: Change) -> ExperimentState:
        """Replace the state by what `change` makes of it, in one step for all processes, and return that.

        Nothing is written where `change` returns its argument.
        """
        self._state = change(self._state)
        return self._state


def _changed(change: Change, written: Any) -> tuple[ExperimentState, str | None]:
    """Change a state that was written as JSON. Return it, and what to write; None if it is as it was."""
    known = None if written is None else _STATE.validate_json(written)
    state = change(known)
    return state, None if state is known else _STATE.dump_json(state).decode()


class SQLiteStore:
    """Keeps the state in a file that the processes of one machine share.

    Each change opens the file and closes it: SQLite's connections must not be used after a fork
    (https://www.sqlite.org/howtocorrupt.html, 2.6).
    """

    def __init__(self, path: Path, key: str) -> None:
        self._path, self._key = path, key

    def change(self, change: Change) -> ExperimentState:
        """See `MemoryStore`."""
        with closing(sqlite3.connect(self._path, timeout=_TIMEOUT_S, isolation_level=None)) as connection:
            # With WAL and NORMAL, a power cut may take back the last commits, and leaves the file intact
            # (https://www.sqlite.org/wal.html).
            connection.execute("PRAGMA journal_mode=WAL").fetchone()
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                connection.execute(_TABLE)
                query = "SELECT state FROM fastlane_experiments WHERE key = ?"
                row = connection.execute(query, (self._key,)).fetchone()
                state, text = _changed(change, row and row[0])
                if text is not None:
                    connection.execute("REPLACE INTO fastlane_experiments VALUES (?, ?)", (self._key, text))
        return state


class RedisStore:
    """Keeps the state at a Redis server that machines share. It expires 90 days after the last change."""

    def __init__(self, connect: Callable[[], Any], key: str) -> None:
        self._connect, self._key = connect, f"fastlane:experiment:{key}"
        self._client: Any = None

    def change(self, change: Change) -> ExperimentState:
        """See `MemoryStore`."""

        # The library runs it again where another process has changed the key meanwhile.
        def replace(pipeline: Any) -> ExperimentState:
            state, text = _changed(change, pipeline.get(self._key))
            if text is not None:
                pipeline.multi()
                pipeline.set(self._key, text, ex=_EXPIRY_S)
            return state

        self._client = self._client or self._connect()
        return self._client.transaction(replace, self._key, value_from_callable=True)  # type: ignore[no-any-return]


Store: TypeAlias = MemoryStore | SQLiteStore | RedisStore


def store_at(address: object, key: str) -> Store:
    """Return the store at an address. Raises ConfigurationError, and MissingExtraError for Redis without its extra.

    Errors do not quote the address: there may be a password in it.
    """
    takes = (
        'Experiment(store=...) takes a file such as "experiment.sqlite", the address of a Redis server such as '
        '"redis://localhost:6379/0", or ":memory:" to keep it in this process alone'
    )
    if not isinstance(address, str | Path) or not str(address).strip():
        raise ConfigurationError(f"{takes}, got {'nothing' if address is None else f'a {type(address).__name__}'}")
    text = str(address)
    if text == ":memory:":
        return MemoryStore()
    if isinstance(address, str) and "://" in text:
        from ..knowledge.redis import SCHEMES, client_of

        if text.partition("://")[0] not in SCHEMES:
            raise ConfigurationError(f"{takes}, got an address of something else")
        return RedisStore(client_of(text)[0], key)
    path = Path(text).expanduser().absolute()
    if path.is_dir() or not path.parent.is_dir():
        raise ConfigurationError(f"{takes}, got a directory, or a file in a directory that does not exist")
    return SQLiteStore(path, key)


# The account of this process

_EVERY_S, _LONGEST_PAUSE_S = 1.0, 30.0
_LAST_EXCHANGE_S = 1.0
# Calls and scores that wait to be counted. Beyond that, the oldest is not counted.
_MOST_WAITING = 50_000


@dataclass(frozen=True, slots=True)
class ArmAssignment:
    """The arm of one call."""

    record: ExperimentRecord
    ledger: ExperimentLedger

    def over(self, call: CallState) -> None:
        """Count a call that has ended. Neither waits nor raises: a finalizer may run this."""
        if self.record.why is None:
            self.ledger.count(call, self.record)


class ExperimentLedger:
    """The account of one experiment in this process."""

    def __init__(
        self, name: str, arms: Sequence[str], store: Store, *, guards: Sequence[Guard], prices: dict[str, Any]
    ) -> None:
        self.name = name
        self._arms, self._reference = arms, arms[0]
        self._store, self._guards, self._prices = store, tuple(guards), prices
        self.ended: frozenset[str] | None = None
        """Arms that have ended; None until the store was read."""
        self.problem: str | None = None
        """What is wrong with the store, or None."""
        self.is_counting = True
        self._state = ExperimentState()
        """As it was last read."""
        self._waiting: deque[tuple[CallState | float, ExperimentRecord]] = deque(maxlen=_MOST_WAITING)
        """Calls and scores that are to be counted."""
        self._pending: dict[str, ArmSums] = {}
        """What was counted and is not in the store yet."""
        self._decided: dict[str, EndedArm] = {}
        """Arms that this process has ended, and that are not in the store yet."""
        self._announced: Collection[str] = ()
        self._pause_s = _EVERY_S
        self._is_planned = False
        self._exchanging = new_library_lock()
        starts_over(self)
        _all.add(self)

    # On the threads of calls.

    def count(self, what: CallState | float, record: ExperimentRecord) -> bool:
        """Count a call that has ended, or a score, soon. Return whether it counts. Neither waits nor raises."""
        if not self.is_counting or record.arm in (self.ended or ()):
            return False
        self._waiting.append((what, record))
        return True

    def start(self) -> None:
        """Exchange in about a second. Does nothing where that is planned. Does not raise."""
        if not self._is_planned and self.is_counting:
            self._is_planned = True
            with suppress(RuntimeError):  # no thread can be started any more: `close` exchanges at exit
                # Not all processes at the same time.
                call_later(self._pause_s * uniform(0.8, 1.2), self._work, in_thread=True)

    def _work(self) -> None:
        self._pause_s = _EVERY_S if self.exchange() else min(_LONGEST_PAUSE_S, 2 * self._pause_s)
        self._is_planned = False

    # With the store.

    def exchange(self, *, timeout_s: float = -1) -> bool:
        """Count what has ended, add it to the store, and read what other processes have added.

        Returns whether the store works. Where it does not, guards judge by what this process knows.
        """
        if not self._exchanging.acquire(timeout=timeout_s):
            return False
        try:
            self._count_waiting()
            try:
                self._state = self._store.change(self._merged)
            except Exception as error:  # noqa: BLE001 - calls go on without a store
                self._decided = self._merged(self._state).ended
                self._report_problem(error)
            else:
                self._pending, self._decided = {}, {}
                self.ended = frozenset(self._state.ended)
                if self.problem is not None:
                    self.problem = None
                    log.info("the store of the experiment %r is back", self.name)
            if self.ended is not None:
                self.ended |= self._decided.keys()
            ended = {**self._state.ended, **self._decided}
            new = [one for arm, one in ended.items() if arm not in self._announced]
            self._announced = ended.keys()
        finally:
            self._exchanging.release()
        for one in new:
            text = "the arm %r of the experiment %r has ended after %d calls: %s. Its units go to the reference arm"
            log.warning(text, one.arm, self.name, one.calls, one.reason)
        return self.problem is None

    def end(self, arm: str, reason: str) -> bool:
        """End an arm, by the application. Return whether the other processes will know of it by now."""
        with self._exchanging:
            ended = self._ended_arm(self._merged(self._state), arm, by="application", reason=reason)
            self._decided.setdefault(arm, ended)
        return self.exchange()

    def state(self) -> ExperimentState:
        """Return the shared state with what this process has counted since."""
        with self._exchanging:
            return self._merged(self._state)

    def _ended_arm(self, state: ExperimentState, arm: str, *, by: str, reason: str) -> EndedArm:
        calls = state.arms.get(arm, ArmSums()).calls
        return EndedArm(experiment=self.name, arm=arm, reason=reason, by=by, wall_ns=wall_ns(), calls=calls)

    def _merged(self, state: ExperimentState | None) -> ExperimentState:
        """Return a state with what this process has counted and decided: `state` itself where that is nothing."""
        before = state or ExperimentState()
        arms = dict(before.arms)
        for arm, sums in self._pending.items():
            if arm not in before.ended:
                arms[arm] = arms.get(arm, ArmSums()).plus(sums)
        merged = ExperimentState(arms, {**self._decided, **before.ended})
        reference, others = merged.arms.get(self._reference, ArmSums()), self._arms[1:]
        alpha = ALPHA / max(1, len(self._guards) * len(others))
        for arm in others:
            for guard in self._guards if arm in merged.arms and arm not in merged.ended else ():
                if (reason := guard.reason_to_end(merged.arms[arm], reference, alpha)) is not None:
                    merged.ended[arm] = self._ended_arm(merged, arm, by=guard.metric, reason=reason)
                    break
        return merged if state is None or merged != state else state

    def _count_waiting(self) -> None:
        while self._waiting:
            call, record = self._waiting.popleft()
            sums = self._pending.setdefault(record.arm, ArmSums())
            try:
                if isinstance(call, float):
                    sums.add("quality", record.unit_id_hash, call)
                else:
                    sums.calls += 1
                    for metric, value in metric_values(call, self._prices).items():
                        sums.add(metric, record.unit_id_hash, value)
            except Exception as error:  # noqa: BLE001 - a call that cannot be read is not counted
                log.debug("a call of the experiment %r was not counted (%s)", self.name, type(error).__name__)

    def _report_problem(self, error: Exception) -> None:
        # The error's class alone: its message may quote an address.
        problem = f"its store is unreachable ({type(error).__name__})"
        if self.problem is None:
            where = "the reference arm" if self.ended is None else "their arms, by what this process knows"
            log.warning("the experiment %r: %s; calls go to %s, and it is tried again", self.name, problem, where)
        self.problem = problem

    # Forks and ends.

    def begin_in_child(self) -> None:
        """See `StartsOver`: what the parent has counted, the parent adds."""
        self._waiting.clear()
        self._pending, self._decided = {}, {}
        self._is_planned = False

    def close(self) -> None:
        """Count and share what is left, and stop counting."""
        if self.is_counting:
            self.is_counting = False
            self.exchange(timeout_s=_LAST_EXCHANGE_S)


_all: weakref.WeakSet[ExperimentLedger] = weakref.WeakSet()


@atexit.register
def _close_at_exit() -> None:
    for one in list(_all):
        one.close()
