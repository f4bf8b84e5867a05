"""The application's side of a queue in SQL that both databases speak: add, find, cancel, retry, forget, count."""

# ruff: noqa: S608 - What is put into statements here are words of our own; every value is a parameter.

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from ._database import AgainError, Row, Transaction
from ._errors import JobConflictError
from ._jobs import JOB_STATES, LINE_BYTES, OVER, SETTLED, Answer, BatchRow, Job, JobState, NewJob, Status
from ._schema import BATCH_COLUMNS, JOB_COLUMNS

JOB = ", ".join(f"jobs.{column}" for column in JOB_COLUMNS)
BATCH = ", ".join(BATCH_COLUMNS)
_CANCEL_ASKED = JOB_COLUMNS.index("cancel_asked")
_RATE_WINDOW_S = 3_600.0


def quoted(words: Iterable[str]) -> str:
    """Words of our own as a list in SQL."""
    return ", ".join(f"'{word}'" for word in sorted(words))


_OVER, _SETTLED = quoted(OVER), quoted(SETTLED)


def job_of(row: Row) -> Job:
    """A job, of a row of its columns."""
    named = dict(zip(JOB_COLUMNS, row, strict=True))
    named["cancel_asked"] = bool(row[_CANCEL_ASKED])
    return Job(**named)


def batch_of(row: Row) -> BatchRow:
    """A batch, of a row of its columns."""
    return BatchRow(**dict(zip(BATCH_COLUMNS, row, strict=True)))


def add(transaction: Transaction, jobs: Sequence[NewJob]) -> list[Job]:
    keys = list({job.key: None for job in jobs})
    condition, parameter = transaction.among("key", keys)
    digests = f"SELECT key, digest FROM jobs WHERE {condition}"
    known = {key for key, _ in transaction.all(digests, parameter)}
    new = [job for job in jobs if job.key not in known]
    now = transaction.now()
    transaction.many(
        "INSERT INTO jobs (key, endpoint, model, size, digest, state, submitted_at) "
        "VALUES (?, ?, ?, ?, ?, 'waiting', ?) ON CONFLICT (key) DO NOTHING",
        [(job.key, job.endpoint, job.model, len(job.body), job.digest, now) for job in new],
    )
    kept = {key: bytes(digest) for key, digest in transaction.all(digests, parameter)}
    digest_of = dict[str, bytes]()
    for job in jobs:
        if job.key not in kept:
            raise AgainError  # it was there, and has been forgotten meanwhile
        if digest_of.setdefault(job.key, job.digest) != job.digest:
            raise JobConflictError(
                f"two jobs with the key {job.key!r} are submitted together, with different bodies or endpoints: "
                f"give each its own key",
                key=job.key,
            )
        if kept[job.key] != job.digest:
            raise JobConflictError(
                f"a job with the key {job.key!r} is in the queue already, with another body or for another endpoint: "
                f"submit this one with another key, or forget the other (`queue.forget`) once it is over",
                key=job.key,
            )
    transaction.many(
        "INSERT INTO bodies (number, body) SELECT number, ? FROM jobs WHERE key = ? ON CONFLICT (number) DO NOTHING",
        [(job.body, job.key) for job in new],
    )
    found = find(transaction, keys)
    return [found[job.key] for job in jobs]


def find(transaction: Transaction, keys: Sequence[str]) -> dict[str, Job]:
    condition, parameter = transaction.among("key", keys)
    rows = transaction.all(f"SELECT {JOB} FROM jobs WHERE {condition}", parameter)
    return {job.key: job for job in map(job_of, rows)}


_ANSWER = (
    f"SELECT jobs.sequence, answers.body, answers.request_id, {JOB} "
    "FROM jobs LEFT JOIN answers ON answers.number = jobs.number "
)


def _answer_of(row: Row) -> Answer:
    return Answer(job=job_of(row[3:]), sequence=row[0], body=bytes(row[1] or b""), request_id=row[2])


def answers(transaction: Transaction, keys: Sequence[str]) -> dict[str, Answer]:
    condition, parameter = transaction.among("jobs.key", keys)
    rows = transaction.all(f"{_ANSWER} WHERE jobs.sequence IS NOT NULL AND {condition}", parameter)
    return {answer.job.key: answer for answer in map(_answer_of, rows)}


