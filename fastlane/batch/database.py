"""The tables of a queue, and transactions on them: a SQLite file, or a schema of a PostgreSQL server.

Bodies and answers are long, and have tables of their own. Times are epoch seconds.

A transaction that failed because of other writers or a broken connection is repeated for up to a minute. No lock is
held between two tries. A fork waits for the transactions on a file that are under way.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from random import uniform
from secrets import token_hex
from types import NoneType
from typing import Any, ClassVar, TypeVar, get_args, get_type_hints

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool
from sqlalchemy.schema import CreateSchema

from .._clock import now_ns, wall_ns
from .._fork import new_lock, starts_over
from ..errors import ConfigurationError, MissingExtraError
from .errors import QueueNotFoundError, StorageError
from .jobs import BatchRow, Job

T = TypeVar("T")

VERSION = 5
"""Of the tables. A queue of another version is refused."""

metadata = sa.MetaData()
# SQLite generates keys for INTEGER alone.
_WHOLE = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_TYPES: dict[Any, Any] = {int: _WHOLE, float: sa.Double, bool: sa.Boolean}


def _columns(of: type[Any], primary_key: str) -> list[sa.Column[Any]]:
    """Return a column for each field of a dataclass. Literals are texts."""
    hints = get_type_hints(of)
    columns = []
    for name in (one.name for one in fields(of)):
        kinds = [kind for kind in get_args(hints[name]) or (hints[name],) if kind is not NoneType]
        kind = _TYPES.get(kinds[0], sa.Text)
        is_optional = NoneType in get_args(hints[name])
        columns.append(sa.Column(name, kind, primary_key=name == primary_key, nullable=is_optional))
    return columns


def _number() -> sa.Column[int]:
    return sa.Column("number", _WHOLE, primary_key=True, autoincrement=False)


queue = sa.Table(
    "queue",
    metadata,
    sa.Column("version", _WHOLE, nullable=False),
    sa.Column("queue_id", sa.Text, nullable=False),
    # The sequence of the last job that was over.
    sa.Column("finished", _WHOLE, nullable=False),
)
jobs = sa.Table(
    "jobs",
    metadata,
    *_columns(Job, "number"),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("sequence", _WHOLE, unique=True),
    sa.UniqueConstraint("key"),
    sqlite_autoincrement=True,
)
bodies = sa.Table("bodies", metadata, _number(), sa.Column("body", sa.LargeBinary, nullable=False))
answers = sa.Table(
    "answers",
    metadata,
    _number(),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("request_id", sa.Text),
)
batches = sa.Table("batches", metadata, *_columns(BatchRow, "name"))
workers = sa.Table(
    "workers",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("lease_until", sa.Double, nullable=False),
)


def _index(name: str, *columns: sa.Column[Any], where: str) -> None:
    sa.Index(name, *columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))


_index("jobs_waiting", jobs.c.endpoint, jobs.c.model, jobs.c.number, where="state = 'waiting'")
_index("jobs_batch", jobs.c.batch, jobs.c.number, where="batch IS NOT NULL")
_index("batches_live", batches.c.lease_until, where="state NOT IN ('collected', 'abandoned')")
sa.Index("jobs_states", jobs.c.state, jobs.c.finished_at)

_PATIENCE_S = 60.0
# The longest time that a fork waits for the transactions of other threads.
_FORK_S = 10.0
_EXPECTED = "a path, such as 'jobs.sqlite', or the address of a PostgreSQL database: postgresql://user@host/database"


def now_of(t: sa.Connection) -> float:
    """Return the time by the clock of the database, in epoch seconds."""
    if t.dialect.name == "sqlite":
        return wall_ns() / 1e9
    # now() would be when the transaction began: it may have waited for a lock since.
    return float(t.execute(sa.select(sa.extract("epoch", sa.func.clock_timestamp()))).scalar_one())


def among(t: sa.Connection, column: Any, values: Sequence[Any]) -> sa.ColumnElement[bool]:
    """Return the condition that a column has one of any number of values, as one parameter."""
    if t.dialect.name == "sqlite":
        listed = sa.func.json_each(json.dumps(list(values))).table_valued("value")
        return column.in_(sa.select(listed.c.value))  # type: ignore[no-any-return]
    return column == sa.any_(sa.literal(list(values), sa.ARRAY(column.type)))  # type: ignore[no-any-return]


class Database:
    """One connection, which threads use in turns, and which a forked child makes anew."""

    name: str
    queue_id: str
    """A random text of each queue."""
    first_pause_s: ClassVar[float]
    longest_pause_s: ClassVar[float]

    def __init__(self, *, create: bool, patience_s: float) -> None:
        self._create = create
        self._turn, self._lock = new_lock(), new_lock()
        self._closed = False
        self._engine = self._new_engine()
        try:
            self.queue_id = self.run(self._found_or_made, writes=create, patience_s=patience_s)
        except BaseException:
            self.close()
            raise

    def run(self, work: Callable[[sa.Connection], T], *, writes: bool = True, patience_s: float = _PATIENCE_S) -> T:
        """Run `work` in one transaction. All of it is durable when this returns; if it raises, nothing was done."""
        until_ns = now_ns() + int(patience_s * 1e9)
        pause_s = self.first_pause_s
        while True:
            try:
                with self._connected(writes=writes) as connection:
                    return work(connection)
            except DBAPIError as error:
                message = " ".join(str(error.orig).split())
                failed = self._explained(error, message)
                if not self._may_pass(error):
                    until_ns = 0
            if now_ns() >= until_ns:
                # Outside of the handler: the database's error has the parameters, and so prompts.
                raise failed
            threading.Event().wait(pause_s * uniform(0.5, 1.0))
            pause_s = min(self.longest_pause_s, pause_s * 1.5)

    @contextmanager
    def _connected(self, *, writes: bool) -> Iterator[sa.Connection]:
        # With two locks, a thread that writes in a loop does not starve the others.
        with self._turn:
            self._lock.acquire()
        try:
            if self._closed:
                raise StorageError(f"the queue {self.name} is closed: open it again")
            with self._engine.connect().execution_options(writes=writes) as connection, connection.begin():
                if writes:
                    self._before_write(connection)
                yield connection
        finally:
            self._lock.release()

    def _found_or_made(self, t: sa.Connection) -> str:
        """Return the ID of the queue, whose tables are made where there are none."""
        tables = sa.inspect(t).get_table_names(schema=self._schema)
        if "queue" not in tables:
            if tables and self._schema is None:
                raise ConfigurationError(
                    f"a queue has its own file, got {self.name!r}, a database of something else: give another path"
                )
            if not self._create:
                raise _not_found(self.name)
            if self._schema is not None:
                t.execute(CreateSchema(self._schema, if_not_exists=True))
            metadata.create_all(t, checkfirst=False)
            t.execute(sa.insert(queue).values(version=VERSION, queue_id=token_hex(6), finished=0))
        version, queue_id = t.execute(sa.select(queue.c.version, queue.c.queue_id)).one()
        if version != VERSION:
            raise ConfigurationError(
                f"the queue {self.name!r} was made by another version of fastlane (its tables are of version "
                f"{version}, this one knows {VERSION}): finish its jobs with that version, or begin a new queue"
            )
        return str(queue_id)

    def close(self) -> None:
        """Close the connection. Idempotent."""
        with self._lock:
            self._closed = True
            self._engine.dispose()

    # What differs between the two databases.

    _schema: str | None = None

    def _new_engine(self) -> sa.Engine:
        raise NotImplementedError

    def _before_write(self, connection: sa.Connection) -> None:
        raise NotImplementedError

    def _may_pass(self, error: DBAPIError) -> bool:
        raise NotImplementedError

    def _explained(self, error: DBAPIError, message: str) -> Exception:
        """Return the error to raise, without values and passwords. `message`: that of the database's library."""
        raise NotImplementedError


