"""A queue in a database. Every method is one transaction: durable when it returns, not done when it raises.

Times are epoch seconds by the clock of the database, and arguments are seconds from now. A lease that has run out stays
its owner's until another worker takes it over: every write of a worker is compared with the batch's `(state, owner,
turn)`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from secrets import token_hex
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import sqlalchemy as sa

from .answers import Finished
from .database import among, answers, batches, bodies, jobs, now_of, open_database, queue, workers
from .errors import JobConflictError, LeaseLostError
from .jobs import (
    BATCH_STATES,
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

_JOB = [jobs.c[field.name] for field in fields(Job)]
_BATCH = [batches.c[field.name] for field in fields(BatchRow)]
_LIVE = batches.c.state.not_in(SETTLED)
_UNFINISHED = jobs.c.state.not_in(OVER)
_ANSWERS = (
    sa.select(*_JOB, jobs.c.sequence, answers.c.body, answers.c.request_id)
    .outerjoin(answers, answers.c.number == jobs.c.number)
    .where(jobs.c.sequence.is_not(None))
)
_BODIES = sa.select(*_JOB, bodies.c.body).join(bodies, bodies.c.number == jobs.c.number).order_by(jobs.c.number)
_IS_NUMBER = jobs.c.number == sa.bindparam("its_number")


def _in_transaction(
    *, writes: bool
) -> Callable[[Callable[Concatenate[Storage, sa.Connection, P], T]], Callable[Concatenate[Storage, P], T]]:
    def decorate(method: Callable[Concatenate[Storage, sa.Connection, P], T]) -> Callable[Concatenate[Storage, P], T]:
        def run(self: Storage, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return self._database.run(lambda t: method(self, t, *args, **kwargs), writes=writes)

        run.__doc__ = method.__doc__
        return run

    return decorate


_reads, _writes = _in_transaction(writes=False), _in_transaction(writes=True)


class Storage:
    """A queue, used by several threads and processes at once, and by the children of a fork.

    `schema` names the queue within a PostgreSQL database. Where there is no queue it is made; without `create`,
    QueueNotFoundError is raised. Raises ConfigurationError for what cannot be a queue, MissingExtraError and
    StorageError.
    """

    def __init__(self, where: str | os.PathLike[str], *, schema: str = "fastlane_batch", create: bool = True) -> None:
        self._database = open_database(where, schema=schema, create=create)
        self.queue_id = self._database.queue_id
        """A random text of each queue: the names of its batches begin with it."""

    def __repr__(self) -> str:
        return f"<storage {self.name}>"

    @property
    def name(self) -> str:
        """Where it is, without a password."""
        return self._database.name

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._database.close()

    @_reads
    def now(self, t: sa.Connection) -> float:
        """Return the time by the clock of the database."""
        return now_of(t)

    # For applications.

    @_writes
    def add(self, t: sa.Connection, new: Sequence[NewJob]) -> list[Job]:
        """Add jobs, all or none, and return them in order. A key with the same digest is the job that is there.

        Raises JobConflictError for a key with another digest.
        """
        by_key: dict[str, NewJob] = {}
        for job in new:
            if by_key.setdefault(job.key, job).digest != job.digest:
                raise JobConflictError(
                    f"two jobs with the key {job.key!r} are submitted together, with different bodies or endpoints: "
                    f"give each its own key",
                    job.key,
                )
        known = {row.key: row.digest for row in t.execute(_with_keys(t, list(by_key), jobs.c.key, jobs.c.digest))}
        for key, digest in known.items():
            if digest != by_key[key].digest:
                raise JobConflictError(
                    f"a job with the key {key!r} is in the queue already, with another body or for another endpoint: "
                    f"submit this one with another key, or forget the other (`queue.forget`) once it is over",
                    key,
                )
        missing = [job for job in by_key.values() if job.key not in known]
        fresh = {"state": "waiting", "attempts": 0, "not_before": 0.0, "submitted_at": now_of(t), "cancel_asked": False}
        taken = ("key", "endpoint", "model", "digest")
        rows = [{"size": len(job.body), **{name: getattr(job, name) for name in taken}, **fresh} for job in missing]
        _each(t, sa.insert(jobs), rows)
        found = _found(t, list(by_key))
        _each(t, sa.insert(bodies), [{"number": found[job.key].number, "body": job.body} for job in missing])
        return [found[job.key] for job in new]

    @_reads
    def find(self, t: sa.Connection, keys: Iterable[str]) -> dict[str, Job]:
        """Return the jobs of these keys, by key."""
        return _found(t, list(keys))

    @_reads
    def answers(self, t: sa.Connection, keys: Iterable[str]) -> dict[str, Finished]:
        """Return the answers of those of these jobs that are over, by key."""
        found = map(_finished, t.execute(_ANSWERS.where(among(t, jobs.c.key, list(keys)))))
        return {one.key: one for one in found}

    @_reads
    def answers_after(self, t: sa.Connection, sequence: int, most: int) -> list[Finished]:
        """Return the answers of the first jobs that were over after this one, in that order."""
        rows = t.execute(_ANSWERS.where(jobs.c.sequence > sequence).order_by(jobs.c.sequence).limit(most))
        return [_finished(row) for row in rows]

    @_reads
    def unfinished(self, t: sa.Connection, keys: Sequence[str] | None = None) -> int:
        """Return how many of these jobs, or of all, are not over."""
        return int(t.execute(_with_keys(t, keys, sa.func.count(jobs.c.number)).where(_UNFINISHED)).scalar_one())

    @_writes
    def cancel(self, t: sa.Connection, keys: Sequence[str] | None) -> list[Job]:
        """Cancel jobs: those that were not sent at once; the others are marked. None: all that are not over."""
        is_planned = sa.exists().where(batches.c.name == jobs.c.batch, batches.c.state == "planned")
        is_unsent = sa.or_(jobs.c.state == "waiting", is_planned).label("is_unsent")
        found = _with_keys(t, keys, jobs.c.key, jobs.c.number, is_unsent).where(_UNFINISHED).order_by("number")
        rows = t.execute(found).all()
        _end_cancelled(t, [row.number for row in rows if row.is_unsent])
        sent = [row.number for row in rows if not row.is_unsent]
        t.execute(sa.update(jobs).where(among(t, jobs.c.number, sent)).values(cancel_asked=True))
        keys = [row.key for row in rows] if keys is None else keys
        by_key = _found(t, keys)
        return [by_key[key] for key in keys if key in by_key]

    @_writes
    def retry_failed(self, t: sa.Connection, keys: Sequence[str] | None = None) -> int:
        """Let failed jobs, or those with these keys, wait again as if they were new. Return how many."""
        failed = _with_keys(t, keys, jobs.c.number).where(jobs.c.state == "failed")
        numbers = [row.number for row in t.execute(failed)]
        t.execute(sa.delete(answers).where(among(t, answers.c.number, numbers)))
        cleared = ("finished_at", "sequence", "status_code", "error", "input_tokens", "output_tokens", "cached_tokens")
        again = {"state": "waiting", "attempts": 0, "not_before": 0.0, "cancel_asked": False, **dict.fromkeys(cleared)}
        return t.execute(sa.update(jobs).where(among(t, jobs.c.number, numbers)).values(again)).rowcount

    @_writes
    def forget(
        self,
        t: sa.Connection,
        *,
        keys: Sequence[str] | None = None,
        states: Sequence[JobState],
        older_than_s: float = 0.0,
    ) -> int:
        """Delete jobs that have been over for so long, in one of these states, and settled batches without jobs.

        Return how many jobs.
        """
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
        count = sa.func.count()
        counts: dict[JobState, int] = dict.fromkeys(JOB_STATES, 0)
        counts.update({row.state: row[1] for row in t.execute(sa.select(jobs.c.state, count).group_by("state"))})
        kinds = ("input_tokens", "output_tokens", "cached_tokens")
        tokens = t.execute(sa.select(*(sa.func.sum(jobs.c[kind]).label(kind) for kind in kinds))).one()
        reasons = sa.select(jobs.c.error, jobs.c.status_code, count).where(jobs.c.state == "failed")
        failures = Counter[str]()
        for error, status_code, number in t.execute(reasons.group_by(jobs.c.error, jobs.c.status_code)):
            failures[error or (f"HTTP {status_code}" if status_code else "unknown")] += number
        alive = sa.select(count).select_from(workers).where(workers.c.lease_until > now_of(t))
        return Status(
            jobs=counts,
            batches=tuple(_batches(t, _LIVE)),
            workers=t.execute(alive).scalar_one(),
            failures=dict(failures.most_common()),
            **{kind: int(total or 0) for kind, total in tokens._mapping.items()},
        )

    @_writes
    def abandon(self, t: sa.Connection, origin: str) -> int:
        """Give up the batches at a base URL that no worker leases. Return how many of their jobs wait again."""
        gone = sa.func.rtrim(batches.c.origin, "/") == origin.rstrip("/")
        found = _batches(t, _LIVE, gone, batches.c.lease_until < now_of(t))
        return sum(_settle(t, batch.name, "abandoned", error="given_up") for batch in found)

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
        """Pack the first waiting jobs of a group into a new batch; None where none waits.

        As many as fit into both limits. A job that exceeds them alone becomes a batch of one. Counts an attempt of
        each.
        """
        now = now_of(t)
        in_group = jobs.c.endpoint == group.endpoint, jobs.c.model == group.model
        waiting = sa.select(jobs.c.number, jobs.c.size).where(*_due(t), *in_group)
        numbers: list[int] = []
        size = 0
        for row in t.execute(waiting.order_by(jobs.c.number).limit(most_requests)).all():
            if numbers and size + row.size + LINE_BYTES > most_bytes:
                break
            numbers.append(row.number)
            size += row.size + LINE_BYTES
        if not numbers:
            return None
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
            bytes=size,
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
        if state in SETTLED or BATCH_STATES.index(state) < BATCH_STATES.index(batch.state):
            raise ValueError(f"a batch that is {batch.state} cannot become {state} by this")
        _check_lease(t, batch)
        if state != batch.state:
            changes["changed_at"] = now_of(t)
        t.execute(sa.update(batches).where(batches.c.name == batch.name).values({"state": state, **changes}))
        return _batches(t, batches.c.name == batch.name)[0]

    @_reads
    def heads(self, t: sa.Connection, batch: BatchRow) -> list[Job]:
        """Return the jobs that are still in a batch, in order."""
        jobs_of_batch = sa.select(*_JOB).where(*_in_batch(batch.name)).order_by(jobs.c.number)
        return [_job_of(row) for row in t.execute(jobs_of_batch)]

    def bodies(self, batch: BatchRow, *, chunk: int = 500) -> Iterator[tuple[Job, bytes]]:
        """Yield the same with their bodies, read in chunks."""
        after = 0
        while found := self._bodies_after(batch.name, after, chunk):
            yield from found
            after = found[-1][0].number

    @_reads
    def _bodies_after(self, t: sa.Connection, name: str, after: int, most: int) -> list[tuple[Job, bytes]]:
        rows = t.execute(_BODIES.where(*_in_batch(name), jobs.c.number > after).limit(most)).all()
        return [(_job_of(row), row.body) for row in rows]

    @_reads
    def is_wanted(self, t: sa.Connection, batch: BatchRow) -> bool:
        """Return whether any job of a batch was not cancelled."""
        wanted = sa.select(sa.func.count()).where(*_in_batch(batch.name), ~jobs.c.cancel_asked)
        return bool(t.execute(wanted).scalar_one())

    @_writes
    def record(self, t: sa.Connection, batch: BatchRow, outcomes: Sequence[JobOutcome]) -> int:
        """Record the outcomes of jobs of a batch. Return how many were recorded.

        Jobs that are no longer in this batch are skipped, so that a file may be read again from its beginning. Raises
        LeaseLostError like `advance`.
        """
        _check_lease(t, batch)
        by_number = {outcome.number: outcome for outcome in outcomes}
        found = sa.select(jobs.c.number, jobs.c.cancel_asked).where(*_in_batch(batch.name))
        rows = t.execute(found.where(among(t, jobs.c.number, list(by_number))).order_by(jobs.c.number)).all()
        over = [by_number[row.number] for row in rows if by_number[row.number].state != "waiting"]
        waiting = [row for row in rows if by_number[row.number].state == "waiting"]
        again = [by_number[row.number] for row in waiting if not row.cancel_asked]
        now = now_of(t)
        kept = ("state", "status_code", "error", "input_tokens", "output_tokens", "cached_tokens")
        ended = [
            {"its_number": one.number, "sequence": sequence, **{name: getattr(one, name) for name in kept}}
            for sequence, one in zip(_sequences(t, len(over)), over, strict=True)
        ]
        _each(t, sa.update(jobs).where(_IS_NUMBER).values(finished_at=now), ended)
        stored = [{"number": one.number, "body": one.body, "request_id": one.request_id} for one in over]
        _each(t, sa.insert(answers), stored)
        put_off = [
            {
                "its_number": one.number,
                "not_before": now + one.not_before_s,
                **{name: getattr(one, name) for name in kept[:3]},
            }
            for one in again
        ]
        _each(t, sa.update(jobs).where(_IS_NUMBER), put_off)
        _end_cancelled(t, [row.number for row in waiting if row.cancel_asked])
        return len(rows)

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
        LeaseLostError like `advance`.
        """
        _check_lease(t, batch)
        return _settle(t, batch.name, state, error=error, not_before_s=not_before_s, sent=sent)

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


