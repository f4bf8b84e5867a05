"""The workers' side of a queue in SQL that both databases speak: batches are packed, leased, recorded and settled."""

# ruff: noqa: S608 - What is put into statements here are words of our own; every value is a parameter.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ._database import Transaction
from ._errors import LeaseLostError
from ._job_statements import BATCH, JOB, batch_of, end_cancelled, job_of, quoted
from ._jobs import BATCH_STATES, LINE_BYTES, SETTLED, BatchRow, BatchState, Group, Job, JobBody, Outcome
from ._outcome_statements import WAITS, release, write

_SETTLED = quoted(SETTLED)
_HELD = "name = ? AND state = ? AND owner = ? AND turn = ?"


def groups(transaction: Transaction) -> list[Group]:
    rows = transaction.all(
        f"SELECT endpoint, model, count(*), sum(size), min(submitted_at) FROM jobs WHERE {WAITS} "
        "GROUP BY endpoint, model ORDER BY min(number)",
        transaction.now(),
    )
    return [
        Group(endpoint=endpoint, model=model, requests=count, bytes=int(size), oldest_at=oldest)
        for endpoint, model, count, size, oldest in rows
    ]


def next_s(transaction: Transaction) -> float | None:
    (first,) = transaction.all("SELECT min(not_before) FROM jobs WHERE state = 'waiting'")[0]
    return None if first is None else max(0.0, first - transaction.now())


def batch(transaction: Transaction, name: str) -> BatchRow | None:
    rows = transaction.all(f"SELECT {BATCH} FROM batches WHERE name = ?", name)
    return batch_of(rows[0]) if rows else None


def claim(
    transaction: Transaction,
    name: str,
    owner: str,
    *,
    origin: str,
    endpoint: str,
    model: str,
    most_requests: int,
    most_bytes: int,
    lease_s: float,
) -> BatchRow | None:
    if transaction.again and (made := batch(transaction, name)) is not None:
        return made
    now = transaction.now()
    rows = transaction.all(
        f"SELECT number, size FROM jobs WHERE {WAITS} AND endpoint = ? AND model = ? ORDER BY number LIMIT ?"
        f"{transaction.skip_locked}",
        now,
        endpoint,
        model,
        most_requests,
    )
    numbers: list[int] = []
    total = 0
    for number, size in rows:
        if numbers and total + size + LINE_BYTES > most_bytes:
            break
        numbers.append(number)
        total += size + LINE_BYTES
    if not numbers:
        return None
    condition, parameter = transaction.among("number", numbers)
    transaction.do(
        f"UPDATE jobs SET state = 'packed', batch = ?, attempts = attempts + 1 WHERE {condition}", name, parameter
    )
    made = BatchRow(
        name=name,
        state="planned",
        origin=origin,
        endpoint=endpoint,
        model=model,
        requests=len(numbers),
        bytes=total,
        owner=owner,
        turn=1,
        lease_until=now + lease_s,
        planned_at=now,
        changed_at=now,
    )
    values = (
        name, "planned", origin, endpoint, model, len(numbers), total, owner, 1, made.lease_until, now, now,
    )  # fmt: skip
    transaction.do(
        "INSERT INTO batches (name, state, origin, endpoint, model, requests, bytes, owner, turn, lease_until, "
        "planned_at, changed_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        *values,
    )
    return made


def advance(transaction: Transaction, held: BatchRow, state: BatchState, changes: dict[str, Any]) -> BatchRow:
    now = transaction.now()
    changes = {**changes, "state": state}
    if state != held.state:
        changes["changed_at"] = now
    if state == "creating":
        changes["create_attempted_at"] = now
    assignments = ", ".join(f"{column} = ?" for column in changes)
    done = transaction.do(
        f"UPDATE batches SET {assignments} WHERE {_HELD}",
        *changes.values(),
        held.name,
        held.state,
        held.owner,
        held.turn,
    )
    found = batch(transaction, held.name)
    if found is None or not (done or (transaction.again and _is_after(found, held, state))):
        raise _lost(held, found)
    return found


def _is_after(found: BatchRow, held: BatchRow, state: BatchState) -> bool:
    """Whether a step was recorded, although nobody heard of it."""
    return (found.state, found.owner, found.turn) == (state, held.owner, held.turn)


def _lost(held: BatchRow, found: BatchRow | None) -> LeaseLostError:
    now = "is not there any more" if found is None else f"is {found.state}, in its turn {found.turn}"
    return LeaseLostError(
        f"the batch {held.name} was {held.state}, in its turn {held.turn}, and {now}: another worker has gone on with "
        f"it, and nothing was written"
    )


def _hold(transaction: Transaction, held: BatchRow) -> None:
    """Keep others from changing a batch until the transaction is through."""
    rows = transaction.all(
        f"SELECT 1 FROM batches WHERE {_HELD}{transaction.for_update}", held.name, held.state, held.owner, held.turn
    )
    if not rows:
        raise _lost(held, batch(transaction, held.name))