def open_database(where: str | os.PathLike[str], *, schema: str, create: bool) -> Database:
    """Open the database of a queue. Raises ConfigurationError, QueueNotFoundError, MissingExtraError, StorageError."""
    if not isinstance(where, (str, os.PathLike)):
        raise ConfigurationError(f"a queue expects {_EXPECTED}, got {type(where).__name__}")
    path = os.fspath(where)
    scheme, mark, _ = path.partition("://")
    if mark and scheme in ("postgresql", "postgres"):
        return PostgresDatabase(path, schema=schema, create=create)
    # An address is not quoted: it may hold a password.
    if mark:
        raise ConfigurationError(f"a queue expects {_EXPECTED}, got an address of another kind")
    if "\0" in path:
        raise ConfigurationError(f"a queue expects {_EXPECTED}, got a path with a NUL in it")
    if not path or path == ":memory:" or path.startswith("file:"):
        raise ConfigurationError(f"a queue expects {_EXPECTED}, got {path!r}, which would not outlive the process")
    return SqliteDatabase(path, create=create)


def _not_found(name: str) -> QueueNotFoundError:
    return QueueNotFoundError(
        f"there is no queue {name!r}: check the name, or submit a job, which makes one (`fastlane batch submit`, or "
        f"`Queue.submit`)"
    )