def _each(t: sa.Connection, statement: sa.Executable, rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        t.execute(statement, rows)


def _job_of(row: Any) -> Job:
    return Job(**{column.name: row._mapping[column] for column in _JOB})


def _finished(row: Any) -> Finished:
    return Finished(_job_of(row), row.sequence, row.body or b"", row.request_id)


def _with_keys(t: sa.Connection, keys: Sequence[str] | None, *columns: Any) -> sa.Select[Any]:
    """Return the selection of jobs with these keys, or of all."""
    statement = sa.select(*columns).select_from(jobs)
    return statement if keys is None else statement.where(among(t, jobs.c.key, keys))


def _found(t: sa.Connection, keys: Sequence[str]) -> dict[str, Job]:
    return {job.key: job for job in map(_job_of, t.execute(_with_keys(t, keys, *_JOB)).all())}


def _due(t: sa.Connection) -> tuple[sa.ColumnElement[bool], ...]:
    return jobs.c.state == "waiting", jobs.c.not_before <= now_of(t)


def _in_batch(name: str) -> tuple[sa.ColumnElement[bool], ...]:
    return jobs.c.batch == name, jobs.c.state == "packed"


def _batches(t: sa.Connection, *conditions: sa.ColumnElement[bool]) -> list[BatchRow]:
    statement = sa.select(*_BATCH).where(*conditions).order_by(batches.c.planned_at, batches.c.name)
    return [BatchRow(**row._mapping) for row in t.execute(statement).all()]


def _check_lease(t: sa.Connection, held: BatchRow) -> None:
    """Raise LeaseLostError where a batch is not as its worker knows it."""
    found = next(iter(_batches(t, batches.c.name == held.name)), None)
    if found is None or (found.state, found.owner, found.turn) != (held.state, held.owner, held.turn):
        now = "is not there any more" if found is None else f"is {found.state}, in its turn {found.turn}"
        raise LeaseLostError(
            f"the batch {held.name} was {held.state}, in its turn {held.turn}, and {now}: another worker has gone on "
            f"with it, and nothing was written"
        )


def _sequences(t: sa.Connection, count: int) -> range:
    """Take the next numbers of the order in which jobs are over."""
    last = t.execute(sa.select(queue.c.finished)).scalar_one() + count
    t.execute(sa.update(queue).values(finished=last))
    return range(last - count + 1, last + 1)


def _end_cancelled(t: sa.Connection, numbers: Sequence[int]) -> None:
    if numbers:
        over = {"state": "cancelled", "finished_at": now_of(t)}
        sequences = zip(numbers, _sequences(t, len(numbers)), strict=True)
        rows = [{"its_number": number, "sequence": sequence} for number, sequence in sequences]
        t.execute(sa.update(jobs).where(_IS_NUMBER).values(over), rows)


def _settle(
    t: sa.Connection,
    name: str,
    state: Literal["collected", "abandoned"],
    *,
    error: str | None,
    not_before_s: float = 0.0,
    sent: bool = True,
) -> int:
    now = now_of(t)
    inside = sa.select(jobs.c.number, jobs.c.cancel_asked).where(*_in_batch(name))
    rows = t.execute(inside.order_by(jobs.c.number)).all()
    _end_cancelled(t, [row.number for row in rows if row.cancel_asked])
    again = {"state": "waiting", "not_before": now + not_before_s, "error": error}
    attempts = jobs.c.attempts - (0 if sent else 1)
    t.execute(sa.update(jobs).where(*_in_batch(name)).values(attempts=attempts, **again))
    # Without an error the one that was recorded before stays.
    ended = {"state": state, "changed_at": now, "error": sa.func.coalesce(error, batches.c.error)}
    t.execute(sa.update(batches).where(batches.c.name == name).values(ended))
    return len(rows)
