"""The tables of a queue. Long values (bodies, answers) have tables of their own; times are seconds since the epoch."""

from __future__ import annotations

import sqlalchemy as sa

VERSION = 2
"""Of the tables. A queue of another version is refused."""

metadata = sa.MetaData()
# The only type that SQLite counts up by itself.
_WHOLE = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _whole(name: str, default: int | None = None) -> sa.Column[int]:
    return sa.Column(name, _WHOLE, nullable=default is None, server_default=None if default is None else str(default))


queue = sa.Table(
    "queue",
    metadata,
    sa.Column("version", _WHOLE, nullable=False),
    sa.Column("queue_id", sa.Text, nullable=False),
    # Jobs that were over so far: the sequence of the last one.
    sa.Column("finished", _WHOLE, nullable=False),
)
jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("number", _WHOLE, primary_key=True, autoincrement=True),
    sa.Column("key", sa.Text, nullable=False, unique=True),
    sa.Column("endpoint", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("size", _WHOLE, nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    _whole("attempts", 0),
    sa.Column("not_before", sa.Double, nullable=False, server_default="0"),
    sa.Column("submitted_at", sa.Double, nullable=False),
    sa.Column("finished_at", sa.Double),
    sa.Column("sequence", _WHOLE, unique=True),
    sa.Column("batch", sa.Text),
    sa.Column("owner", sa.Text),
    sa.Column("lease_until", sa.Double),
    sa.Column("cancel_asked", sa.Boolean, nullable=False, server_default=sa.text("false")),
    _whole("status_code"),
    sa.Column("error", sa.Text),
    _whole("input_tokens"),
    _whole("output_tokens"),
    _whole("cached_tokens"),
    sqlite_autoincrement=True,
)
bodies = sa.Table(
    "bodies",
    metadata,
    sa.Column("number", _WHOLE, primary_key=True, autoincrement=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)
answers = sa.Table(
    "answers",
    metadata,
    sa.Column("number", _WHOLE, primary_key=True, autoincrement=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("request_id", sa.Text),
)
batches = sa.Table(
    "batches",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("origin", sa.Text, nullable=False),
    sa.Column("endpoint", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("requests", _WHOLE, nullable=False),
    sa.Column("bytes", _WHOLE, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("turn", _WHOLE, nullable=False),
    sa.Column("lease_until", sa.Double, nullable=False),
    sa.Column("planned_at", sa.Double, nullable=False),
    sa.Column("changed_at", sa.Double, nullable=False),
    _whole("unwanted", 0),
    sa.Column("file_id", sa.Text),
    sa.Column("batch_id", sa.Text),
    sa.Column("output_file_id", sa.Text),
    sa.Column("error_file_id", sa.Text),
    sa.Column("provider_state", sa.Text),
    _whole("provider_done", 0),
    _whole("provider_failed", 0),
    sa.Column("error", sa.Text),
)
workers = sa.Table(
    "workers",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("lease_until", sa.Double, nullable=False),
)


def _index(name: str, *columns: sa.Column[object], where: str) -> None:
    sa.Index(name, *columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))


_index("jobs_waiting", jobs.c.endpoint, jobs.c.model, jobs.c.number, where="state = 'waiting'")
_index("jobs_running", jobs.c.owner, jobs.c.lease_until, where="state = 'running'")
_index("jobs_batch", jobs.c.batch, jobs.c.number, where="batch IS NOT NULL")
_index("batches_live", batches.c.lease_until, where="state NOT IN ('collected', 'abandoned')")
sa.Index("jobs_states", jobs.c.state, jobs.c.finished_at)
