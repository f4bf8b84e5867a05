"""What becomes of jobs on their way, and jobs that are sent by themselves, in SQL that both databases speak."""

# ruff: noqa: S608 - What is put into statements here are words of our own; every value is a parameter.

from __future__ import annotations

from collections.abc import Sequence

from ._database import Row, Transaction
from ._job_statements import JOB, end_cancelled, job_of, next_sequences
from ._jobs import JobBody, Outcome

WAITS = "state = 'waiting' AND not_before <= ?"
"""A job that may be packed or sent at that time."""


def write(transaction: Transaction, outcomes: Sequence[Outcome], whose: str, parameter: str) -> int:
    """Write the outcomes of those of these jobs that are still as said; returns how many."""
    by_number = {outcome.number: outcome for outcome in outcomes}
    condition, numbers = transaction.among("number", list(by_number))
    # Locked, so that a job that is cancelled at this moment does not wait again.
    found = transaction.all(
        f"SELECT number, cancel_asked FROM jobs WHERE {whose} AND {condition} ORDER BY number{transaction.for_update}",
        parameter,
        numbers,
    )
    mine = [(by_number[number], bool(asked)) for number, asked in found]
    over = [outcome for outcome, _ in mine if outcome.state != "waiting"]
    _finish(transaction, over)
    end_cancelled(transaction, [outcome.number for outcome, asked in mine if outcome.state == "waiting" and asked])
    again = [outcome for outcome, asked in mine if outcome.state == "waiting" and not asked]
    if again:
        now = transaction.now()
        transaction.many(
            "UPDATE jobs SET state = 'waiting', not_before = ?, error = ?, status_code = ?, owner = NULL, "
            "lease_until = NULL WHERE number = ?",
            [(now + one.not_before_s, one.error, one.status_code, one.number) for one in again],
        )
    return len(mine)


def _finish(transaction: Transaction, over: Sequence[Outcome]) -> None:
    if not over:
        return
    now = transaction.now()
    places = next_sequences(transaction, len(over))
    transaction.many(
        "UPDATE jobs SET state = ?, finished_at = ?, sequence = ?, status_code = ?, error = ?, input_tokens = ?, "
        "output_tokens = ?, cached_tokens = ?, owner = NULL, lease_until = NULL WHERE number = ?",
        [
            (
                one.state, now, place, one.status_code, one.error, one.input_tokens, one.output_tokens,
                one.cached_tokens, one.number,
            )
            for place, one in zip(places, over, strict=True)
        ],
    )  # fmt: skip
    transaction.many(
        "INSERT INTO answers (number, body, request_id) VALUES (?, ?, ?) "
        "ON CONFLICT (number) DO UPDATE SET body = excluded.body, request_id = excluded.request_id",
        [(one.number, one.body, one.request_id) for one in over],
    )


def release(transaction: Transaction, rows: Sequence[Row], *, attempts: int) -> None:
    """Let running jobs wait again, less so many attempts; those that were cancelled are."""
    end_cancelled(transaction, [number for number, asked in rows if asked])
    transaction.many(
        "UPDATE jobs SET state = 'waiting', attempts = attempts - ?, owner = NULL, lease_until = NULL WHERE number = ?",
        [(attempts, number) for number, asked in rows if not asked],
    )


def record_running(transaction: Transaction, owner: str, outcomes: Sequence[Outcome]) -> int:
    return write(transaction, outcomes, "state = 'running' AND owner = ?", owner)


def claim_jobs(
    transaction: Transaction, owner: str, most: int, lease_s: float, endpoint: str | None, model: str | None
) -> list[JobBody]:
    now = transaction.now()
    asked = {column: value for column, value in (("endpoint", endpoint), ("model", model)) if value is not None}
    group = "".join(f" AND {column} = ?" for column in asked)
    numbers = transaction.all(
        f"SELECT number FROM jobs WHERE {WAITS}{group} ORDER BY number LIMIT ?{transaction.skip_locked}",
        now,
        *asked.values(),
        most,
    )
    condition, parameter = transaction.among("number", [number for (number,) in numbers])
    transaction.do(
        "UPDATE jobs SET state = 'running', owner = ?, lease_until = ?, attempts = attempts + 1, batch = NULL "
        f"WHERE {condition}",
        owner,
        now + lease_s,
        parameter,
    )
    condition, parameter = transaction.among("jobs.number", [number for (number,) in numbers])
    rows = transaction.all(
        f"SELECT bodies.body, {JOB} FROM jobs JOIN bodies ON bodies.number = jobs.number WHERE {condition} "
        "ORDER BY jobs.number",
        parameter,
    )
    return [JobBody(job=job_of(row[1:]), body=bytes(row[0])) for row in rows]


def release_running(transaction: Transaction, owner: str, numbers: Sequence[int]) -> int:
    condition, parameter = transaction.among("number", numbers)
    rows = transaction.all(
        f"SELECT number, cancel_asked FROM jobs WHERE state = 'running' AND owner = ? AND {condition}"
        f"{transaction.for_update}",
        owner,
        parameter,
    )
    release(transaction, rows, attempts=1)
    return len(rows)
