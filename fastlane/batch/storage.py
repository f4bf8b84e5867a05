"""A queue in a database: a SQLite file, or a schema of a PostgreSQL server.

Every method is one transaction: durable when it returns, not done when it raises. A transaction that failed because of
other writers or a broken connection is repeated for up to a minute, without a lock between two tries. Times are epoch
seconds by the clock of the database, and arguments are seconds from now. A lease that has run out stays its owner's
until another worker takes it over: every write of a worker is compared with the batch's `(state, owner, turn)`.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import threading
import weakref
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from itertools import accumulate
from pathlib import Path
from random import uniform
from secrets import token_hex
from types import NoneType
from typing import Any, ClassVar, Concatenate, Literal, ParamSpec, TypeVar, get_args, get_type_hints

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool
from sqlalchemy.schema import CreateSchema

from .._clock import now_ns, wall_ns
from .._fork import new_lock, starts_over
from ..errors import ConfigurationError
from .answers import Finished
from .errors import JobConflictError, LeaseLostError, QueueNotFoundError, StorageError
from .jobs import (
    JOB_STATES,
    LINE_BYTES,
    OVER,
    SETTLED,
    BatchRow,
    BatchState,
    Job,
    JobGroup,
    JobOutcome,
    JobState,
    NewJob,
    Status,
)

P = ParamSpec("P")
T = TypeVar("T")

VERSION = 6
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


queue = sa.Table(
    "queue",
    metadata,
    sa.Column("version", _WHOLE, nullable=False),
    sa.Column("queue_id", sa.Text, nullable=False),
)
jobs = sa.Table(
    "jobs",
    metadata,
    *_columns(Job, "number"),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.UniqueConstraint("key"),
    sqlite_autoincrement=True,
)
bodies = sa.Table(
    "bodies",
    metadata,
    sa.Column("number", _WHOLE, primary_key=True, autoincrement=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)
# A row of each job that is over, in this order.
answers = sa.Table(
    "answers",
    metadata,
    sa.Column("sequence", _WHOLE, primary_key=True),
    sa.Column("number", _WHOLE, nullable=False, unique=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("request_id", sa.Text),
    sqlite_autoincrement=True,
)
batches = sa.Table("batches", metadata, *_columns(BatchRow, "name"))
workers = sa.Table(
    "workers",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("lease_until", sa.Double, nullable=False),
)


for _name, _indexed, _where in (
    ("jobs_waiting", jobs.c["endpoint", "model", "number"], "state = 'waiting'"),
    ("jobs_batch", jobs.c["batch", "number"], "batch IS NOT NULL"),
    ("batches_live", batches.c["lease_until",], "state NOT IN ('collected', 'abandoned')"),
):
    sa.Index(_name, *_indexed, sqlite_where=sa.text(_where), postgresql_where=sa.text(_where))
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


_JOB = [jobs.c[field.name] for field in fields(Job)]
_BATCH = [batches.c[field.name] for field in fields(BatchRow)]
_TOKENS = ("input_tokens", "output_tokens", "cached_tokens")
_OUTCOME = ("state", "status_code", "error", *_TOKENS)
_NEW: dict[str, Any] = {"state": "waiting", "attempts": 0, "not_before": 0.0, "cancel_asked": False}
_LIVE = batches.c.state.not_in(SETTLED)
_UNFINISHED = jobs.c.state.not_in(OVER)
_CHUNK = 500


def _in_transaction(
    *, writes: bool
) -> Callable[[Callable[Concatenate[Storage, sa.Connection, P], T]], Callable[Concatenate[Storage, P], T]]:
    def decorate(method: Callable[Concatenate[Storage, sa.Connection, P], T]) -> Callable[Concatenate[Storage, P], T]:
        def run(self: Storage, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return self.run(lambda t: method(self, t, *args, **kwargs), writes=writes)

        run.__doc__ = method.__doc__
        return run

    return decorate


_reads, _writes = _in_transaction(writes=False), _in_transaction(writes=True)


class Storage:
    """A queue, used by several threads and processes at once, and by the children of a fork.

    It has one connection, which threads use in turns, and which a forked child makes anew.
    """

    name: str
    """Where it is, without a password."""
    queue_id: str
    """A random text of each queue: the names of its batches begin with it."""
    first_pause_s: ClassVar[float]
    longest_pause_s: ClassVar[float]

    def __init__(self, *, create: bool, patience_s: float) -> None:
        self._create = create
        self._turn, self._lock = new_lock(), new_lock()
        self._closed = False
        schemas = {"schema_translate_map": {None: self._schema}} if self._schema else {}
        self._engine = sa.create_engine(
            self._dialect,
            creator=self._connect,
            poolclass=QueuePool,
            pool_size=1,
            max_overflow=0,
            hide_parameters=True,
            execution_options=schemas,
        )

        @sa.event.listens_for(self._engine, "begin")
        def begin(connection: sa.Connection) -> None:
            self._begin(connection, writes=connection.get_execution_options().get("writes", False))

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
            # With two locks, a thread that writes in a loop does not starve the others.
            with self._turn:
                self._lock.acquire()
            try:
                if self._closed:
                    raise StorageError(f"the queue {self.name} is closed: open it again")
                with self._engine.connect().execution_options(writes=writes) as connection, connection.begin():
                    return work(connection)
            except DBAPIError as error:
                failed, is_transient = self._explained(error, " ".join(str(error.orig).split()))
            finally:
                self._lock.release()
            if not is_transient or now_ns() >= until_ns:
                # Outside of the handler: the database's error has the parameters, and so prompts.
                raise failed
            threading.Event().wait(pause_s * uniform(0.5, 1.0))
            pause_s = min(self.longest_pause_s, pause_s * 1.5)

    def _found_or_made(self, t: sa.Connection) -> str:
        """Return the ID of the queue, whose tables are made where there are none."""
        tables = sa.inspect(t).get_table_names(schema=self._schema)
        if "queue" not in tables:
            if tables and self._schema is None:
                raise ConfigurationError(
                    f"a queue has its own file, got {self.name!r}, another application's database: give another path"
                )
            if not self._create:
                raise _not_found(self.name)
            if self._schema is not None:
                t.execute(CreateSchema(self._schema, if_not_exists=True))
            metadata.create_all(t, checkfirst=False)
            t.execute(sa.insert(queue).values(version=VERSION, queue_id=token_hex(6)))
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

    @_reads
    def now(self, t: sa.Connection) -> float:
        """Return the time by the clock of the database."""
        return now_of(t)

    # For applications.

    @_writes
    def add(self, t: sa.Connection, new: Sequence[NewJob]) -> list[Job]:
        """Add jobs, all or none, and return them in order. Raises JobConflictError for a key of another body."""
        found = t.execute(_with_keys(t, [job.key for job in new], jobs.c.key, jobs.c.digest))
        digests = {row.key: row.digest for row in found}
        missing = list({job.key: job for job in new if job.key not in digests}.values())
        for job in new:
            if digests.setdefault(job.key, job.digest) != job.digest:
                raise JobConflictError(
                    f"a job with the key {job.key!r} is in the queue already, or submitted with this one, with another "
                    f"body or for another endpoint: give this one another key, or forget the other (`queue.forget`) "
                    f"once it is over",
                    job.key,
                )
        taken, now = ("key", "endpoint", "model", "digest"), now_of(t)
        fresh = [{name: getattr(job, name) for name in taken} | {"size": len(job.body)} for job in missing]
        _each(t, sa.insert(jobs).values(submitted_at=now, **_NEW), fresh)
        by_key = _found(t, list(digests))
        _each(t, sa.insert(bodies), [{"number": by_key[job.key].number, "body": job.body} for job in missing])
        return [by_key[job.key] for job in new]

    @_reads
    def find(self, t: sa.Connection, keys: Iterable[str]) -> dict[str, Job]:
        """Return the jobs of these keys, by key."""
        return _found(t, list(keys))

    @_reads
    def answers(
        self, t: sa.Connection, *, keys: Iterable[str] | None = None, after: int = 0, most: int | None = None
    ) -> list[Finished]:
        """Return the answers of these jobs, or of all, in the order in which they were over after this one."""
        found = _with_keys(t, keys, *_JOB, *answers.c["sequence", "body", "request_id"])
        found = found.join(answers, answers.c.number == jobs.c.number).where(answers.c.sequence > after)
        rows = t.execute(found.order_by(answers.c.sequence).limit(most))
        return [Finished(_job_of(row), row.sequence, row.body, row.request_id) for row in rows]

    @_reads
    def unfinished(self, t: sa.Connection, keys: Sequence[str] | None = None) -> int:
        """Return how many of these jobs, or of all, are not over."""
        return int(t.execute(_with_keys(t, keys, sa.func.count(jobs.c.number)).where(_UNFINISHED)).scalar_one())

    @_writes
    def cancel(self, t: sa.Connection, keys: Sequence[str] | None) -> list[Job]:
        """Cancel jobs: those that were not sent at once; the others are marked. None: all that are not over."""
        found = _with_keys(t, keys, jobs.c.key).where(_UNFINISHED).order_by(jobs.c.number)
        keys = list(t.execute(found).scalars()) if keys is None else keys
        is_planned = sa.exists().where(batches.c.name == jobs.c.batch, batches.c.state == "planned")
        is_one = among(t, jobs.c.key, keys)
        _cancel(t, is_one, sa.or_(jobs.c.state == "waiting", sa.and_(jobs.c.state == "packed", is_planned)))
        t.execute(sa.update(jobs).where(is_one, _UNFINISHED).values(cancel_asked=True))
        by_key = _found(t, keys)
        return [by_key[key] for key in keys if key in by_key]

    @_writes
    def retry_failed(self, t: sa.Connection, keys: Sequence[str] | None = None) -> int:
        """Let failed jobs, or those with these keys, wait again as if they were new. Return how many."""
        failed = list(t.execute(_with_keys(t, keys, jobs.c.number).where(jobs.c.state == "failed")).scalars())
        t.execute(sa.delete(answers).where(among(t, answers.c.number, failed)))
        again = {**dict.fromkeys((*_OUTCOME, "finished_at")), **_NEW}
        return t.execute(sa.update(jobs).where(among(t, jobs.c.number, failed)).values(again)).rowcount

    @_writes
    def forget(
        self,
        t: sa.Connection,
        *,
        keys: Sequence[str] | None = None,
        states: Sequence[JobState],
        older_than_s: float = 0.0,
    ) -> int:
        """Delete jobs that have been over for so long, and settled batches without jobs. Return how many jobs."""
        until, over = now_of(t) - older_than_s, [state for state in states if state in OVER]
        old = _with_keys(t, keys, jobs.c.number).where(jobs.c.state.in_(over), jobs.c.finished_at <= until)
        for table in (answers, bodies):
            t.execute(sa.delete(table).where(table.c.number.in_(old)))
        count = t.execute(sa.delete(jobs).where(jobs.c.number.in_(old))).rowcount
        has_jobs = sa.exists().where(jobs.c.batch == batches.c.name)
        t.execute(sa.delete(batches).where(~_LIVE, batches.c.changed_at <= until, ~has_jobs))
        return count

    @_reads
    def status(self, t: sa.Connection) -> Status:
        """Return the state of the whole queue."""
        counts: dict[JobState, int] = dict.fromkeys(JOB_STATES, 0)
        tokens, failures = Counter[str](), Counter[str]()
        kinds = jobs.c.state, jobs.c.error, jobs.c.status_code
        sums = [sa.func.sum(jobs.c[kind]).label(kind) for kind in _TOKENS]
        for row in t.execute(sa.select(*kinds, sa.func.count().label("number"), *sums).group_by(*kinds)):
            counts[row.state] += row.number
            tokens.update({kind: int(row._mapping[kind] or 0) for kind in _TOKENS})
            if row.state == "failed":
                failures[row.error or (f"HTTP {row.status_code}" if row.status_code else "unknown")] += row.number
        alive = sa.select(sa.func.count()).where(workers.c.lease_until > now_of(t))
        return Status(
            jobs=counts,
            batches=tuple(_batches(t, _LIVE)),
            workers=t.execute(alive).scalar_one(),
            failures=dict(failures.most_common()),
            **{kind: tokens[kind] for kind in _TOKENS},
        )

    def abandon(self, origin: str) -> int:
        """Give up the batches at a base URL that no worker leases. Return how many of their jobs wait again."""
        at_origin = sa.func.rtrim(batches.c.origin, "/") == origin.rstrip("/")
        found = self.run(lambda t: _batches(t, _LIVE, at_origin, batches.c.lease_until < now_of(t)), writes=False)
        return sum(self.settle(batch, "abandoned", error="given_up") for batch in found)

    # For workers.

    @_reads
    def groups(self, t: sa.Connection) -> list[JobGroup]:
        """Return the jobs that may be packed now, by endpoint and model, the oldest group first."""
        columns = sa.func.count(), sa.func.sum(jobs.c.size), sa.func.min(jobs.c.submitted_at)
        statement = sa.select(jobs.c.endpoint, jobs.c.model, *columns).where(*_due(t))
        rows = t.execute(statement.group_by(jobs.c.endpoint, jobs.c.model).order_by(sa.func.min(jobs.c.number)))
        return [JobGroup(endpoint, model, count, int(size), oldest) for endpoint, model, count, size, oldest in rows]

    @_writes
    def claim(
        self,
        t: sa.Connection,
        owner: str,
        group: JobGroup,
        *,
        origin: str,
        most_requests: int,
        most_bytes: int,
        lease_s: float,
        state: Literal["planned", "running"] = "planned",
    ) -> BatchRow | None:
        """Pack as many waiting jobs of a group into a new batch as fit into both limits, but at least one.

        Counts an attempt of each. None if none waits.
        """
        now = now_of(t)
        in_group = jobs.c.endpoint == group.endpoint, jobs.c.model == group.model
        waiting = sa.select(jobs.c.number, jobs.c.size).where(*_due(t), *in_group)
        rows = t.execute(waiting.order_by(jobs.c.number).limit(most_requests)).all()
        if not rows:
            return None
        sizes = list(accumulate(row.size + LINE_BYTES for row in rows))
        numbers = [row.number for row in rows[: max(1, bisect_right(sizes, most_bytes))]]
        name = f"fastlane-{self.queue_id}-{token_hex(8)}"
        packed = {"state": "packed", "batch": name, "attempts": jobs.c.attempts + 1}
        t.execute(sa.update(jobs).where(among(t, jobs.c.number, numbers)).values(packed))
        batch = BatchRow(
            name=name,
            state=state,
            origin=origin,
            endpoint=group.endpoint,
            model=group.model,
            requests=len(numbers),
            bytes=sizes[len(numbers) - 1],
            owner=owner,
            turn=1,
            lease_until=now + lease_s,
            planned_at=now,
            changed_at=now,
        )
        t.execute(sa.insert(batches).values(asdict(batch)))
        return batch

    @_writes
    def advance(self, t: sa.Connection, /, batch: BatchRow, state: BatchState, **changes: Any) -> BatchRow:
        """Record the next step of a batch, with other columns of it, and return it. Only `settle` ends a batch.

        Raises LeaseLostError unless its (state, owner, turn) are those of `batch`.
        """
        if state != batch.state:
            changes["changed_at"] = now_of(t)
        _change(t, batch, state=state, **changes)
        return _batches(t, batches.c.name == batch.name)[0]

    @_reads
    def heads(self, t: sa.Connection, batch: BatchRow) -> list[Job]:
        """Return the jobs that are still in a batch, in order."""
        jobs_of_batch = sa.select(*_JOB).where(*_in_batch(batch.name)).order_by(jobs.c.number)
        return [_job_of(row) for row in t.execute(jobs_of_batch)]

    def bodies(self, batch: BatchRow) -> Iterator[tuple[Job, bytes]]:
        """Yield the same with their bodies, read in chunks."""
        found = sa.select(*_JOB, bodies.c.body).join(bodies, bodies.c.number == jobs.c.number).limit(_CHUNK)
        found = found.where(*_in_batch(batch.name)).order_by(jobs.c.number)
        after = 0
        while rows := self.run(lambda t: t.execute(found.where(jobs.c.number > after)).all(), writes=False):  # noqa: B023
            yield from ((_job_of(row), row.body) for row in rows)
            after = rows[-1].number

    @_reads
    def is_wanted(self, t: sa.Connection, batch: BatchRow) -> bool:
        """Return whether any job of a batch was not cancelled."""
        wanted = sa.select(sa.func.count()).where(*_in_batch(batch.name), ~jobs.c.cancel_asked)
        return bool(t.execute(wanted).scalar_one())

    @_writes
    def record(self, t: sa.Connection, batch: BatchRow, outcomes: Sequence[JobOutcome]) -> int:
        """Record the outcomes of those jobs that are still in a batch. Return how many. Raises LeaseLostError."""
        _change(t, batch, turn=batch.turn)
        inside, by_number = _in_batch(batch.name), {one.number: one for one in outcomes}
        again = [one.number for one in outcomes if one.state == "waiting"]
        cancelled = _cancel(t, *inside, jobs.c.cancel_asked, among(t, jobs.c.number, again))
        found = sa.select(jobs.c.number).where(*inside, among(t, jobs.c.number, list(by_number)))
        left = [by_number[number] for number in t.execute(found.order_by(jobs.c.number)).scalars()]
        now, updates = now_of(t), []
        for one in left:
            times = {"not_before": now + one.not_before_s, "finished_at": None if one.state == "waiting" else now}
            updates.append({"its_number": one.number, **times, **{name: getattr(one, name) for name in _OUTCOME}})
        _each(t, sa.update(jobs).where(jobs.c.number == sa.bindparam("its_number")), updates)
        over = [one for one in left if one.state != "waiting"]
        stored = ("number", "body", "request_id")
        _each(t, sa.insert(answers), [{name: getattr(one, name) for name in stored} for one in over])
        return cancelled + len(left)

    @_writes
    def settle(
        self,
        t: sa.Connection,
        batch: BatchRow,
        state: Literal["collected", "abandoned"],
        *,
        error: str | None = None,
        not_before_s: float = 0.0,
        sent: bool = True,
    ) -> int:
        """End a batch. Jobs still in it wait again; those that were cancelled are cancelled. Return how many.

        With `sent=False` their attempt is not counted. `error` is recorded of the batch and of these jobs. Raises
        LeaseLostError.
        """
        now, inside = now_of(t), _in_batch(batch.name)
        # Without an error the one that was recorded before stays.
        _change(t, batch, state=state, changed_at=now, error=sa.func.coalesce(error, batches.c.error))
        cancelled = _cancel(t, *inside, jobs.c.cancel_asked)
        again = {"state": "waiting", "not_before": now + not_before_s, "error": error}
        attempts = jobs.c.attempts - (0 if sent else 1)
        return cancelled + t.execute(sa.update(jobs).where(*inside).values(attempts=attempts, **again)).rowcount

    @_writes
    def extend(self, t: sa.Connection, owner: str, *, lease_s: float) -> list[BatchRow]:
        """Lease all unsettled batches of a worker for so long from now.

        Return the batches as they are now. A missing one was taken over. One that the worker does not know is its own:
        the acknowledgement of its last step was lost.
        """
        now = now_of(t)
        t.execute(sa.delete(workers).where(sa.or_(workers.c.lease_until < now, workers.c.owner == owner)))
        t.execute(sa.insert(workers).values(owner=owner, lease_until=now + lease_s))
        own = batches.c.owner == owner
        t.execute(sa.update(batches).where(own, _LIVE).values(lease_until=now + lease_s))
        return _batches(t, own, _LIVE)

    @_writes
    def take_over(self, t: sa.Connection, owner: str, *, origin: str, lease_s: float) -> list[BatchRow]:
        """Lease batches of this origin, or not at any provider, whose lease has run out, the oldest first."""
        now = now_of(t)
        not_created = batches.c.state.in_(["planned", "uploading", "uploaded", "running"])
        left = _batches(t, _LIVE, sa.or_(batches.c.origin == origin, not_created), batches.c.lease_until < now)
        mine = among(t, batches.c.name, [batch.name for batch in left])
        lease = {"owner": owner, "turn": batches.c.turn + 1, "lease_until": now + lease_s}
        t.execute(sa.update(batches).where(mine).values(lease))
        return _batches(t, mine)

    @_writes
    def let_go(self, t: sa.Connection, owner: str) -> None:
        """End all leases of a worker, so that others may go on at once."""
        t.execute(sa.delete(workers).where(workers.c.owner == owner))
        t.execute(sa.update(batches).where(batches.c.owner == owner, _LIVE).values(lease_until=0.0))

    # What differs between the two databases.

    _dialect: ClassVar[str]
    _schema: str | None = None

    def _connect(self) -> Any:
        raise NotImplementedError

    def _begin(self, connection: sa.Connection, *, writes: bool) -> None:
        """Begin a transaction: only one writes at a time, and what it has read still holds when it writes."""
        raise NotImplementedError

    def _explained(self, error: DBAPIError, message: str) -> tuple[Exception, bool]:
        """Return the error to raise, without values and passwords, and whether another try may succeed.

        `message`: that of the database's library.
        """
        raise NotImplementedError


def _each(t: sa.Connection, statement: sa.Executable, rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        t.execute(statement, rows)


def _job_of(row: Any) -> Job:
    return Job(**{column.name: row._mapping[column] for column in _JOB})


def _with_keys(t: sa.Connection, keys: Iterable[str] | None, *columns: Any) -> sa.Select[Any]:
    """Return the selection of jobs with these keys, or of all."""
    statement = sa.select(*columns).select_from(jobs)
    return statement if keys is None else statement.where(among(t, jobs.c.key, list(keys)))


def _found(t: sa.Connection, keys: Sequence[str]) -> dict[str, Job]:
    return {job.key: job for job in map(_job_of, t.execute(_with_keys(t, keys, *_JOB)).all())}


def _due(t: sa.Connection) -> tuple[sa.ColumnElement[bool], ...]:
    return jobs.c.state == "waiting", jobs.c.not_before <= now_of(t)


def _in_batch(name: str) -> tuple[sa.ColumnElement[bool], ...]:
    return jobs.c.batch == name, jobs.c.state == "packed"


def _batches(t: sa.Connection, *conditions: sa.ColumnElement[bool]) -> list[BatchRow]:
    statement = sa.select(*_BATCH).where(*conditions).order_by(batches.c.planned_at, batches.c.name)
    return [BatchRow(**row._mapping) for row in t.execute(statement).all()]


def _change(t: sa.Connection, held: BatchRow, **values: Any) -> None:
    """Change a batch. Raises LeaseLostError if it is not as its worker knows it."""
    known = [batches.c[name] == getattr(held, name) for name in ("name", "state", "owner", "turn")]
    if not t.execute(sa.update(batches).where(*known).values(values)).rowcount:
        raise LeaseLostError(
            f"the batch {held.name} is not {held.state} in its turn {held.turn} any more: another worker has gone on "
            f"with it, and nothing was written"
        )


def _cancel(t: sa.Connection, *which: sa.ColumnElement[bool]) -> int:
    """Cancel jobs. Return how many."""
    found = sa.select(jobs.c.number, sa.literal(b"", sa.LargeBinary)).where(*which).order_by(jobs.c.number)
    t.execute(sa.insert(answers).from_select(["number", "body"], found))
    return t.execute(sa.update(jobs).where(*which).values(state="cancelled", finished_at=now_of(t))).rowcount


def storage_at(where: str | os.PathLike[str], *, schema: str, create: bool) -> Storage:
    """Open a queue. Where there is none it is made, or without `create`, QueueNotFoundError is raised.

    Raises ConfigurationError for what cannot be a queue, and StorageError.
    """
    if not isinstance(where, (str, os.PathLike)):
        raise ConfigurationError(f"a queue expects {_EXPECTED}, got {type(where).__name__}")
    path = os.fspath(where)
    scheme, mark, _ = path.partition("://")
    if mark and scheme in ("postgresql", "postgres"):
        return PostgresStorage(path, schema=schema, create=create)
    # An address is not quoted: it may hold a password.
    if mark or "\0" in path:
        kind = "an address of another kind" if mark else "a path with a NUL in it"
        raise ConfigurationError(f"a queue expects {_EXPECTED}, got {kind}")
    if path in ("", ":memory:") or path.startswith("file:"):
        raise ConfigurationError(f"a queue expects {_EXPECTED}, got {path!r}, which would not outlive the process")
    return SqliteStorage(path, create=create)


def _not_found(name: str) -> QueueNotFoundError:
    return QueueNotFoundError(
        f"there is no queue {name!r}: check the name, or submit a job, which makes one (`fastlane batch submit`, or "
        f"`Queue.submit`)"
    )


class SqliteStorage(Storage):
    """A file: one writer at a time, readers beside it, and every commit on the disk before it returns."""

    # Another process that writes in a loop leaves only moments in between.
    first_pause_s, longest_pause_s = 0.0005, 0.005
    _dialect = "sqlite://"

    def __init__(self, path: str, *, create: bool) -> None:
        self._path = Path(path).absolute()
        self.name = path
        self._opened: tuple[int, int] | None = None
        super().__init__(create=create, patience_s=_PATIENCE_S)

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
        found = self._path.stat() if self._path.exists() else None
        return found and (found.st_dev, found.st_ino)

    def _begin(self, connection: sa.Connection, *, writes: bool) -> None:
        if writes and self._identity() != self._opened:
            raise StorageError(
                f"the queue {self.name} was deleted or replaced while it was open, and nothing was written: close it, "
                f"and open it again"
            )
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    def _explained(self, error: DBAPIError, message: str) -> tuple[Exception, bool]:
        name, code = getattr(error.orig, "sqlite_errorname", ""), getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
        if name == "SQLITE_NOTADB":
            words = f"a queue is a SQLite file, and {self.name!r} is not: give another path"
            return ConfigurationError(words), False
        words = f"the queue {self.name} failed: {message} ({name}). What was not written has to be repeated"
        return StorageError(words), code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class PostgresStorage(Storage):
    """A schema of a server, by whose clock all leases go. Broken connections are made anew."""

    first_pause_s, longest_pause_s = 0.05, 2.0
    _dialect = "postgresql+psycopg://"

    def __init__(self, url: str, *, schema: str, create: bool) -> None:
        import psycopg
        from psycopg import conninfo

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

    def _connect(self) -> Any:
        connection = self._psycopg.connect(**self._given)
        # A commit must not return before it is on a disk, whatever the server's default is.
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
        connection.commit()
        return connection

    def _begin(self, connection: sa.Connection, *, writes: bool) -> None:
        # Writers take turns, as in SQLite: rows need no locks, and answers become visible in their order.
        if writes:
            lock = sa.func.pg_advisory_xact_lock(sa.func.hashtext(f"fastlane.batch {self._schema}"))
            connection.execute(sa.select(lock))

    def _explained(self, error: DBAPIError, message: str) -> tuple[Exception, bool]:
        # A server's message about a statement may quote values; one about a connection does not.
        sqlstate = getattr(error.orig, "sqlstate", None)
        message = f"SQLSTATE {sqlstate}" if sqlstate else message
        if self._given.get("password"):
            message = message.replace(str(self._given["password"]), "***")
        is_transient = error.connection_invalidated or isinstance(error.orig, self._psycopg.OperationalError)
        return StorageError(f"the queue {self.name} failed: {type(error.orig).__name__}: {message}"), is_transient


# A child must not carry an open file of SQLite's (https://sqlite.org/howtocorrupt.html, 2.6): before a fork, files are
# closed, and stay so until it has happened.
_open_files: weakref.WeakSet[SqliteStorage] = weakref.WeakSet()
_closed_files: list[SqliteStorage] = []


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
