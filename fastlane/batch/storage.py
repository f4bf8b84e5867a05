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
from .database import Transaction, answers, batches, bodies, jobs, open_database, queue, workers
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

# Other writers wait for a transaction: this is about a tenth of a second's work.
_CHUNK = 5_000
_RATE_WINDOW_S = 3_600.0
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
) -> Callable[[Callable[Concatenate[Storage, Transaction, P], T]], Callable[Concatenate[Storage, P], T]]:
    def decorate(method: Callable[Concatenate[Storage, Transaction, P], T]) -> Callable[Concatenate[Storage, P], T]:
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
        self.queue_id: str = self._database.run(lambda t: t.one(sa.select(queue.c.queue_id)), writes=False)
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
    def now(self, t: Transaction) -> float:
        """Return the time by the clock of the database."""
        return t.now()

    # For applications.

    @_writes
    def add(self, t: Transaction, new: Sequence[NewJob]) -> list[Job]:
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
        known = {row.key: row.digest for row in t.all(_with_keys(t, list(by_key), jobs.c.key, jobs.c.digest))}
        for key, digest in known.items():
            if digest != by_key[key].digest:
                raise JobConflictError(
                    f"a job with the key {key!r} is in the queue already, with another body or for another endpoint: "
                    f"submit this one with another key, or forget the other (`queue.forget`) once it is over",
                    key,
                )
        missing = [job for job in by_key.values() if job.key not in known]
        fresh = {"state": "waiting", "attempts": 0, "not_before": 0.0, "submitted_at": t.now(), "cancel_asked": False}
        t.many(
            sa.insert(jobs),
            [
                {"key": job.key, "endpoint": job.endpoint, "model": job.model, "size": len(job.body),
                 "digest": job.digest, **fresh}
                for job in missing
            ],
        )  # fmt: skip
        found = _found(t, list(by_key))
        t.many(sa.insert(bodies), [{"number": found[job.key].number, "body": job.body} for job in missing])
        return [found[job.key] for job in new]

    @_reads
    def find(self, t: Transaction, keys: Iterable[str]) -> dict[str, Job]:
        """Return the jobs of these keys, by key."""
        return _found(t, list(keys))

    @_reads
    def answers(self, t: Transaction, keys: Iterable[str]) -> dict[str, Finished]:
        """Return the answers of those of these jobs that are over, by key."""
        found = map(_finished, t.all(_ANSWERS.where(t.among(jobs.c.key, list(keys)))))
        return {one.key: one for one in found}

    @_reads
    def answers_after(self, t: Transaction, sequence: int, most: int) -> list[Finished]:
        """Return the answers of the first jobs that were over after this one, in that order."""
        rows = t.all(_ANSWERS.where(jobs.c.sequence > sequence).order_by(jobs.c.sequence).limit(most))
        return [_finished(row) for row in rows]

    @_reads
    def unfinished(self, t: Transaction, keys: Sequence[str] | None = None) -> int:
        """Return how many of these jobs, or of all, are not over."""
        return int(t.one(_with_keys(t, keys, sa.func.count(jobs.c.number)).where(_UNFINISHED)))

    @_writes
    def cancel(self, t: Transaction, keys: Sequence[str] | None) -> list[Job]:
        """Cancel jobs: those that were not sent at once; the others are marked. None: all that are not over."""
        is_planned = sa.exists().where(batches.c.name == jobs.c.batch, batches.c.state == "planned")
        is_unsent = sa.or_(jobs.c.state == "waiting", is_planned).label("is_unsent")
        rows = t.all(_with_keys(t, keys, jobs.c.key, jobs.c.number, is_unsent).where(_UNFINISHED).order_by("number"))
        _end_cancelled(t, [row.number for row in rows if row.is_unsent])
        sent = [row.number for row in rows if not row.is_unsent]
        t.do(sa.update(jobs).where(t.among(jobs.c.number, sent)).values(cancel_asked=True))
        keys = [row.key for row in rows] if keys is None else keys
        found = _found(t, keys)
        return [found[key] for key in keys if key in found]

    @_writes
    def retry_failed(self, t: Transaction, keys: Sequence[str] | None = None) -> int:
        """Let failed jobs, or those with these keys, wait again as if they were new. Return how many."""
        failed = _with_keys(t, keys, jobs.c.number).where(jobs.c.state == "failed")
        numbers = [row.number for row in t.all(failed)]
        t.do(sa.delete(answers).where(t.among(answers.c.number, numbers)))
        cleared = ("finished_at", "sequence", "status_code", "error", "input_tokens", "output_tokens", "cached_tokens")
        again = {"state": "waiting", "attempts": 0, "not_before": 0.0, "cancel_asked": False, **dict.fromkeys(cleared)}
        return t.do(sa.update(jobs).where(t.among(jobs.c.number, numbers)).values(again))

    def forget(
        self, *, keys: Sequence[str] | None = None, states: Sequence[JobState], older_than_s: float = 0.0
    ) -> int:
        """Delete jobs that have been over for so long, in one of these states, and settled batches without jobs.

        Return how many jobs.
        """
        total = 0
        while count := self._forget(keys, [state for state in states if state in OVER], older_than_s):
            total += count
        self._forget_batches(older_than_s)
        return total

    @_writes
    def _forget(self, t: Transaction, keys: Sequence[str] | None, states: Sequence[str], older_than_s: float) -> int:
        old = jobs.c.state.in_(states), jobs.c.finished_at <= t.now() - older_than_s
        numbers = [row.number for row in t.all(_with_keys(t, keys, jobs.c.number).where(*old).limit(_CHUNK))]
        for table in (answers, bodies, jobs):
            t.do(sa.delete(table).where(t.among(table.c.number, numbers)))
        return len(numbers)

    @_writes
    def _forget_batches(self, t: Transaction, older_than_s: float) -> None:
        has_jobs = sa.exists().where(jobs.c.batch == batches.c.name)
        t.do(sa.delete(batches).where(~_LIVE, batches.c.changed_at <= t.now() - older_than_s, ~has_jobs))

    @_reads
    def status(self, t: Transaction) -> Status:
        """Return the state of the whole queue."""
        now, count = t.now(), sa.func.count()
        counts: dict[JobState, int] = dict.fromkeys(JOB_STATES, 0)
        counts.update({row.state: row[1] for row in t.all(sa.select(jobs.c.state, count).group_by("state"))})
        oldest = t.one(sa.select(sa.func.min(jobs.c.submitted_at)).where(jobs.c.state == "waiting"))
        (tokens,) = t.all(sa.select(*(sa.func.sum(jobs.c[f"{kind}_tokens"]) for kind in ("input", "output", "cached"))))
        finished = jobs.c.state.in_(["done", "failed"]), jobs.c.finished_at > now - _RATE_WINDOW_S
        ((recent, first),) = t.all(sa.select(count, sa.func.min(jobs.c.submitted_at)).where(*finished))
        reasons = sa.select(jobs.c.error, jobs.c.status_code, count).where(jobs.c.state == "failed")
        failures = Counter[str]()
        for error, status_code, number in t.all(reasons.group_by(jobs.c.error, jobs.c.status_code)):
            failures[error or (f"HTTP {status_code}" if status_code else "unknown")] += number
        rate = recent / max(1e-3, min(_RATE_WINDOW_S, now - first)) if recent else None
        left = sum(count for state, count in counts.items() if state not in OVER)
        return Status(
            jobs=counts,
            batches=tuple(_batches(t, _LIVE)),
            batches_settled=t.one(sa.select(count).select_from(batches).where(~_LIVE)),
            workers=t.one(sa.select(count).select_from(workers).where(workers.c.lease_until > now)),
            oldest_waiting_s=None if oldest is None else max(0.0, now - oldest),
            finished_per_s=rate,
            expected_end_s=0.0 if not left else None if rate is None else left / rate,
            input_tokens=int(tokens[0] or 0),
            output_tokens=int(tokens[1] or 0),
            cached_tokens=int(tokens[2] or 0),
            failures=dict(failures.most_common()),
        )

    @_writes
    def abandon(self, t: Transaction, origin: str) -> int:
        """Give up the batches at a base URL that no worker leases. Return how many of their jobs wait again."""
        gone = sa.func.rtrim(batches.c.origin, "/") == origin.rstrip("/")
        found = _batches(t, _LIVE, gone, batches.c.lease_until < t.now())
        return sum(_settle(t, batch.name, "abandoned", error="given_up") for batch in found)

    # For workers.

    @_reads
    def groups(self, t: Transaction) -> list[JobGroup]:
        """Return the jobs that may be packed now, by endpoint and model, the oldest group first."""
        columns = sa.func.count(), sa.func.sum(jobs.c.size), sa.func.min(jobs.c.submitted_at)
        statement = sa.select(jobs.c.endpoint, jobs.c.model, *columns).where(*_due(t))
        rows = t.all(statement.group_by(jobs.c.endpoint, jobs.c.model).order_by(sa.func.min(jobs.c.number)))
        return [JobGroup(endpoint, model, count, int(size), oldest) for endpoint, model, count, size, oldest in rows]

    @_writes
    def claim(
        self,
        t: Transaction,
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
        now = t.now()
        in_group = jobs.c.endpoint == group.endpoint, jobs.c.model == group.model
        waiting = sa.select(jobs.c.number, jobs.c.size).where(*_due(t), *in_group)
        numbers: list[int] = []
        size = 0
        for row in t.all(waiting.order_by(jobs.c.number).limit(most_requests)):
            if numbers and size + row.size + LINE_BYTES > most_bytes:
                break
            numbers.append(row.number)
            size += row.size + LINE_BYTES
        if not numbers:
            return None
        name = f"fastlane-{self.queue_id}-{token_hex(8)}"
        packed = {"state": "packed", "batch": name, "attempts": jobs.c.attempts + 1}
        t.do(sa.update(jobs).where(t.among(jobs.c.number, numbers)).values(packed))
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
        t.do(sa.insert(batches).values(asdict(batch)))
        return batch

    @_writes
    def advance(self, t: Transaction, /, batch: BatchRow, state: BatchState, **changes: Any) -> BatchRow:
        """Record the next step of a batch, with other columns of it, and return it. Only `settle` ends a batch.

        Raises LeaseLostError unless its (state, owner, turn) are those of `batch`.
        """
        if state in SETTLED or BATCH_STATES.index(state) < BATCH_STATES.index(batch.state):
            raise ValueError(f"a batch that is {batch.state} cannot become {state} by this")
        _check_lease(t, batch)
        if state != batch.state:
            changes["changed_at"] = t.now()
        t.do(sa.update(batches).where(batches.c.name == batch.name).values({"state": state, **changes}))
        return _batches(t, batches.c.name == batch.name)[0]

    @_reads
    def heads(self, t: Transaction, batch: BatchRow) -> list[Job]:
        """Return the jobs that are still in a batch, in order."""
        return [_job_of(row) for row in t.all(sa.select(*_JOB).where(*_in_batch(batch.name)).order_by(jobs.c.number))]

    def bodies(self, batch: BatchRow, *, chunk: int = 500) -> Iterator[tuple[Job, bytes]]:
        """Yield the same with their bodies, read in chunks."""
        after = 0
        while found := self._bodies_after(batch.name, after, chunk):
            yield from found
            after = found[-1][0].number

    @_reads
    def _bodies_after(self, t: Transaction, name: str, after: int, most: int) -> list[tuple[Job, bytes]]:
        rows = t.all(_BODIES.where(*_in_batch(name), jobs.c.number > after).limit(most))
        return [(_job_of(row), row.body) for row in rows]

    @_reads
    def is_wanted(self, t: Transaction, batch: BatchRow) -> bool:
        """Return whether any job of a batch was not cancelled."""
        wanted = sa.select(sa.func.count()).where(*_in_batch(batch.name), ~jobs.c.cancel_asked)
        return bool(t.one(wanted))

    @_writes
    def record(self, t: Transaction, batch: BatchRow, outcomes: Sequence[JobOutcome]) -> int:
        """Record the outcomes of jobs of a batch. Return how many were recorded.

        Jobs that are no longer in this batch are skipped, so that a file may be read again from its beginning. Raises
        LeaseLostError like `advance`.
        """
        _check_lease(t, batch)
        return _record(t, outcomes, *_in_batch(batch.name))

    @_writes
    def settle(
        self,
        t: Transaction,
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
    def extend(self, t: Transaction, owner: str, *, lease_s: float) -> list[BatchRow]:
        """Lease all unsettled batches of a worker for so long from now.

        Return the batches as they are now. A missing one was taken over. One that the worker does not know is its own:
        the acknowledgement of its last step was lost.
        """
        now = t.now()
        t.do(sa.delete(workers).where(sa.or_(workers.c.lease_until < now, workers.c.owner == owner)))
        t.do(sa.insert(workers).values(owner=owner, lease_until=now + lease_s))
        own = batches.c.owner == owner
        t.do(sa.update(batches).where(own, _LIVE).values(lease_until=now + lease_s))
        return _batches(t, own, _LIVE)

    @_writes
    def take_over(self, t: Transaction, owner: str, *, origin: str, lease_s: float, most: int = 16) -> list[BatchRow]:
        """Lease batches of this origin, or not at any provider, whose lease has run out, the oldest first."""
        now = t.now()
        not_created = batches.c.state.in_(["planned", "uploading", "uploaded", "running"])
        left = _batches(t, _LIVE, sa.or_(batches.c.origin == origin, not_created), batches.c.lease_until < now)
        mine = t.among(batches.c.name, [batch.name for batch in left[:most]])
        lease = {"owner": owner, "turn": batches.c.turn + 1, "lease_until": now + lease_s}
        t.do(sa.update(batches).where(mine).values(lease))
        return _batches(t, mine)

    @_writes
    def let_go(self, t: Transaction, owner: str) -> None:
        """End all leases of a worker, so that others may go on at once."""
        t.do(sa.delete(workers).where(workers.c.owner == owner))
        t.do(sa.update(batches).where(batches.c.owner == owner, _LIVE).values(lease_until=0.0))


def _job_of(row: Any) -> Job:
    return Job(**{column.name: row._mapping[column] for column in _JOB})


def _finished(row: Any) -> Finished:
    return Finished(_job_of(row), row.sequence, row.body or b"", row.request_id)


def _with_keys(t: Transaction, keys: Sequence[str] | None, *columns: Any) -> sa.Select[Any]:
    """Return the selection of jobs with these keys, or of all."""
    statement = sa.select(*columns).select_from(jobs)
    return statement if keys is None else statement.where(t.among(jobs.c.key, keys))


def _found(t: Transaction, keys: Sequence[str]) -> dict[str, Job]:
    return {job.key: job for job in map(_job_of, t.all(_with_keys(t, keys, *_JOB)))}


def _due(t: Transaction) -> tuple[sa.ColumnElement[bool], ...]:
    return jobs.c.state == "waiting", jobs.c.not_before <= t.now()


def _in_batch(name: str) -> tuple[sa.ColumnElement[bool], ...]:
    return jobs.c.batch == name, jobs.c.state == "packed"


def _batches(t: Transaction, *conditions: sa.ColumnElement[bool]) -> list[BatchRow]:
    statement = sa.select(*_BATCH).where(*conditions).order_by(batches.c.planned_at, batches.c.name)
    return [BatchRow(**row._mapping) for row in t.all(statement)]


def _check_lease(t: Transaction, held: BatchRow) -> None:
    """Raise LeaseLostError where a batch is not as its worker knows it."""
    found = next(iter(_batches(t, batches.c.name == held.name)), None)
    if found is None or (found.state, found.owner, found.turn) != (held.state, held.owner, held.turn):
        now = "is not there any more" if found is None else f"is {found.state}, in its turn {found.turn}"
        raise LeaseLostError(
            f"the batch {held.name} was {held.state}, in its turn {held.turn}, and {now}: another worker has gone on "
            f"with it, and nothing was written"
        )


def _sequences(t: Transaction, count: int) -> range:
    """Take the next numbers of the order in which jobs are over."""
    last = t.one(sa.select(queue.c.finished)) + count
    t.do(sa.update(queue).values(finished=last))
    return range(last - count + 1, last + 1)


def _end_cancelled(t: Transaction, numbers: Sequence[int]) -> None:
    if numbers:
        over = {"state": "cancelled", "finished_at": t.now()}
        sequences = _sequences(t, len(numbers))
        t.many(
            sa.update(jobs).where(_IS_NUMBER).values(over),
            [{"its_number": number, "sequence": at} for number, at in zip(numbers, sequences, strict=True)],
        )


def _record(t: Transaction, outcomes: Sequence[JobOutcome], *mine: sa.ColumnElement[bool]) -> int:
    """Record the outcomes of those jobs that meet the conditions. Return how many."""
    by_number = {outcome.number: outcome for outcome in outcomes}
    columns = jobs.c.number, jobs.c.cancel_asked
    rows = t.all(sa.select(*columns).where(*mine, t.among(jobs.c.number, list(by_number))).order_by(jobs.c.number))
    over = [by_number[row.number] for row in rows if by_number[row.number].state != "waiting"]
    again = [by_number[row.number] for row in rows if by_number[row.number].state == "waiting" and not row.cancel_asked]
    now = t.now()
    kept = ("state", "status_code", "error", "input_tokens", "output_tokens", "cached_tokens")
    t.many(
        sa.update(jobs).where(_IS_NUMBER).values(finished_at=now),
        [
            {"its_number": one.number, "sequence": sequence, **{name: getattr(one, name) for name in kept}}
            for sequence, one in zip(_sequences(t, len(over)), over, strict=True)
        ],
    )
    t.many(
        sa.insert(answers),
        [{"number": one.number, "body": one.body, "request_id": one.request_id} for one in over],
    )
    t.many(
        sa.update(jobs).where(_IS_NUMBER).values(state="waiting"),
        [
            {"its_number": one.number, "not_before": now + one.not_before_s, "error": one.error,
             "status_code": one.status_code}
            for one in again
        ],
    )  # fmt: skip
    ended = {one.number for one in (*over, *again)}
    _end_cancelled(t, [row.number for row in rows if row.number not in ended])
    return len(rows)


def _settle(
    t: Transaction,
    name: str,
    state: Literal["collected", "abandoned"],
    *,
    error: str | None,
    not_before_s: float = 0.0,
    sent: bool = True,
) -> int:
    now = t.now()
    rows = t.all(sa.select(jobs.c.number, jobs.c.cancel_asked).where(*_in_batch(name)).order_by(jobs.c.number))
    _end_cancelled(t, [row.number for row in rows if row.cancel_asked])
    again = {"state": "waiting", "not_before": now + not_before_s, "error": error}
    t.do(sa.update(jobs).where(*_in_batch(name)).values(again | {"attempts": jobs.c.attempts - (0 if sent else 1)}))
    # Without an error the one that was recorded before stays.
    ended = {"state": state, "changed_at": now, "error": sa.func.coalesce(error, batches.c.error)}
    t.do(sa.update(batches).where(batches.c.name == name).values(ended))
    return len(rows)
