"""Open the storage that an address names: a file, or a PostgreSQL server."""

from __future__ import annotations

import os

from ..errors import ConfigurationError
from ._sql_storage import SqlStorage
from ._storage import Storage

_POSTGRES = ("postgresql", "postgres")
_EXPECTED = "a path, such as 'jobs.sqlite', or the address of a PostgreSQL database: postgresql://user@host/database"


def open_storage(where: str | os.PathLike[str], *, schema: str = "fastlane_batch", create: bool = True) -> Storage:
    """Open a queue, and make it where there is none yet; without `create`, raise QueueNotFoundError there.

    `schema` names the queue within a PostgreSQL database. Raises ConfigurationError for what cannot be a queue,
    MissingExtraError where psycopg is missing, and StorageError where it cannot be opened.
    """
    if not isinstance(where, (str, os.PathLike)):
        raise ConfigurationError(f"a queue expects {_EXPECTED}, got {type(where).__name__}")
    text = os.fspath(where)
    scheme, mark, _ = text.partition("://")
    if scheme in _POSTGRES and mark:
        from ._postgres import PostgresDatabase

        return SqlStorage(PostgresDatabase(text, schema=schema, create=create))
    # What came is not quoted: it may hold a password.
    if mark:
        raise ConfigurationError(f"a queue expects {_EXPECTED}, got an address of another kind")
    if "\0" in text:
        raise ConfigurationError(f"a queue expects {_EXPECTED}, got a path with a NUL in it")
    if not text or text == ":memory:" or text.startswith("file:"):
        raise ConfigurationError(f"a queue expects {_EXPECTED}, got {text!r}, which would not outlive the process")
    from ._sqlite import SqliteDatabase

    return SqlStorage(SqliteDatabase(text, create=create))
