"""What a storage of the queue can do, whatever keeps it: every method is one transaction, durable when it returns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, Protocol, TypedDict, Unpack

from ._jobs import Answer, BatchRow, BatchState, Group, Job, JobBody, JobState, NewJob, Outcome, Status


class BatchChanges(TypedDict, total=False):
    """What may be recorded of a batch with a step of it."""

    file_id: str | None
    batch_id: str | None
    output_file_id: str | None
    error_file_id: str | None
    provider_state: str | None
    provider_done: int
    provider_failed: int
    error: str | None


class Storage(Protocol):
    """Keeps a queue. Used by several threads at once, by several processes, and by the children of a fork.

    Every method is one transaction: done and durable when it returns, not done when it raises (StorageError;
    LeaseLostError where a lease is asked for). Where a connection breaks it is done again, which every method bears.

    Times are seconds since the epoch by the storage's own clock (a server's where there is one, so that machines need
    not agree), and what is handed in is a number of seconds from now. A lease that has run out is still its owner's
    until somebody takes it over: what keeps two workers apart is that every write is compared with (state, owner,
    turn).
    """

    @property
    def name(self) -> str:
        """Where it is, without a password."""
        ...

    @property
    def queue_id(self) -> str:
        """A few letters and digits, made once for each queue: its batches' names begin with `fastlane-{queue_id}-`."""
        ...

    def now(self) -> float:
        """The time by its clock."""
        ...

    # The application's side.

    def add(self, jobs: Sequence[NewJob]) -> list[Job]:
        """Add jobs, all or none, and return them in order.

        One whose key is there already with the same digest is that one. Raises JobConflictError for a key that is there
        with another digest.
        """
        ...

    def find(self, keys: Iterable[str]) -> dict[str, Job]:
        """The jobs of these keys, by key; those that are not there are left out."""
        ...

    def answers(self, keys: Iterable[str]) -> dict[str, Answer]:
        """What is kept of those of these jobs that are over."""
        ...

    def answers_after(self, sequence: int, most: int) -> list[Answer]:
        """What is kept of the first jobs that were over after this one, in that order."""
        ...

    def finished(self) -> int:
        """The place of the job that was over last: it has changed where anything is over. Costs next to nothing."""
        ...

    def unfinished(self, keys: Sequence[str] | None = None) -> int:
        """How many of these jobs, or of all, are not over."""
        ...

    def cancel(self, keys: Sequence[str] | None) -> list[Job]:
        """Cancel jobs: those that wait, or whose batch is `planned`, at once; those on their way are marked.

        None: all that are not over, a few thousand to a transaction.
        """
        ...

    def retry_failed(self, keys: Sequence[str] | None = None) -> int:
        """Let failed jobs, or those of them with these keys, wait again, with no attempts counted; returns how many."""
        ...

    def forget(
        self, *, keys: Sequence[str] | None = None, states: Sequence[JobState], older_than_s: float = 0.0
    ) -> int:
        """Delete jobs that are over in one of these states, for so long; returns how many.

        Settled batches that have no jobs any more go too.
        """
        ...

    def status(self) -> Status:
        """The whole at this moment."""
        ...

    # The workers' side: batches.

    def groups(self) -> list[Group]:
        """What waits and may be packed now, by what can go into one batch; the one that waits longest first."""
        ...

    def next_s(self) -> float | None:
        """Seconds until the first of the jobs that wait may be packed or sent: 0 for at once; None where none waits."""
        ...

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
        """Pack the first waiting jobs of a group into a new batch, `planned`; None where none waits.

        As many as fit into both limits (a line's bytes are those of its body and LINE_BYTES). A job that is too large
        by itself becomes a batch of one, with more `bytes` than asked: the worker has it fail. Counts an attempt of
        each.
        """
        ...

    def advance(self, batch: BatchRow, state: BatchState, **changes: Unpack[BatchChanges]) -> BatchRow:
        """Record the next step of a batch (or more of the same step) and what is known with it (`BatchChanges`).

        With `creating`, also when (`create_attempted_at`). Steps only go on, never back, and to `collected` or
        `abandoned` by `settle` alone. Returns the batch as it is now. Raises LeaseLostError unless its (state, owner,
        turn) are those of `batch`.
        """
        ...

    def heads(self, batch: BatchRow) -> list[Job]:
        """The jobs that are still in a batch, in order. From `uploading` on only `record` takes any of them out."""
        ...

    def bodies(self, batch: BatchRow, *, chunk: int = 500) -> Iterator[JobBody]:
        """The same with what is to be sent; read in chunks, each in a transaction of its own."""
        ...

    def record(self, batch: BatchRow, outcomes: Sequence[Outcome]) -> int:
        """Write what became of jobs of a batch; returns how many were written.

        Those that are no more in this batch are skipped, so that a file that was read in part may be read again from
        its beginning. A few thousand at a time: meanwhile others that write wait. Raises LeaseLostError like `advance`.
        """
        ...

    def settle(
        self,
        batch: BatchRow,
        state: Literal["collected", "abandoned"],
        *,
        error: str | None = None,
        not_before_s: float = 0.0,
        sent: bool = True,
    ) -> int:
        """End a batch. Jobs still in it wait again (those that were cancelled are cancelled); returns how many.

        With `sent=False` their attempt is not counted. `error` is recorded of the batch and of these jobs. Raises
        LeaseLostError like `advance`.
        """
        ...

    def extend(self, owner: str, *, lease_s: float, running: Sequence[int] = ()) -> list[BatchRow]:
        """Lease all unsettled batches of a worker, and these jobs that it runs by themselves, for so long from now.

        Returns the batches as they are now, among them any of which the worker does not know because the answer to its
        claim was lost: they are its own to go on with. One that is missing was taken over.
        """
        ...

    def take_over(self, owner: str, *, origin: str, lease_s: float, most: int = 16) -> list[BatchRow]:
        """Lease batches of this origin, or not created yet, whose lease has run out, the oldest first.

        Jobs that were run by themselves under a lease that has run out wait again.
        """
        ...

    def let_go(self, owner: str) -> None:
        """End all leases of a worker, so that others may go on at once."""
        ...

    def batch(self, name: str) -> BatchRow | None:
        """One batch."""
        ...

    # The workers' side: jobs that are sent by themselves.

    def claim_jobs(
        self, owner: str, *, most: int, lease_s: float, endpoint: str | None = None, model: str | None = None
    ) -> list[JobBody]:
        """Lease the first waiting jobs (of a group): they are `running`, and an attempt is counted for each."""
        ...

    def record_running(self, owner: str, outcomes: Sequence[Outcome]) -> int:
        """Write what became of jobs that this worker runs, but for those that it no longer does; returns how many."""
        ...

    def release_running(self, owner: str, numbers: Sequence[int]) -> int:
        """Let jobs that were not sent wait again, with their attempt not counted. Returns how many."""
        ...

    def close(self) -> None:
        """Let go of connections and files. Idempotent."""
        ...