class SqliteDatabase(Database):
    """A file: one writer at a time, readers beside it, and every commit on the disk before it returns."""

    # Another process that writes in a loop leaves only moments in between.
    first_pause_s, longest_pause_s = 0.0005, 0.005

    def __init__(self, path: str, *, create: bool) -> None:
        self._path = Path(path).absolute()
        self.name = path
        self._opened: tuple[int, int] | None = None
        super().__init__(create=create, patience_s=_PATIENCE_S)

    def _new_engine(self) -> sa.Engine:
        engine = sa.create_engine(
            "sqlite://", creator=self._connect, poolclass=QueuePool, pool_size=1, max_overflow=0, hide_parameters=True
        )

        @sa.event.listens_for(engine, "begin")
        def begin(connection: sa.Connection) -> None:
            # A writer takes its lock at once: what it reads must still hold when it writes.
            writes = connection.get_execution_options().get("writes", True)
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

        return engine

    def _connect(self) -> sqlite3.Connection:
        if not self._create and not self._path.exists():
            raise _not_found(self.name)
        try:
            # Its owner's alone. An existing file is not opened here: closing it would end the locks of SQLite's own
            # connections (https://sqlite.org/howtocorrupt.html, 2.2).
            with suppress(FileExistsError):
                os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except OSError as error:
            raise StorageError(f"the queue {self.name} cannot be opened for writing: {error.strerror}") from error
        self._opened = self._identity()
        _open_files.add(self)
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=0.0)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            # With NORMAL, a power cut takes back the latest commits (https://sqlite.org/pragma.html).
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA fullfsync = ON")
            connection.execute("PRAGMA wal_autocheckpoint = 4000")
        except BaseException:
            connection.close()
            raise
        return connection

    def _identity(self) -> tuple[int, int] | None:
        with suppress(OSError):
            found = self._path.stat()
            return found.st_dev, found.st_ino
        return None

    def _before_write(self, connection: sa.Connection) -> None:
        if self._identity() != self._opened:
            raise StorageError(
                f"the queue {self.name} was deleted or replaced while it was open, and nothing was written: close it, "
                f"and open it again"
            )

    def _may_pass(self, error: DBAPIError) -> bool:
        return getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

    def _explained(self, error: DBAPIError, message: str) -> Exception:
        code = getattr(error.orig, "sqlite_errorname", "")
        if code == "SQLITE_NOTADB":
            return ConfigurationError(f"a queue is a SQLite file, got {self.name!r}, something else: give another path")
        return StorageError(
            f"the queue {self.name} failed: {message} ({code}). What was not written has to be repeated"
        )


class PostgresDatabase(Database):
    """A schema of a server, by whose clock all leases go. Broken connections are made anew."""

    first_pause_s, longest_pause_s = 0.05, 2.0

    def __init__(self, url: str, *, schema: str, create: bool) -> None:
        try:
            import psycopg
            from psycopg import conninfo
        except ImportError as error:
            raise MissingExtraError("batch", "psycopg") from error
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema):
            raise ConfigurationError(
                f"schema expects a name of small letters, digits and underscores, at most 63, got {schema!r}"
            )
        given = None
        with suppress(psycopg.Error):
            given = conninfo.conninfo_to_dict(url)
        if given is None:
            # Neither the address nor the library's message is shown: a password may be in both.
            raise ConfigurationError(
                "a queue expects the address of a PostgreSQL database, such as postgresql://user@host:5432/database, "
                "got one that cannot be read: special characters in a password are written as %XX"
            )
        self._psycopg: Any = psycopg
        self._given = {"connect_timeout": 10, "application_name": "fastlane batch", **given}
        self._schema = schema
        host, port, name = (given.get(part) for part in ("host", "port", "dbname"))
        self.name = f"postgresql://{host or ''}{f':{port}' if port else ''}/{name or ''} ({schema})"
        # An unreachable server is reported at once.
        super().__init__(create=create, patience_s=0.0)
        starts_over(self)

    def begin_in_child(self) -> None:
        """Leave the connection to the parent: closed here, the server would end it."""
        self._engine.dispose(close=False)

    def _new_engine(self) -> sa.Engine:
        return sa.create_engine(
            "postgresql+psycopg://",
            creator=self._connect,
            pool_size=1,
            max_overflow=0,
            hide_parameters=True,
            use_native_hstore=False,
            execution_options={"schema_translate_map": {None: self._schema}},
        )

    def _connect(self) -> Any:
        connection = self._psycopg.connect(**self._given)
        # A commit must not return before it is on a disk, whatever the server's default is.
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
        connection.commit()
        return connection

    def _before_write(self, connection: sa.Connection) -> None:
        # Writers take turns, as in SQLite: rows need no locks, and sequences become visible in their order.
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtext(f"fastlane.batch {self._schema}"))))

    def _may_pass(self, error: DBAPIError) -> bool:
        return error.connection_invalidated or isinstance(error.orig, self._psycopg.OperationalError)

    def _explained(self, error: DBAPIError, message: str) -> Exception:
        # A server's message about a statement may quote values; one about a connection does not.
        sqlstate = getattr(error.orig, "sqlstate", None)
        message = f"SQLSTATE {sqlstate}" if sqlstate else message
        if self._given.get("password"):
            message = message.replace(str(self._given["password"]), "***")
        return StorageError(f"the queue {self.name} failed: {type(error.orig).__name__}: {message}")


# A child must not carry an open file of SQLite's (https://sqlite.org/howtocorrupt.html, 2.6): before a fork, files are
# closed, and stay so until it has happened.
_open_files: weakref.WeakSet[SqliteDatabase] = weakref.WeakSet()
_closed_files: list[SqliteDatabase] = []


def _before_fork() -> None:
    for database in list(_open_files):
        if database._lock.acquire(timeout=_FORK_S):
            _closed_files.append(database)
            database._engine.dispose()


def _after_in_parent() -> None:
    while _closed_files:
        _closed_files.pop()._lock.release()


def _after_in_child() -> None:
    for database in _open_files.difference(_closed_files):
        database._closed = True
    _closed_files.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