def answers_after(transaction: Transaction, sequence: int, most: int) -> list[Answer]:
    statement = f"{_ANSWER} WHERE jobs.sequence > ? ORDER BY jobs.sequence LIMIT ?"
    return [_answer_of(row) for row in transaction.all(statement, sequence, most)]


def finished(transaction: Transaction) -> int:
    return int(transaction.all("SELECT finished FROM queue")[0][0])


def unfinished(transaction: Transaction, keys: Sequence[str] | None) -> int:
    statement = f"SELECT count(*) FROM jobs WHERE state NOT IN ({_OVER})"
    if keys is None:
        statement = f"SELECT count(*) FROM jobs WHERE state IN ({quoted(set(JOB_STATES) - OVER)})"
        return int(transaction.all(statement)[0][0])
    condition, parameter = transaction.among("key", keys)
    return int(transaction.all(f"{statement} AND {condition}", parameter)[0][0])


def unfinished_after(transaction: Transaction, number: int, most: int) -> list[str]:
    """The keys of jobs that are not over, in the order of their numbers, from behind one."""
    statement = f"SELECT key FROM jobs WHERE number > ? AND state NOT IN ({_OVER}) ORDER BY number LIMIT ?"
    return [key for (key,) in transaction.all(statement, number, most)]


def next_sequences(transaction: Transaction, count: int) -> range:
    """Places in the order in which jobs were over.

    Whoever takes some keeps others from taking any until its transaction is through: so nobody sees a later place
    before an earlier one.
    """
    if not count:
        return range(0)
    last = transaction.all("UPDATE queue SET finished = finished + ? RETURNING finished", count)[0][0]
    return range(last - count + 1, last + 1)


def end_cancelled(transaction: Transaction, numbers: Sequence[int]) -> None:
    """Let jobs be cancelled, and over."""
    now = transaction.now()
    transaction.many(
        "UPDATE jobs SET state = 'cancelled', finished_at = ?, sequence = ?, owner = NULL, lease_until = NULL "
        "WHERE number = ?",
        [
            (now, place, number)
            for place, number in zip(next_sequences(transaction, len(numbers)), numbers, strict=True)
        ],
    )


def cancel(transaction: Transaction, keys: Sequence[str]) -> list[Job]:
    condition, parameter = transaction.among("key", keys)
    # Batches first, as those who record do, and in the order of their names.
    packed = transaction.all(f"SELECT DISTINCT batch FROM jobs WHERE state = 'packed' AND {condition}", parameter)
    named, names = transaction.among("name", [name for (name,) in packed])
    lock = f"SELECT name, state FROM batches WHERE {named} ORDER BY name{transaction.for_update}"
    states: dict[str, str] = dict(transaction.all(lock, names))
    rows = transaction.all(
        f"SELECT number, state, batch, size, cancel_asked FROM jobs WHERE {condition} ORDER BY number"
        f"{transaction.for_update}",
        parameter,
    )
    ended, left, asked = [], [], []
    for number, state, batch, size, cancel_asked in rows:
        if state == "packed" and batch not in states:
            raise AgainError  # it was packed in between
        if state == "waiting":
            ended.append(number)
        elif state == "packed" and states[batch] == "planned":
            ended.append(number)
            left.append((size + LINE_BYTES, batch))
        elif state in ("packed", "running") and not cancel_asked:
            asked.append((number, batch if state == "packed" else None))
    end_cancelled(transaction, ended)
    transaction.many("UPDATE batches SET requests = requests - 1, bytes = bytes - ? WHERE name = ?", left)
    transaction.many("UPDATE jobs SET cancel_asked = 1 WHERE number = ?", [(number,) for number, _ in asked])
    transaction.many(
        "UPDATE batches SET unwanted = unwanted + 1 WHERE name = ?", [(batch,) for _, batch in asked if batch]
    )
    found = find(transaction, keys)
    return [found[key] for key in keys if key in found]


