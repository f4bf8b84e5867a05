"""A queue on a PostgreSQL server, for several machines: its clock is everybody's, and broken connections are remade."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from ..errors import ConfigurationError, MissingExtraError
from ._database import AgainError, Database, Row, T, Transaction
from ._errors import QueueNotFoundError, StorageError
from ._schema import VERSION, statements

if TYPE_CHECKING:
    import psycopg

# A server that restarts is back sooner; whoever waits longer would rather know.
_PATIENCE_S = 60.0
_CONNECT_S = 10
_LONGEST_PAUSE_S = 2.0
# What a child of a fork has is its parent's: never closed, which would tell the server that the parent leaves.
_LEFT_BEHIND: list[Any] = []
# Serialisation and deadlock; the server shuts down, has crashed or is starting; no connection is free.
# https://www.postgresql.org/docs/current/errcodes-appendix.html (2026-11-22)
_PASSES = frozenset({"40001", "40P01", "57P01", "57P02", "57P03", "53300", "08000", "08003", "08006", "25P03", "57P05"})
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")


class _Transaction:
    """One transaction on a connection that is in it."""

    for_update = " FOR UPDATE"
    skip_locked = " FOR UPDATE SKIP LOCKED"

    def __init__(self, cursor: psycopg.Cursor[Row], *, again: bool) -> None:
        self._cursor = cursor
        self.again = again

    def now(self) -> float:
        # Not the transaction's own time, which is that of its beginning: it may have waited for a lock since.
        return float(self.all("SELECT extract(epoch FROM clock_timestamp())::float8")[0][0])

    def all(self, statement: str, *parameters: Any) -> list[Row]:
        return self._cursor.execute(_marked(statement), parameters).fetchall()

    def do(self, statement: str, *parameters: Any) -> int:
        return self._cursor.execute(_marked(statement), parameters).rowcount

    def many(self, statement: str, rows: Iterable[Row]) -> None:
        self._cursor.executemany(_marked(statement), rows)

    def among(self, column: str, values: Sequence[Any]) -> tuple[str, Any]:
        return f"{column} = ANY(?)", list(values)


def _marked(statement: str) -> Any:
    return statement.replace("?", "%s")


class _LostError(Exception):
    """The connection broke, or the server asks to come again."""


class PostgresDatabase(Database):
    """A schema of a database that is made where it is not there yet; several may do that at the same time.

    Without `create`, QueueNotFoundError is raised there. Raises ConfigurationError for an address that is none, or
    tables of a newer version, MissingExtraError where psycopg is missing, and StorageError where there is no
    connection.
    """

    def __init__(self, url: str, *, schema: str = "fastlane_batch", create: bool = True) -> None:
        self._create = create
        try:
            import psycopg
            from psycopg import conninfo
        except ImportError as error:
            raise MissingExtraError("postgres", "psycopg") from error
        if not _NAME.match(schema):
            raise ConfigurationError(
                f"schema expects a name of small letters, digits and underscores, at most 63, got {schema!r}"
            )
        try:
            given = conninfo.conninfo_to_dict(url)
        except psycopg.Error:
            # Neither the address nor what was said about it is shown: a password may be in both.
            given = None
        if given is None:
            raise ConfigurationError(
                "a queue expects the address of a PostgreSQL database, such as postgresql://user@host:5432/database, "
                "got one that cannot be read: signs in a password that mean something there are written as %XX"
            )
        self._psycopg: Any = psycopg
        self._given = {"connect_timeout": _CONNECT_S, "application_name": "fastlane batch", **given}
        self._secret = str(given.get("password") or "")
        self._schema = schema
        host, port, name = (given.get(part) for part in ("host", "port", "dbname"))
        self.name = f"postgresql://{host or ''}{f':{port}' if port else ''}/{name or ''} ({schema})"
        self._connection: psycopg.Connection[Row] | None = None
        super().__init__()
        try:
            # What cannot be reached at first is said at once.
            with self._lock:
                self._connection = self._connect()
        except psycopg.Error as error:
            raise self._said(error) from None

    def __repr__(self) -> str:
        return f"<database {self.name}>"

    def run(self, work: Callable[[Transaction], T], *, writes: bool = True) -> T:
        with self._lock:
            if self._closed:
                raise StorageError(f"the queue {self.name} is closed")
            tries = Retrying(
                retry=retry_if_exception_type((_LostError, AgainError)),
                wait=wait_random_exponential(multiplier=0.05, max=_LONGEST_PAUSE_S),
                stop=stop_after_delay(_PATIENCE_S),
                reraise=True,
            )
            try:
                for attempt in tries:
                    with attempt:
                        return self._try(work, again=attempt.retry_state.attempt_number > 1)
            except AgainError:
                raise StorageError(
                    f"the queue {self.name} did not do it: others were in between for {_PATIENCE_S:.0f} s; try it again"
                ) from None
            except _LostError as lost:
                raise self._said(lost.__cause__) from None
            raise AssertionError("unreachable")

    def _try(self, work: Callable[[Transaction], T], *, again: bool) -> T:
        try:
            connection = self._connection
            if connection is None or connection.closed:
                connection = self._connection = self._connect()
            with connection.transaction(), connection.cursor() as cursor:
                return work(_Transaction(cursor, again=again))
        except self._psycopg.Error as error:
            broken = self._connection is None or self._connection.closed or self._connection.broken
            if broken:
                self._let_go()
            if broken or error.sqlstate in _PASSES:
                raise _LostError from error
            raise self._said(error) from None
        except BaseException:
            # Interrupted in the middle of an answer, a connection is of no use any more.
            if self._connection is not None and self._connection.broken:
                self._let_go()
            raise

    def _connect(self) -> psycopg.Connection[Row]:
        connection: psycopg.Connection[Row] = self._psycopg.connect(**self._given, autocommit=True)
        try:
            # Where the server's default is a commit that returns before it is on a disk, ours does not.
            connection.execute(
                "SELECT set_config('synchronous_commit', 'on', false) "
                "WHERE current_setting('synchronous_commit') = 'off'"
            )
            connection.execute(f"SET search_path TO {self._schema}")
            self._make(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _make(self, connection: psycopg.Connection[Row]) -> None:
        def version() -> int | None:
            # Asked of the catalogue: what a session remembers of names may be older than a lock that it waited for.
            if not connection.execute(
                "SELECT 1 FROM pg_catalog.pg_class AS tables JOIN pg_catalog.pg_namespace AS schemas "
                "ON schemas.oid = tables.relnamespace WHERE schemas.nspname = %s AND tables.relname = 'queue'",
                [self._schema],
            ).fetchall():
                return None
            statement = f"SELECT version FROM {self._schema}.queue"  # noqa: S608 - a name that was checked
            found = connection.execute(statement.encode()).fetchall()
            return int(found[0][0]) if found else None

        found = version()
        if found is None and not self._create:
            raise QueueNotFoundError.named(self.name)
        if found is None:
            with connection.transaction():
                # One after the other, however many come at once.
                connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [f"fastlane.batch {self._schema}"])
                found = version()
                if found is None:
                    self._make_tables(connection)
                    found = VERSION
        if found > VERSION:
            raise ConfigurationError(
                f"the queue {self.name} was made by a newer version of fastlane (its tables are of version {found}, "
                f"this one knows {VERSION}): use that version"
            )

    def _make_tables(self, connection: psycopg.Connection[Row]) -> None:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self._schema}".encode())
        types = {
            "number": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
            "whole": "BIGINT",
            "real": "DOUBLE PRECISION",
            "bytes": "BYTEA",
        }
        for statement in statements(**types):
            connection.execute(statement.encode())
        connection.execute(
            "INSERT INTO queue VALUES (1, %s, %s, extract(epoch FROM clock_timestamp())::float8, 0)",
            [VERSION, token_hex(6)],
        )

    def _said(self, error: BaseException | None) -> StorageError:
        """The error that says of the queue what was said by the server, or on the way there: no value, no password."""
        diagnosed = getattr(getattr(error, "diag", None), "sqlstate", None)
        # What a server says of a statement may quote values; what is said of a connection does not.
        text = f"SQLSTATE {diagnosed}" if diagnosed else " ".join(str(error).split())
        if self._secret:
            text = text.replace(self._secret, "***")
        return StorageError(f"the queue {self.name} did not do it: {type(error).__name__}: {text}")

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _left_behind(self, *, in_use: bool) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            _LEFT_BEHIND.append(connection)
