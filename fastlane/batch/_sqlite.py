"""A queue in one SQLite file: a writer at a time, readers beside it, and every commit on the disk before it returns."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import uniform
from secrets import token_hex
from threading import Event
from typing import Any

from .._clock import now_ns, wall_ns
from ..errors import ConfigurationError
from ._database import AgainError, Database, Row, T, Transaction
from ._errors import QueueNotFoundError, StorageError
from ._schema import VERSION, statements

# What marks a file of ours in its header: "flqu".
_APPLICATION = 0x666C7175
# How long others may write before a writer gives up. They write for a fraction of a second each.
_BUSY_S = 60.0
# Between two tries: short, because another process that writes in a loop leaves no more than moments in between.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0005, 0.005
# What is in the log of writes is moved into the file every so many pages of 4 KiB, by whoever commits then.
_CHECKPOINT_PAGES = 4_000

# In a child of a fork: connections that a thread of the parent used, which are never closed, and their files.
_LEFT_BEHIND: list[sqlite3.Connection] = []
_CARRIED: set[tuple[int, int] | None] = set()

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_NO_DATABASE = "SQLITE_NOTADB"


class _Transaction:
    """One transaction on a connection that is in it."""

    again = False
    for_update = ""
    skip_locked = ""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def now(self) -> float:
        return wall_ns() / 1e9

    def all(self, statement: str, *parameters: Any) -> list[Row]:
        return self._connection.execute(statement, parameters).fetchall()

    def do(self, statement: str, *parameters: Any) -> int:
        return self._connection.execute(statement, parameters).rowcount

    def many(self, statement: str, rows: Iterable[Row]) -> None:
        self._connection.executemany(statement, rows)

    def among(self, column: str, values: Sequence[Any]) -> tuple[str, Any]:
        condition = f"{column} IN (SELECT value FROM json_each(?))"  # noqa: S608 - a column of ours
        return condition, json.dumps(list(values))


class SqliteDatabase(Database):
    """A file that is opened, and made where it is not there yet; without `create`, QueueNotFoundError is raised there.

    Raises ConfigurationError for a file that is something else, or of a newer version, and StorageError for one that
    cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True) -> None:
        self._create = create
        self._path = Path(path).absolute()
        self.name = str(path)
        self._connection: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None
        super().__init__()
        self.run(lambda _: None, writes=False)

    def run(self, work: Callable[[Transaction], T], *, writes: bool = True) -> T:
        try:
            return _patiently(lambda: self._once(work, writes=writes))
        except sqlite3.Error as error:
            raise self._said(error) from error

    def _once(self, work: Callable[[Transaction], T], *, writes: bool) -> T:
        # The lock is not held between two tries: a fork waits for it.
        with self._lock:
            if self._closed:
                raise StorageError(f"the queue {self.name} is closed")
            connection = self._connection = self._connection or self._connect()
            return self._done(connection, work, writes=writes)

    def _done(self, connection: sqlite3.Connection, work: Callable[[Transaction], T], *, writes: bool) -> T:
        # A writer says so at once: one that has read before it writes could find that what it read is no more so.
        connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        try:
            if writes:
                self._refuse_to_write_into_nothing()
            result = work(_Transaction(connection))
            connection.execute("COMMIT")
        except BaseException:
            # What fails may have been rolled back by the database itself.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result

    def _connect(self) -> sqlite3.Connection:
        if not self._create and not self._path.exists():
            raise QueueNotFoundError.named(repr(self.name))
        try:
            _make_file(self._path)
        except OSError as error:
            raise StorageError(
                f"the queue {self.name} cannot be opened for writing: {error.strerror}; it takes a file in a folder, "
                f"both of which may be written"
            ) from error
        self._opened = _identity(self._path)
        if self._opened in _CARRIED:
            raise StorageError(
                f"the queue {self.name} cannot be used in this process, which was forked while another thread used it: "
                f"fork before the queue is used, or begin the process with spawn"
            )
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=0.0)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        def only(statement: str) -> Any:
            return connection.execute(statement).fetchone()[0]

        self._refuse_others(connection)
        # In a log beside the file, so that who reads does not wait for who writes; and that log is flushed to the disk
        # with every commit. With NORMAL, which is often advised for this mode, a power cut takes back the latest ones:
        # https://sqlite.org/pragma.html#pragma_synchronous (2026-11-22).
        only("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        # Where flushing alone does not reach the disk: https://sqlite.org/pragma.html#pragma_fullfsync (2026-11-22).
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        if only("PRAGMA user_version") < VERSION:
            _make(connection)

    def _refuse_others(self, connection: sqlite3.Connection) -> None:
        # Asked at one moment: another process may be making the tables just now.
        connection.execute("BEGIN")
        try:
            ((tables,),) = connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
            ((application,),) = connection.execute("PRAGMA application_id").fetchall()
            ((version,),) = connection.execute("PRAGMA user_version").fetchall()
        finally:
            connection.execute("ROLLBACK")
        if not (self._create or tables or application or version):
            raise QueueNotFoundError.named(repr(self.name))
        if application != _APPLICATION and (tables or application or version):
            raise ConfigurationError(
                f"a queue is kept in a file of its own, got {self.name!r}, a database of something else: give another "
                f"path"
            )
        if version > VERSION:
            raise ConfigurationError(
                f"the queue {self.name!r} was made by a newer version of fastlane (its tables are of version "
                f"{version}, this one knows {VERSION}): use that version"
            )

    def _refuse_to_write_into_nothing(self) -> None:
        # A file that is deleted while it is open can be written still, and nobody ever reads it again.
        if _identity(self._path) != self._opened:
            raise StorageError(
                f"the queue {self.name} was deleted or replaced while it was open, and nothing was written: close it, "
                f"and open what is there now"
            )

    def _said(self, error: sqlite3.Error) -> Exception:
        """The error that says of the queue what SQLite has said of its file."""
        name = getattr(error, "sqlite_errorname", "")
        if name == _NO_DATABASE:
            return ConfigurationError(f"a queue is a file of its own kind, got {self.name!r}: give another path")
        reasons = {
            "SQLITE_FULL": "the disk is full: what was not written has to be given again once there is room",
            "SQLITE_READONLY": "it may not be written",
            "SQLITE_CANTOPEN": "it, or what SQLite keeps beside it (-wal, -shm), cannot be opened for writing",
            "SQLITE_BUSY": f"others have been writing for {_BUSY_S:.0f} s",
            "SQLITE_CORRUPT": "the file is damaged",
            "SQLITE_IOERR": "it cannot be read or written: the disk may be full, broken or gone",
        }
        reason = next((text for word, text in reasons.items() if name.startswith(word)), "SQLite refused")
        return StorageError(f"the queue {self.name} did not do it: {reason} ({name or type(error).__name__}: {error})")

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _before_fork(self) -> None:
        # Neither a connection nor what the library knows of a file's locks may be carried into a child:
        # https://sqlite.org/howtocorrupt.html#_carrying_an_open_database_file_across_a_fork_ (2026-11-22).
        # Closed before, it is carried nowhere, and each of the two opens it again when it is used next.
        self._let_go()

    def _left_behind(self, *, in_use: bool) -> None:
        connection, self._connection = self._connection, None
        if in_use:
            _CARRIED.add(self._opened)
            if connection is not None:
                _LEFT_BEHIND.append(connection)


def _make_file(path: Path) -> None:
    """Make an empty file, its owner's alone, for prompts and answers are to be in it, unless it is there already."""
    # Without opening it, wherever that can be done: who closes a file takes away all locks that its process has on it,
    # those of SQLite too: https://sqlite.org/howtocorrupt.html, 2.2 (2026-11-22).
    try:
        os.mknod(path, 0o600)
    except FileExistsError:
        pass
    except (AttributeError, PermissionError):
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file that is at the moment."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _make(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have been first.
        if connection.execute("PRAGMA user_version").fetchone()[0] < VERSION:
            _make_tables(connection)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _make_tables(connection: sqlite3.Connection) -> None:
    types = {"number": "INTEGER PRIMARY KEY AUTOINCREMENT", "whole": "INTEGER", "real": "REAL", "bytes": "BLOB"}
    for statement in statements(**types):
        connection.execute(statement)
    connection.execute("INSERT INTO queue VALUES (1, ?, ?, ?, 0)", (VERSION, token_hex(6), wall_ns() / 1e9))
    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _patiently(work: Callable[[], T]) -> T:
    """Do it once nobody else is in the way. SQLite's own waiting leaves out some of the cases."""
    until = now_ns() + int(_BUSY_S * 1e9)
    pause = _FIRST_PAUSE_S
    while True:
        try:
            return work()
        except AgainError:
            continue
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _BUSY or now_ns() > until:
                raise
        Event().wait(pause * uniform(0.5, 1.0))  # not in step with whoever is in the way
        pause = min(_LONGEST_PAUSE_S, pause * 1.5)
