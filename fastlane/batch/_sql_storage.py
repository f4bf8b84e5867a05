"""A queue's storage on a database that speaks SQL: every method is one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from secrets import token_hex
from typing import Literal, Unpack

from . import _batch_statements as batches, _job_statements as jobs, _outcome_statements as lane
from ._database import Database
from ._jobs import OVER, Answer, BatchRow, BatchState, Group, Job, JobBody, JobState, NewJob, Outcome, Status
from ._storage import BatchChanges

# Others that write wait for a transaction: it holds no more than about a tenth of a second's work.
_CHUNK = 5_000


class SqlStorage:
    """What `Storage` says, on a database whose tables are made."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queue_id: str = database.run(lambda t: t.all("SELECT queue_id FROM queue")[0][0], writes=False)

    def __repr__(self) -> str:
        return f"<storage {self.name}>"

    @property
    def name(self) -> str:
        return self._database.name

    @property
    def queue_id(self) -> str:
        return self._queue_id

    def now(self) -> float:
        return self._database.run(lambda t: t.now(), writes=False)

    def add(self, jobs_: Sequence[NewJob]) -> list[Job]:
        return self._database.run(lambda t: jobs.add(t, jobs_)) if jobs_ else []

    def find(self, keys: Iterable[str]) -> dict[str, Job]:
        asked = list(keys)
        return self._database.run(lambda t: jobs.find(t, asked), writes=False) if asked else {}

    def answers(self, keys: Iterable[str]) -> dict[str, Answer]:
        asked = list(keys)
        return self._database.run(lambda t: jobs.answers(t, asked), writes=False) if asked else {}

    def answers_after(self, sequence: int, most: int) -> list[Answer]:
        return self._database.run(lambda t: jobs.answers_after(t, sequence, most), writes=False)

    def finished(self) -> int:
        return self._database.run(jobs.finished, writes=False)

    def unfinished(self, keys: Sequence[str] | None = None) -> int:
        return self._database.run(lambda t: jobs.unfinished(t, keys), writes=False)

    def cancel(self, keys: Sequence[str] | None) -> list[Job]:
        if keys is None:
            return self._cancel_all()
        asked = list(dict.fromkeys(keys))
        return self._database.run(lambda t: jobs.cancel(t, asked)) if asked else []

    def _cancel_all(self) -> list[Job]:
        cancelled: list[Job] = []
        while page := self._unfinished_after(cancelled[-1].number if cancelled else 0):
            cancelled += self.cancel(page)
        return cancelled

    def _unfinished_after(self, number: int) -> list[str]:
        return self._database.run(lambda t: jobs.unfinished_after(t, number, _CHUNK), writes=False)

    def retry_failed(self, keys: Sequence[str] | None = None) -> int:
        return self._database.run(lambda t: jobs.retry_failed(t, keys))

    def forget(
        self, *, keys: Sequence[str] | None = None, states: Sequence[JobState], older_than_s: float = 0.0
    ) -> int:
        allowed = [state for state in states if state in OVER]
        total = 0
        while True:
            count = self._database.run(lambda t: jobs.forget(t, keys, allowed, older_than_s, _CHUNK)) if allowed else 0
            total += count
            if count < _CHUNK:
                self._database.run(lambda t: jobs.forget_batches(t, older_than_s))
                return total

    def status(self) -> Status:
        return self._database.run(jobs.status, writes=False)

    def groups(self) -> list[Group]:
        return self._database.run(batches.groups, writes=False)

    def next_s(self) -> float | None:
        return self._database.run(batches.next_s, writes=False)

    def claim(
        self,
        owner: str,
        *,
        origin: str,
        endpoint: str,
        model: str,
        most_requests: int,
        most_bytes: int,
        lease_s: float,
    ) -> BatchRow | None:
        # Named before it is tried: where it is tried again, what was made the first time is found by its name.
        name = f"fastlane-{self._queue_id}-{token_hex(8)}"
        return self._database.run(
            lambda t: batches.claim(
                t,
                name,
                owner,
                origin=origin,
                endpoint=endpoint,
                model=model,
                most_requests=most_requests,
                most_bytes=most_bytes,
                lease_s=lease_s,
            )
        )

    def advance(self, batch: BatchRow, state: BatchState, **changes: Unpack[BatchChanges]) -> BatchRow:
        if not batches.is_a_step(batch, state):
            raise ValueError(f"a batch that is {batch.state} cannot become {state} by this")
        if unknown := changes.keys() - BatchChanges.__annotations__.keys():
            raise TypeError(f"of a batch there is nothing to record as {', '.join(sorted(unknown))}")
        return self._database.run(lambda t: batches.advance(t, batch, state, dict(changes)))

    def heads(self, batch: BatchRow) -> list[Job]:
        return self._database.run(lambda t: batches.heads(t, batch), writes=False)

    def bodies(self, batch: BatchRow, *, chunk: int = 500) -> Iterator[JobBody]:
        after = 0
        while found := self._bodies_after(batch, after, chunk):
            yield from found
            after = found[-1].job.number

    def _bodies_after(self, batch: BatchRow, after: int, most: int) -> list[JobBody]:
        return self._database.run(lambda t: batches.bodies(t, batch, after, most), writes=False)

    def record(self, batch: BatchRow, outcomes: Sequence[Outcome]) -> int:
        return self._database.run(lambda t: batches.record(t, batch, outcomes))

    def settle(
        self,
        batch: BatchRow,
        state: Literal["collected", "abandoned"],
        *,
        error: str | None = None,
        not_before_s: float = 0.0,
        sent: bool = True,
    ) -> int:
        return self._database.run(
            lambda t: batches.settle(t, batch, state, error=error, not_before_s=not_before_s, sent=sent)
        )

    def extend(self, owner: str, *, lease_s: float, running: Sequence[int] = ()) -> list[BatchRow]:
        return self._database.run(lambda t: batches.extend(t, owner, lease_s, running))

    def take_over(self, owner: str, *, origin: str, lease_s: float, most: int = 16) -> list[BatchRow]:
        return self._database.run(lambda t: batches.take_over(t, owner, origin, lease_s, most))

    def let_go(self, owner: str) -> None:
        self._database.run(lambda t: batches.let_go(t, owner))

    def batch(self, name: str) -> BatchRow | None:
        return self._database.run(lambda t: batches.batch(t, name), writes=False)

    def claim_jobs(
        self, owner: str, *, most: int, lease_s: float, endpoint: str | None = None, model: str | None = None
    ) -> list[JobBody]:
        return self._database.run(lambda t: lane.claim_jobs(t, owner, most, lease_s, endpoint, model))

    def record_running(self, owner: str, outcomes: Sequence[Outcome]) -> int:
        return self._database.run(lambda t: lane.record_running(t, owner, outcomes))

    def release_running(self, owner: str, numbers: Sequence[int]) -> int:
        return self._database.run(lambda t: lane.release_running(t, owner, numbers))

    def close(self) -> None:
        self._database.close()
