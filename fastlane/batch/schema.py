"""The tables of a queue. Bodies and answers are long, and have their own tables. Times are epoch seconds."""

from __future__ import annotations

from dataclasses import fields
from types import NoneType
from typing import Any, get_args, get_type_hints

import sqlalchemy as sa

from .jobs import BatchRow, Job

VERSION = 3
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
