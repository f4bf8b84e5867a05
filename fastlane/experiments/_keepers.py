"""Where the state of an experiment is kept: in a file of SQLite's, or in this process."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from .._clock import wall_ns
from ..errors import ConfigurationError

Change = Callable[[bytes | None], bytes | None]
"""Makes what is to be kept out of what is; None leaves it as it is."""

# Only the experiment's own thread waits so long, and whoever makes an experiment or asks for a report.
TIMEOUT_S = 1.0

_MISSPELT = re.compile(r"(rediss?|unix|https?):(?![^/@]*$)", re.IGNORECASE)


class Kept(NamedTuple):
    """What is kept, and the number of its version."""

    version: int
    document: bytes | None


class Keeper(Protocol):
    """Keeps one document. Whatever goes wrong is an exception. Used by one thread at a time."""

    def read(self, known: int | None) -> Kept | None:
        """What is kept; None where its version is the one that is known."""
        ...

    def change(self, change: Change) -> Kept:
        """Change it so that nobody else does in the meantime."""
        ...

    def begin_in_child(self) -> None:
        """In a child process: nothing of the parent's connection is used."""
        ...

    def close(self) -> None:
        """Let go of a connection."""
        ...


def next_version(kept: Kept) -> int:
    """The version after one: no other document of that name, such as one that was deleted, had it before."""
    return kept.version + 1 if kept.version else wall_ns()


class MemoryKeeper:
    """Keeps it in this process, for as long as that runs."""

    def __init__(self) -> None:
        self._kept = Kept(0, None)
        self._lock = threading.Lock()

    def read(self, known: int | None) -> Kept | None:
        """See `Keeper`."""
        return None if self._kept.version == known else self._kept

    def change(self, change: Change) -> Kept:
        """See `Keeper`."""
        with self._lock:
            document = change(self._kept.document)
            if document is not None:
                self._kept = Kept(self._kept.version + 1, document)
            return self._kept

    def begin_in_child(self) -> None:
        """See `Keeper`."""
        self._lock = threading.Lock()

    def close(self) -> None:
        """See `Keeper`."""


class SQLiteKeeper:
    """Keeps it in a file, which several processes of one machine share.

    Each exchange opens the file, and closes it: no connection outlives a fork, after which SQLite's must not be used
    (https://www.sqlite.org/howtocorrupt.html, 2.6). In WAL mode with `synchronous=NORMAL`, a process that is killed
    leaves what it has committed, and a machine that loses its power perhaps not the last commits; the file stays whole
    either way (https://www.sqlite.org/wal.html).
    """

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._name = name

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self._path, timeout=TIMEOUT_S, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode=WAL").fetchone()
            connection.execute("PRAGMA synchronous=NORMAL")
            yield connection
        finally:
            connection.close()

    def read(self, known: int | None) -> Kept | None:
        """See `Keeper`."""
        if not self._path.exists():
            return Kept(0, None) if known != 0 else None
        with self._opened() as connection:
            return self._read(connection, known)

    def _read(self, connection: sqlite3.Connection, known: int | None) -> Kept | None:
        found = connection.execute(
            "SELECT 1 FROM sqlite_master WHERE type='table' AND name='fastlane_experiments'"
        ).fetchone()
        row = None
        if found is not None:
            query = "SELECT version, CASE WHEN version = ? THEN NULL ELSE document END FROM fastlane_experiments"
            row = connection.execute(f"{query} WHERE name = ?", (known, self._name)).fetchone()
        if row is None:
            return Kept(0, None) if known != 0 else None
        return None if row[0] == known else Kept(int(row[0]), bytes(row[1]))

    def change(self, change: Change) -> Kept:
        """See `Keeper`."""
        with self._opened() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS fastlane_experiments "
                    "(name TEXT PRIMARY KEY, version INTEGER NOT NULL, document BLOB NOT NULL) WITHOUT ROWID"
                )
                kept = self._read(connection, None) or Kept(0, None)
                document = change(kept.document)
                if document is not None:
                    kept = Kept(next_version(kept), document)
                    connection.execute(
                        "INSERT INTO fastlane_experiments VALUES (?, ?, ?) ON CONFLICT (name) "
                        "DO UPDATE SET version = excluded.version, document = excluded.document",
                        (self._name, kept.version, document),
                    )
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            return kept

    def begin_in_child(self) -> None:
        """See `Keeper`."""

    def close(self) -> None:
        """See `Keeper`."""


def keeper_of(store: object, name: str) -> Keeper:
    """What keeps an experiment of that name. Raises ConfigurationError, and MissingExtraError for Redis without it."""
    expected = (
        'Experiment(store=...) takes a file such as "experiment.sqlite", the address of a Redis server such as '
        '"redis://localhost:6379/0", or ":memory:" to keep it in this process alone'
    )
    if not isinstance(store, str | Path) or not str(store).strip():
        raise ConfigurationError(f"{expected}, got {'nothing' if store is None else f'a {type(store).__name__}'}")
    address = str(store)
    if address == ":memory:":
        return MemoryKeeper()
    if isinstance(store, str) and "://" in address:
        from ..knowledge.redis import SCHEMES, client_of

        if address.partition("://")[0] not in SCHEMES:
            # Not quoted: there may be a password in it.
            raise ConfigurationError(f"{expected}, got an address of something else")
        from ._redis_keeper import RedisKeeper

        return RedisKeeper(client_of(address)[0], name)
    if _MISSPELT.match(address):
        # Such as redis:/user:password@host, or an address that became a Path.
        raise ConfigurationError(f"{expected}, got an address without its ://")
    path = Path(address).expanduser().absolute()
    if path.is_dir():
        raise ConfigurationError(f"{expected}, got a directory: {path}")
    if not path.parent.is_dir():
        raise ConfigurationError(f"{expected}, got {address!r}, whose directory does not exist: make it first")
    return SQLiteKeeper(path, name)
