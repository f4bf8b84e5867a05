"""Where the state of an experiment is kept: in this process, in a SQLite file, or at a Redis server."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import TypeAdapter

from ..errors import ConfigurationError
from .comparison import ArmSums

# Only the timer's threads wait for a store, and whoever makes an experiment or asks for a report.
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
                known = None if row is None else _STATE.validate_json(row[0])
                state = change(known)
                if state is not known:
                    values = self._key, _STATE.dump_json(state).decode()
                    connection.execute("REPLACE INTO fastlane_experiments VALUES (?, ?)", values)
        return state


class RedisStore:
    """Keeps the state at a Redis server that machines share. It expires 90 days after the last change."""

    def __init__(self, connect: Callable[[], Any], key: str) -> None:
        self._connect, self._key = connect, f"fastlane:experiment:{key}"
        self._client: Any = None

    def change(self, change: Change) -> ExperimentState:
        """See `MemoryStore`."""
        self._client = self._client or self._connect()
        return self._client.transaction(partial(self._replace, change), self._key, value_from_callable=True)  # type: ignore[no-any-return]

    def _replace(self, change: Change, pipeline: Any) -> ExperimentState:
        """Run once for each try: the library tries again where another process has changed the key meanwhile."""
        written = pipeline.get(self._key)
        known = None if written is None else _STATE.validate_json(written)
        state = change(known)
        if state is not known:
            pipeline.multi()
            pipeline.set(self._key, _STATE.dump_json(state), ex=_EXPIRY_S)
        return state


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