def heads(transaction: Transaction, held: BatchRow) -> list[Job]:
    statement = f"SELECT {JOB} FROM jobs WHERE batch = ? AND state = 'packed' ORDER BY number"
    return [job_of(row) for row in transaction.all(statement, held.name)]


def bodies(transaction: Transaction, held: BatchRow, after: int, most: int) -> list[JobBody]:
    rows = transaction.all(
        f"SELECT bodies.body, {JOB} FROM jobs JOIN bodies ON bodies.number = jobs.number "
        "WHERE jobs.batch = ? AND jobs.state = 'packed' AND jobs.number > ? ORDER BY jobs.number LIMIT ?",
        held.name,
        after,
        most,
    )
    return [JobBody(job=job_of(row[1:]), body=bytes(row[0])) for row in rows]


def record(transaction: Transaction, held: BatchRow, outcomes: Sequence[Outcome]) -> int:
    _hold(transaction, held)
    return write(transaction, outcomes, "state = 'packed' AND batch = ?", held.name)


def settle(
    transaction: Transaction, held: BatchRow, state: BatchState, *, error: str | None, not_before_s: float, sent: bool
) -> int:
    if transaction.again and (found := batch(transaction, held.name)) is not None and _is_after(found, held, state):
        return 0
    _hold(transaction, held)
    rows = transaction.all(
        "SELECT number, cancel_asked FROM jobs WHERE state = 'packed' AND batch = ? ORDER BY number"
        f"{transaction.for_update}",
        held.name,
    )
    end_cancelled(transaction, [number for number, asked in rows if asked])
    now = transaction.now()
    transaction.do(
        "UPDATE jobs SET state = 'waiting', not_before = ?, error = ?, attempts = attempts - ? "
        "WHERE state = 'packed' AND batch = ?",
        now + not_before_s,
        error,
        0 if sent else 1,
        held.name,
    )
    transaction.do(
        "UPDATE batches SET state = ?, changed_at = ?, error = COALESCE(?, error) WHERE name = ?",
        state,
        now,
        error,
        held.name,
    )
    return len(rows)


def extend(transaction: Transaction, owner: str, lease_s: float, running: Sequence[int]) -> list[BatchRow]:
    until = transaction.now() + lease_s
    # One after the other in the order of their names, as everybody who locks several does.
    transaction.all(
        f"SELECT name FROM batches WHERE owner = ? AND state NOT IN ({_SETTLED}) ORDER BY name{transaction.for_update}",
        owner,
    )
    transaction.do(f"UPDATE batches SET lease_until = ? WHERE owner = ? AND state NOT IN ({_SETTLED})", until, owner)
    if running:
        condition, parameter = transaction.among("number", running)
        transaction.do(
            f"UPDATE jobs SET lease_until = ? WHERE state = 'running' AND owner = ? AND {condition}",
            until,
            owner,
            parameter,
        )
    rows = transaction.all(
        f"SELECT {BATCH} FROM batches WHERE owner = ? AND state NOT IN ({_SETTLED}) ORDER BY planned_at, name", owner
    )
    return [batch_of(row) for row in rows]


def take_over(transaction: Transaction, owner: str, origin: str, lease_s: float, most: int) -> list[BatchRow]:
    now = transaction.now()
    rows = transaction.all(
        # Before its creation was recorded there is no batch at any provider: whoever comes may pack its jobs anew.
        f"SELECT {BATCH} FROM batches WHERE state NOT IN ({_SETTLED}) "
        "AND (origin = ? OR state IN ('planned', 'uploading', 'uploaded')) AND lease_until < ? "
        f"ORDER BY planned_at, name LIMIT ?{transaction.skip_locked}",
        origin,
        now,
        most,
    )
    taken = [
        replace(found, owner=owner, turn=found.turn + 1, lease_until=now + lease_s) for found in map(batch_of, rows)
    ]
    transaction.many(
        "UPDATE batches SET owner = ?, turn = ?, lease_until = ? WHERE name = ?",
        [(one.owner, one.turn, one.lease_until, one.name) for one in taken],
    )
    lost = transaction.all(
        f"SELECT number, cancel_asked FROM jobs WHERE state = 'running' AND lease_until < ?{transaction.skip_locked}",
        now,
    )
    release(transaction, lost, attempts=0)
    return taken


def let_go(transaction: Transaction, owner: str) -> None:
    transaction.do(f"UPDATE batches SET lease_until = 0 WHERE owner = ? AND state NOT IN ({_SETTLED})", owner)
    transaction.do("UPDATE jobs SET lease_until = 0 WHERE owner = ? AND state = 'running'", owner)


def is_a_step(held: BatchRow, state: BatchState) -> bool:
    """Whether that state may follow on a batch's own, or is the same."""
    return state not in SETTLED and BATCH_STATES.index(state) >= BATCH_STATES.index(held.state)
