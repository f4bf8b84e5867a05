"""A queue in a database. Every method is one transaction: durable when it returns, not done when it raises.

Times are seconds since the epoch by the clock of the database, and arguments are seconds from now. A lease that has run
out stays its owner's until another worker takes it over: what keeps two workers apart is that every write is compared
with `(state, owner, turn)` of the batch.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, fields, replace
from secrets import token_hex
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import sqlalchemy as sa

from .database import Transaction, TryAgainError, open_database
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
    JobAnswer,
    JobBody,
    JobGroup,
    JobOutcome,
    JobState,
    NewJob,
    Status,
)
from .schema import answers, batches, bodies, jobs, queue, workers

P = ParamSpec("P")
T = TypeVar("T")

# Others that write wait for a transaction: it holds no more than about a tenth of a second's work.
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
        """A few letters and digits, made once for each queue: the names of its batches begin with them."""

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

    # The application's side.

    @_writes
    def add(self, t: Transaction, new: Sequence[NewJob]) -> list[Job]:
        """Add jobs, all or none, and return them in order.

        One whose key is there with the same digest is that job. Raises JobConflictError for another digest.
        """
        by_key: dict[str, NewJob] = {}
        for job in new:
            if by_key.setdefault(job.key, job).digest != job.digest:
                raise JobConflictError(
                    f"two jobs with the key {job.key!r} are submitted together, with different bodies or endpoints: "
                    f"give each its own key",
                    key=job.key,
                )
        kept = sa.select(jobs.c.key, jobs.c.number, jobs.c.digest).where(t.among(jobs.c.key, list(by_key)))
        known = {row.key for row in t.all(kept)}
        missing = [job for job in by_key.values() if job.key not in known]
        now = t.now()
        t.many(
            t.insert(jobs).on_conflict_do_nothing(),
            [
                {
                    "key": job.key, "endpoint": job.endpoint, "model": job.model, "size": len(job.body),
                    "digest": job.digest, "state": "waiting", "submitted_at": now,
                }
                for job in missing
            ],
        )  # fmt: skip
        rows = {row.key: row for row in t.all(kept)}
        for key, job in by_key.items():
            if key not in rows:
                raise TryAgainError  # it was there, and has been forgotten meanwhile
            if rows[key].digest != job.digest:
                raise JobConflictError(
                    f"a job with the key {key!r} is in the queue already, with another body or for another endpoint: "
                    f"submit this one with another key, or forget the other (`queue.forget`) once it is over",
                    key=key,
                )
        t.many(
            t.insert(bodies).on_conflict_do_nothing(),
            [{"number": rows[job.key].number, "body": job.body} for job in missing],
        )
        found = _found(t, list(by_key))
        return [found[job.key] for job in new]

    @_reads
    def find(self, t: Transaction, keys: Iterable[str]) -> dict[str, Job]:
        """Return the jobs of these keys, by key."""
        return _found(t, list(keys))

    @_reads
    def answers(self, t: Transaction, keys: Iterable[str]) -> dict[str, JobAnswer]:
        """Return what is kept of those of these jobs that are over."""
        found = map(_answer_of, t.all(_ANSWERS.where(t.among(jobs.c.key, list(keys)))))
        return {answer.job.key: answer for answer in found}

    @_reads
    def answers_after(self, t: Transaction, sequence: int, most: int) -> list[JobAnswer]:
        """Return what is kept of the first jobs that were over after this one, in that order."""
        rows = t.all(_ANSWERS.where(jobs.c.sequence > sequence).order_by(jobs.c.sequence).limit(most))
        return [_answer_of(row) for row in rows]

    @_reads
    def unfinished(self, t: Transaction, keys: Sequence[str] | None = None) -> int:
        """Return how many of these jobs, or of all, are not over."""
        statement = sa.select(sa.func.count()).select_from(jobs).where(_UNFINISHED)
        return int(t.one(statement if keys is None else statement.where(t.among(jobs.c.key, keys))))

    def cancel(self, keys: Sequence[str] | None) -> list[Job]:
        """Cancel jobs: those that wait, or whose batch is `planned`, at once; those under way are marked.

        None: all that are not over.
        """
        if keys is not None:
            return self._cancel(keys)
        cancelled: list[Job] = []
        while page := self._unfinished_after(cancelled[-1].number if cancelled else 0):
            cancelled += self._cancel(page)
        return cancelled

    @_reads
    def _unfinished_after(self, t: Transaction, number: int) -> list[str]:
        statement = sa.select(jobs.c.key).where(_UNFINISHED, jobs.c.number > number)
        return [row.key for row in t.all(statement.order_by(jobs.c.number).limit(_CHUNK))]

    @_writes
    def _cancel(self, t: Transaction, keys: Sequence[str]) -> list[Job]:
        mine = t.among(jobs.c.key, keys)
        # Batches first, as those who record do, and in the order of their names.
        names = [row.batch for row in t.all(sa.select(jobs.c.batch).distinct().where(jobs.c.state == "packed", mine))]
        lock = sa.select(batches.c.name, batches.c.state).where(t.among(batches.c.name, names))
        states = {row.name: row.state for row in t.all(lock.order_by(batches.c.name).with_for_update())}
        ended = []
        rows = t.all(sa.select(*_JOB).where(mine).order_by(jobs.c.number).with_for_update())
        for job in map(_job_of, rows):
            in_batch = batches.c.name == job.batch
            if job.state == "packed" and job.batch not in states:
                raise TryAgainError  # it was packed in between
            if job.state == "waiting":
                ended.append(job.number)
            elif job.state == "packed" and states[job.batch] == "planned":
                ended.append(job.number)
                less = {"requests": batches.c.requests - 1, "bytes": batches.c.bytes - job.size - LINE_BYTES}
                t.do(sa.update(batches).where(in_batch).values(less))
            elif not job.over and not job.cancel_asked:
                t.do(sa.update(jobs).where(jobs.c.number == job.number).values(cancel_asked=True))
                if job.state == "packed":
                    t.do(sa.update(batches).where(in_batch).values(unwanted=batches.c.unwanted + 1))
        _end_cancelled(t, ended)
        found = _found(t, keys)
        return [found[key] for key in keys if key in found]

    @_writes
    def retry_failed(self, t: Transaction, keys: Sequence[str] | None = None) -> int:
        """Let failed jobs, or those of them with these keys, wait again, with no attempts counted; return how many."""
        statement = sa.select(jobs.c.number).where(jobs.c.state == "failed")
        if keys is not None:
            statement = statement.where(t.among(jobs.c.key, keys))
        numbers = [row.number for row in t.all(statement.with_for_update())]
        t.do(sa.delete(answers).where(t.among(answers.c.number, numbers)))
        fresh = dict.fromkeys(
            ("finished_at", "sequence", "status_code", "error", "input_tokens", "output_tokens", "cached_tokens")
        )
        again = {"state": "waiting", "attempts": 0, "not_before": 0.0, "cancel_asked": False, **fresh}
        return t.do(sa.update(jobs).where(t.among(jobs.c.number, numbers)).values(again))

    def forget(
        self, *, keys: Sequence[str] | None = None, states: Sequence[JobState], older_than_s: float = 0.0
    ) -> int:
        """Delete jobs that are over in one of these states, for so long; return how many.

        Settled batches without jobs are deleted too.
        """
        total = 0
        while count := self._forget(keys, [state for state in states if state in OVER], older_than_s):
            total += count
        self._forget_batches(older_than_s)
        return total

    @_writes
    def _forget(self, t: Transaction, keys: Sequence[str] | None, states: Sequence[str], older_than_s: float) -> int:
        statement = sa.select(jobs.c.number).where(
            jobs.c.state.in_(states), jobs.c.finished_at <= t.now() - older_than_s
        )
        if keys is not None:
            statement = statement.where(t.among(jobs.c.key, keys))
        numbers = [row.number for row in t.all(statement.limit(_CHUNK).with_for_update())]
        for table in (answers, bodies, jobs):
            t.do(sa.delete(table).where(t.among(table.c.number, numbers)))
        return len(numbers)

    @_writes
    def _forget_batches(self, t: Transaction, older_than_s: float) -> None:
        has_jobs = sa.exists().where(jobs.c.batch == batches.c.name)
        t.do(sa.delete(batches).where(~_LIVE, batches.c.changed_at <= t.now() - older_than_s, ~has_jobs))

    @_reads
    def status(self, t: Transaction) -> Status:
        """Return the whole at this moment."""
        now = t.now()
        counts: dict[JobState, int] = dict.fromkeys(JOB_STATES, 0)
        counts.update({row.state: row[1] for row in t.all(sa.select(jobs.c.state, sa.func.count()).group_by("state"))})
        oldest = t.one(sa.select(sa.func.min(jobs.c.submitted_at)).where(jobs.c.state == "waiting"))
        (tokens,) = t.all(sa.select(*(sa.func.sum(jobs.c[f"{kind}_tokens"]) for kind in ("input", "output", "cached"))))
        ((recent, first),) = t.all(
            sa.select(sa.func.count(), sa.func.min(jobs.c.submitted_at)).where(
                jobs.c.state.in_(["done", "failed"]), jobs.c.finished_at > now - _RATE_WINDOW_S
            )
        )
        reasons = sa.select(jobs.c.error, jobs.c.status_code, sa.func.count()).where(jobs.c.state == "failed")
        failures = Counter[str]()
        for error, status_code, count in t.all(reasons.group_by(jobs.c.error, jobs.c.status_code)):
            failures[error or (f"HTTP {status_code}" if status_code else "unknown")] += count
        rate = recent / max(1e-3, min(_RATE_WINDOW_S, now - first)) if recent else None
        left = sum(count for state, count in counts.items() if state not in OVER)
        return Status(
            jobs=counts,
            batches=tuple(_batches(t, _LIVE)),
            batches_settled=t.one(sa.select(sa.func.count()).select_from(batches).where(~_LIVE)),
            workers=t.one(sa.select(sa.func.count()).select_from(workers).where(workers.c.lease_until > now)),
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
        """Give up the batches that are at a base URL and under no lease; return how many of their jobs wait again."""
        gone = sa.func.rtrim(batches.c.origin, "/") == origin.rstrip("/")
        lock = sa.select(*_BATCH).where(_LIVE, gone, batches.c.lease_until < t.now()).order_by(batches.c.name)
        found = [_batch_of(row) for row in t.all(lock.with_for_update())]
        return sum(_settle(t, batch.name, "abandoned", error="given_up") for batch in found)

    # The workers' side: batches.

    @_reads
    def groups(self, t: Transaction) -> list[JobGroup]:
        """Return what waits and may be packed now, by what can go into one batch; the oldest first."""
        columns = sa.func.count(), sa.func.sum(jobs.c.size), sa.func.min(jobs.c.submitted_at)
        statement = sa.select(jobs.c.endpoint, jobs.c.model, *columns).where(_may_go(t))
        rows = t.all(statement.group_by(jobs.c.endpoint, jobs.c.model).order_by(sa.func.min(jobs.c.number)))
        return [JobGroup(endpoint, model, count, int(size), oldest) for endpoint, model, count, size, oldest in rows]

    @_writes
    def claim(
        self,
        t: Transaction,
        owner: str,
        *,
        origin: str,
        endpoint: str,
        model: str,
        most_requests: int,
        most_bytes: int,
        lease_s: float,
    ) -> BatchRow | None:
        """Pack the first waiting jobs of a group into a new batch, `planned`; None where none waits.

        As many as fit into both limits. A job that is too large by itself becomes a batch of one. Counts an attempt of
        each.
        """
        now = t.now()
        group = jobs.c.endpoint == endpoint, jobs.c.model == model
        waiting = sa.select(jobs.c.number, jobs.c.size).where(_may_go(t), *group)
        numbers: list[int] = []
        size = 0
        for row in t.all(waiting.order_by(jobs.c.number).limit(most_requests).with_for_update(skip_locked=True)):
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
            state="planned",
            origin=origin,
            endpoint=endpoint,
            model=model,
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

    def advance(self, batch: BatchRow, state: BatchState, **changes: Any) -> BatchRow:
        """Record the next step of a batch, or more of the same step, with other columns of it. Return it as it is now.

        Steps only go on, and to `collected` or `abandoned` by `settle` alone. Raises LeaseLostError unless its (state,
        owner, turn) are those of `batch`.
        """
        if state in SETTLED or BATCH_STATES.index(state) < BATCH_STATES.index(batch.state):
            raise ValueError(f"a batch that is {batch.state} cannot become {state} by this")
        return self._advance(batch, state, changes)

    @_writes
    def _advance(self, t: Transaction, batch: BatchRow, state: BatchState, changes: dict[str, Any]) -> BatchRow:
        if state != batch.state:
            changes = {**changes, "state": state, "changed_at": t.now()}
        else:
            changes = {**changes, "state": state}
        done = t.do(sa.update(batches).where(*_held(batch)).values(changes))
        found = _batch(t, batch.name)
        if found is None or not done:
            raise _lost(batch, found)
        return found

    @_reads
    def heads(self, t: Transaction, batch: BatchRow) -> list[Job]:
        """Return the jobs that are still in a batch, in order. From `uploading` on only `record` takes any out."""
        statement = sa.select(*_JOB).where(jobs.c.batch == batch.name, jobs.c.state == "packed")
        return [_job_of(row) for row in t.all(statement.order_by(jobs.c.number))]

    def bodies(self, batch: BatchRow, *, chunk: int = 500) -> Iterator[JobBody]:
        """Yield the same with what is to be sent; read in chunks, each in a transaction of its own."""
        after = 0
        while found := self._bodies_after(batch.name, after, chunk):
            yield from found
            after = found[-1].job.number

    @_reads
    def _bodies_after(self, t: Transaction, name: str, after: int, most: int) -> list[JobBody]:
        mine = jobs.c.batch == name, jobs.c.state == "packed", jobs.c.number > after
        return [JobBody(_job_of(row), row.body) for row in t.all(_BODIES.where(*mine).limit(most))]

    @_writes
    def record(self, t: Transaction, batch: BatchRow, outcomes: Sequence[JobOutcome]) -> int:
        """Record what became of jobs of a batch; return how many were recorded.

        Those that are no more in this batch are skipped: a file that was read in part may be read again from its
        beginning. Raises LeaseLostError like `advance`.
        """
        _hold(t, batch)
        return _record(t, outcomes, jobs.c.state == "packed", jobs.c.batch == batch.name)

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
        """End a batch. Jobs still in it wait again (those that were cancelled are cancelled); return how many.

        With `sent=False` their attempt is not counted. `error` is recorded of the batch and of these jobs. Raises
        LeaseLostError like `advance`.
        """
        _hold(t, batch)
        return _settle(t, batch.name, state, error=error, not_before_s=not_before_s, sent=sent)

    @_writes
    def extend(self, t: Transaction, owner: str, *, lease_s: float, running: Sequence[int] = ()) -> list[BatchRow]:
        """Lease all unsettled batches of a worker, and these jobs that it runs by themselves, for so long from now.

        Returns the batches as they are now. One that is missing was taken over; one that the worker does not know is
        its own to go on with: the acknowledgement of its last step was lost.
        """
        until = t.now() + lease_s
        t.do(sa.delete(workers).where(sa.or_(workers.c.lease_until < t.now(), workers.c.owner == owner)))
        t.do(sa.insert(workers).values(owner=owner, lease_until=until))
        own = batches.c.owner == owner
        # Locked in the order of their names, as always where several are.
        t.all(sa.select(batches.c.name).where(own, _LIVE).order_by(batches.c.name).with_for_update())
        t.do(sa.update(batches).where(own, _LIVE).values(lease_until=until))
        mine = t.among(jobs.c.number, running), jobs.c.state == "running", jobs.c.owner == owner
        t.do(sa.update(jobs).where(*mine).values(lease_until=until))
        return _batches(t, own, _LIVE)

    @_writes
    def take_over(self, t: Transaction, owner: str, *, origin: str, lease_s: float, most: int = 16) -> list[BatchRow]:
        """Lease batches of this origin, or not created yet, whose lease has run out, the oldest first.

        Jobs that were run by themselves under a lease that has run out wait again.
        """
        now = t.now()
        # Before its creation was recorded there is no batch at any provider: its jobs may be packed anew.
        not_created = batches.c.state.in_(["planned", "uploading", "uploaded"])
        left = _LIVE, sa.or_(batches.c.origin == origin, not_created), batches.c.lease_until < now
        lock = sa.select(*_BATCH).where(*left).order_by(batches.c.planned_at, batches.c.name).limit(most)
        taken = [
            replace(batch, owner=owner, turn=batch.turn + 1, lease_until=now + lease_s)
            for batch in map(_batch_of, t.all(lock.with_for_update(skip_locked=True)))
        ]
        for batch in taken:
            lease = {"owner": batch.owner, "turn": batch.turn, "lease_until": batch.lease_until}
            t.do(sa.update(batches).where(batches.c.name == batch.name).values(lease))
        _release(t, jobs.c.lease_until < now, attempts=0)
        return taken

    @_writes
    def let_go(self, t: Transaction, owner: str) -> None:
        """End all leases of a worker, so that others may go on at once."""
        t.do(sa.delete(workers).where(workers.c.owner == owner))
        t.do(sa.update(batches).where(batches.c.owner == owner, _LIVE).values(lease_until=0.0))
        t.do(sa.update(jobs).where(jobs.c.owner == owner, jobs.c.state == "running").values(lease_until=0.0))

    @_reads
    def batch(self, t: Transaction, name: str) -> BatchRow | None:
        """Return a batch by its name."""
        return _batch(t, name)

    # The workers' side: jobs that are sent by themselves.

    @_writes
    def claim_jobs(
        self,
        t: Transaction,
        owner: str,
        *,
        most: int,
        lease_s: float,
        endpoint: str | None = None,
        model: str | None = None,
    ) -> list[JobBody]:
        """Lease the first waiting jobs (of a group): they are `running`, and an attempt is counted for each."""
        asked = [jobs.c[name] == value for name, value in (("endpoint", endpoint), ("model", model)) if value]
        waiting = sa.select(jobs.c.number).where(_may_go(t), *asked).order_by(jobs.c.number).limit(most)
        mine = t.among(jobs.c.number, [row.number for row in t.all(waiting.with_for_update(skip_locked=True))])
        lease = {"state": "running", "owner": owner, "lease_until": t.now() + lease_s, "batch": None}
        t.do(sa.update(jobs).where(mine).values(**lease, attempts=jobs.c.attempts + 1))
        return [JobBody(_job_of(row), row.body) for row in t.all(_BODIES.where(mine))]

    @_writes
    def record_running(self, t: Transaction, owner: str, outcomes: Sequence[JobOutcome]) -> int:
        """Record what became of jobs that this worker still runs; return how many were recorded."""
        return _record(t, outcomes, jobs.c.state == "running", jobs.c.owner == owner)

    @_writes
    def release_running(self, t: Transaction, owner: str, numbers: Sequence[int]) -> int:
        """Let jobs that were not sent wait again, with their attempt not counted; return how many."""
        return _release(t, t.among(jobs.c.number, numbers), jobs.c.owner == owner, attempts=1)


def _job_of(row: Any) -> Job:
    return Job(**{column.name: row._mapping[column] for column in _JOB})


def _batch_of(row: Any) -> BatchRow:
    return BatchRow(**row._mapping)


def _answer_of(row: Any) -> JobAnswer:
    return JobAnswer(_job_of(row), row.sequence, row.body or b"", row.request_id)


def _found(t: Transaction, keys: Sequence[str]) -> dict[str, Job]:
    found = map(_job_of, t.all(sa.select(*_JOB).where(t.among(jobs.c.key, keys))))
    return {job.key: job for job in found}


def _may_go(t: Transaction) -> sa.ColumnElement[bool]:
    return sa.and_(jobs.c.state == "waiting", jobs.c.not_before <= t.now())


def _batches(t: Transaction, *conditions: sa.ColumnElement[bool]) -> list[BatchRow]:
    statement = sa.select(*_BATCH).where(*conditions).order_by(batches.c.planned_at, batches.c.name)
    return [_batch_of(row) for row in t.all(statement)]


def _batch(t: Transaction, name: str) -> BatchRow | None:
    return next(iter(_batches(t, batches.c.name == name)), None)


def _held(batch: BatchRow) -> tuple[sa.ColumnElement[bool], ...]:
    return tuple(batches.c[name] == getattr(batch, name) for name in ("name", "state", "owner", "turn"))


def _lost(held: BatchRow, found: BatchRow | None) -> LeaseLostError:
    now = "is not there any more" if found is None else f"is {found.state}, in its turn {found.turn}"
    return LeaseLostError(
        f"the batch {held.name} was {held.state}, in its turn {held.turn}, and {now}: another worker has gone on with "
        f"it, and nothing was written"
    )


def _hold(t: Transaction, batch: BatchRow) -> None:
    """Keep others from changing a batch until the transaction is through."""
    if not t.all(sa.select(batches.c.name).where(*_held(batch)).with_for_update()):
        raise _lost(batch, _batch(t, batch.name))


def _sequences(t: Transaction, count: int) -> range:
    """Take places in the order in which jobs were over.

    Others wait for theirs until the transaction is through: so no later place is seen before an earlier one.
    """
    if not count:
        return range(0)
    taken = sa.update(queue).values(finished=queue.c.finished + count).returning(queue.c.finished)
    last = int(t.one(taken))
    return range(last - count + 1, last + 1)


_OF_NO_WORKER = {"owner": None, "lease_until": None}


def _end_cancelled(t: Transaction, numbers: Sequence[int]) -> None:
    over = {"state": "cancelled", "finished_at": t.now(), **_OF_NO_WORKER}
    t.many(
        sa.update(jobs).where(jobs.c.number == sa.bindparam("its")).values(over | {"sequence": sa.bindparam("place")}),
        [{"its": number, "place": place} for number, place in zip(numbers, _sequences(t, len(numbers)), strict=True)],
    )


def _record(t: Transaction, outcomes: Sequence[JobOutcome], *mine: sa.ColumnElement[bool]) -> int:
    """Record the outcomes of those of these jobs that meet the conditions; return how many."""
    by_number = {outcome.number: outcome for outcome in outcomes}
    # Locked, so that a job that is cancelled at this moment does not wait again.
    lock = sa.select(jobs.c.number, jobs.c.cancel_asked).where(*mine, t.among(jobs.c.number, list(by_number)))
    found = {row.number: row.cancel_asked for row in t.all(lock.order_by(jobs.c.number).with_for_update())}
    over = [by_number[number] for number in found if by_number[number].state != "waiting"]
    waiting = [by_number[number] for number in found if by_number[number].state == "waiting"]
    now = t.now()
    kept = ("state", "status_code", "error", "input_tokens", "output_tokens", "cached_tokens")
    is_its = jobs.c.number == sa.bindparam("its")
    t.many(
        sa.update(jobs).where(is_its).values(finished_at=now, **_OF_NO_WORKER),
        [
            {"its": one.number, "sequence": place, **{name: getattr(one, name) for name in kept}}
            for place, one in zip(_sequences(t, len(over)), over, strict=True)
        ],
    )
    insert = t.insert(answers)
    t.many(
        insert.on_conflict_do_update(
            index_elements=["number"], set_={name: insert.excluded[name] for name in ("body", "request_id")}
        ),
        [{"number": one.number, "body": one.body, "request_id": one.request_id} for one in over],
    )
    _end_cancelled(t, [one.number for one in waiting if found[one.number]])
    t.many(
        sa.update(jobs).where(is_its).values(state="waiting", **_OF_NO_WORKER),
        [
            {
                "its": one.number, "not_before": now + one.not_before_s, "error": one.error,
                "status_code": one.status_code,
            }
            for one in waiting
            if not found[one.number]
        ],
    )  # fmt: skip
    return len(found)


def _release(t: Transaction, *conditions: sa.ColumnElement[bool], attempts: int) -> int:
    """Let running jobs wait again, less so many attempts; those that were cancelled are."""
    lock = sa.select(jobs.c.number, jobs.c.cancel_asked).where(jobs.c.state == "running", *conditions)
    rows = t.all(lock.with_for_update(skip_locked=True))
    _end_cancelled(t, [row.number for row in rows if row.cancel_asked])
    again = {"state": "waiting", "attempts": jobs.c.attempts - attempts, **_OF_NO_WORKER}
    mine = t.among(jobs.c.number, [row.number for row in rows if not row.cancel_asked])
    t.do(sa.update(jobs).where(mine).values(again))
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
    mine = jobs.c.batch == name, jobs.c.state == "packed"
    lock = sa.select(jobs.c.number, jobs.c.cancel_asked).where(*mine).order_by(jobs.c.number).with_for_update()
    rows = t.all(lock)
    _end_cancelled(t, [row.number for row in rows if row.cancel_asked])
    now = t.now()
    again = {"state": "waiting", "not_before": now + not_before_s, "error": error}
    t.do(sa.update(jobs).where(*mine).values(**again, attempts=jobs.c.attempts - (0 if sent else 1)))
    # No error leaves the one that was recorded before.
    ended = {"state": state, "changed_at": now, "error": sa.func.coalesce(error, batches.c.error)}
    t.do(sa.update(batches).where(batches.c.name == name).values(ended))
    return len(rows)