def retry_failed(transaction: Transaction, keys: Sequence[str] | None) -> int:
    statement, parameters = "SELECT number FROM jobs WHERE state = 'failed'", list[Any]()
    if keys is not None:
        condition, parameter = transaction.among("key", keys)
        statement, parameters = f"{statement} AND {condition}", [parameter]
    numbers = [number for (number,) in transaction.all(f"{statement}{transaction.for_update}", *parameters)]
    condition, parameter = transaction.among("number", numbers)
    transaction.do(f"DELETE FROM answers WHERE {condition}", parameter)
    return transaction.do(
        "UPDATE jobs SET state = 'waiting', attempts = 0, not_before = 0, finished_at = NULL, sequence = NULL, "
        "cancel_asked = 0, status_code = NULL, error = NULL, input_tokens = NULL, output_tokens = NULL, "
        f"cached_tokens = NULL WHERE {condition}",
        parameter,
    )


def forget(
    transaction: Transaction, keys: Sequence[str] | None, states: Sequence[JobState], older_than_s: float, most: int
) -> int:
    """Delete at most so many at once; returns how many."""
    statement = f"SELECT number FROM jobs WHERE state IN ({quoted(states)}) AND finished_at <= ?"
    parameters = [transaction.now() - older_than_s]
    if keys is not None:
        condition, parameter = transaction.among("key", keys)
        statement, parameters = f"{statement} AND {condition}", [*parameters, parameter]
    found = transaction.all(f"{statement} LIMIT ?{transaction.for_update}", *parameters, most)
    condition, parameter = transaction.among("number", [number for (number,) in found])
    for table in ("answers", "bodies", "jobs"):
        transaction.do(f"DELETE FROM {table} WHERE {condition}", parameter)
    return len(found)


def forget_batches(transaction: Transaction, older_than_s: float) -> None:
    """Delete settled batches of which no job is left."""
    transaction.do(
        f"DELETE FROM batches WHERE state IN ({_SETTLED}) AND changed_at <= ? "
        "AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.batch = batches.name)",
        transaction.now() - older_than_s,
    )


def status(transaction: Transaction) -> Status:
    counts: dict[JobState, int] = dict.fromkeys(JOB_STATES, 0)
    counts.update(transaction.all("SELECT state, count(*) FROM jobs GROUP BY state"))
    live = transaction.all(f"SELECT {BATCH} FROM batches WHERE state NOT IN ({_SETTLED}) ORDER BY planned_at, name")
    settled = transaction.all(f"SELECT count(*) FROM batches WHERE state IN ({_SETTLED})")[0][0]
    (oldest,) = transaction.all("SELECT min(submitted_at) FROM jobs WHERE state = 'waiting'")[0]
    failures = transaction.all(
        "SELECT error, status_code, count(*) FROM jobs WHERE state = 'failed' GROUP BY error, status_code "
        "ORDER BY count(*) DESC, error, status_code"
    )
    tokens = transaction.all("SELECT sum(input_tokens), sum(output_tokens), sum(cached_tokens) FROM jobs")[0]
    now = transaction.now()
    recent, first = transaction.all(
        "SELECT count(*), min(submitted_at) FROM jobs WHERE state IN ('done', 'failed') AND finished_at > ?",
        now - _RATE_WINDOW_S,
    )[0]
    rate = recent / max(1e-3, min(_RATE_WINDOW_S, now - first)) if recent else None
    left = sum(count for state, count in counts.items() if state not in OVER)
    return Status(
        jobs=counts,
        batches=tuple(map(batch_of, live)),
        batches_settled=settled,
        oldest_waiting_s=None if oldest is None else max(0.0, now - oldest),
        finished_per_s=rate,
        expected_end_s=0.0 if not left else None if rate is None else left / rate,
        input_tokens=int(tokens[0] or 0),
        output_tokens=int(tokens[1] or 0),
        cached_tokens=int(tokens[2] or 0),
        failures=_by_reason(failures),
    )


def _by_reason(rows: Sequence[tuple[str | None, int | None, int]]) -> dict[str, int]:
    counts = Counter[str]()
    for error, status_code, count in rows:
        counts[error or (f"HTTP {status_code}" if status_code else "unknown")] += count
    return dict(counts.most_common())
