"""The batches of a provider: made, listed and cancelled by requests, and worked off beside them."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import traceback
from collections.abc import Callable, Mapping
from hashlib import blake2b
from random import Random
from typing import Any
from urllib.parse import parse_qsl

from fastlane._clock import now_ns, wall_ns
from fastlane.emulator._batch import FINAL, StoredBatch, unanswered
from fastlane.emulator._batch_asked import read_asked
from fastlane.emulator._batch_input import BatchInputLine, Input
from fastlane.emulator._batch_log import BatchLog, LineLog, Offline
from fastlane.emulator._errors import ApiError
from fastlane.emulator._files import NS, FileStore, page
from fastlane.emulator._provider import Provider
from fastlane.emulator.settings import BatchSettings

# How long the event loop is kept from live calls at a time.
_SLICE_NS = 1_000_000
_USUALLY_LISTED, _MOST_LISTED = 20, 100
MAXIMUM_BATCHES = 100_000
"""Beyond it the oldest that is over is forgotten."""


class Batches:
    """All batches of a provider, and its files. Every change happens on one event loop."""

    def __init__(self, provider: Provider, settings: BatchSettings | None = None) -> None:
        self.settings = settings or BatchSettings()
        self.files = FileStore(provider.seed, lambda: self.settings)
        self._provider = provider
        self._batches: dict[str, StoredBatch] = {}
        self._lines: list[LineLog] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._running = 0
        self._made = 0
        self._answers = 0
        self._changed = asyncio.Event()

    def create(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Make a batch, which begins by itself. Raises ApiError (400)."""
        asked = read_asked(body)
        file = self.files.get(asked.input_file_id)
        if file is None and not self.settings.missing_file_fails_late:
            message = f"Invalid 'input_file_id': no such File object: {asked.input_file_id[:128]}"
            raise ApiError(400, message, param="input_file_id", code="invalid_file")
        if file is not None and file.record["purpose"] != "batch":
            message = "Invalid file purpose: the input file of a batch must have the purpose 'batch'."
            raise ApiError(400, message, param="input_file_id", code="invalid_file_purpose")
        self._made += 1
        now = now_ns()
        batch = StoredBatch(
            id=f"batch_{blake2b(f'{self._provider.seed}:batch:{self._made}'.encode(), digest_size=16).hexdigest()}",
            endpoint=asked.endpoint,
            input_file_id=asked.input_file_id,
            input_filename=None if file is None else str(file.record["filename"]),
            metadata=asked.metadata,
            output_lifetime_s=asked.output_lifetime_s,
            created_at=wall_ns() // NS,
            created_ns=now,
            visible_ns=now + round(self.settings.batch_listing_delay_s * NS),
            expires_ns=now + round(self.settings.expires_after_s * NS),
        )
        batch.stamps["expires_at"] = (wall_ns() + round(self.settings.expires_after_s * NS)) // NS
        self._batches[batch.id] = batch
        self._forget_oldest()
        task = asyncio.get_running_loop().create_task(self._worked_off(batch))
        self._tasks[batch.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(batch.id, None))
        return batch.shown()

    def one(self, batch_id: str) -> Mapping[str, Any]:
        """Return a batch. Raises ApiError (404)."""
        return self._one(batch_id).shown()

    def cancel(self, batch_id: str) -> Mapping[str, Any]:
        """Cancel a batch; one that is cancelled already stays so. Raises ApiError (404, 409)."""
        batch = self._one(batch_id)
        if batch.status in ("validating", "in_progress"):
            self._enter(batch, "cancelling")
        elif batch.status not in ("cancelling", "cancelled"):
            raise ApiError(409, f"Cannot cancel a batch with status '{batch.status}'.")
        return batch.shown()

    def page(self, query: str) -> dict[str, Any]:
        """Return a page of the list, the latest first. Raises ApiError (400, 404)."""
        asked, now = dict(parse_qsl(query)), now_ns()
        if "after" in asked:
            self._one(asked["after"])
        latest = [batch for batch in reversed(self._batches.values()) if batch.visible_ns <= now]
        shown = page([{"id": batch.id} for batch in latest], asked, usual=_USUALLY_LISTED, most=_MOST_LISTED)
        return {**shown, "data": [self._batches[each["id"]].shown() for each in shown["data"]]}

    def change(self, settings: BatchSettings) -> None:
        """Go on by other settings at once; a batch keeps its window, and listing delays hold for what is new."""
        self.settings = settings
        self._announce()

    def log(self) -> Offline:
        """Return what was done."""
        return Offline(
            files=tuple(self.files.logs.values()),
            batches=tuple(_logged(batch) for batch in self._batches.values()),
            lines=tuple(self._lines),
        )

    def clear_lines(self) -> None:
        """Forget which lines were done, and nothing else."""
        self._lines.clear()

    def clear(self) -> None:
        """Stop and forget all batches and files."""
        self.close()
        self._batches.clear()
        self._lines.clear()
        self.files.clear()

    def close(self) -> None:
        """Stop what is being worked off."""
        for task in self._tasks.values():
            task.cancel()

    def _one(self, batch_id: str) -> StoredBatch:
        batch = self._batches.get(batch_id)
        if batch is None:
            raise ApiError(404, f"No batch found with id '{batch_id[:128]}'.", code="not_found")
        return batch

    def _forget_oldest(self) -> None:
        if len(self._batches) > MAXIMUM_BATCHES:
            over = next((batch.id for batch in self._batches.values() if batch.status in FINAL), None)
            if over is not None:
                del self._batches[over]

    def _enter(self, batch: StoredBatch, status: str) -> None:
        batch.status = status
        batch.stamps[f"{status}_at"] = wall_ns() // NS
        if status in FINAL:
            batch.ended_ns = now_ns()
        self._announce()

    def _announce(self) -> None:
        """Have all that wait look again at what they wait for."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _until(self, condition: Callable[[], bool], deadline_ns: Callable[[], int]) -> None:
        """Wait until it is so, or until a moment; a change of settings may bring either."""
        while not condition():
            left = deadline_ns() - now_ns()
            if left <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left / NS):
                    await self._changed.wait()

    async def _worked_off(self, batch: StoredBatch) -> None:
        try:
            await self._work(batch)
        # Whatever it is, whoever waits for the batch learns of it.
        except Exception:  # noqa: BLE001
            traceback.print_exc(file=sys.stderr)
            batch.errors = [_error("server_error", "The emulator has a bug; see its stderr.")]
            self._enter(batch, "failed")

    async def _work(self, batch: StoredBatch) -> None:
        """Take a batch through all of its life."""
        await self._until(lambda: batch.ending, lambda: batch.created_ns + round(self.settings.validation_s * NS))
        given = None if batch.ending else await self._validated(batch)
        if given is None and not batch.ending:
            self._enter(batch, "failed")
        left: list[BatchInputLine] = []
        if batch.status not in FINAL:
            await self._until(
                lambda: batch.ending or self._running < self.settings.maximum_in_progress,
                lambda: batch.expires_ns,
            )
            if given is not None:
                left = await self._carried_out(batch, given)
            await self._finish(batch, left)

    async def _validated(self, batch: StoredBatch) -> Input | None:
        """Read all of a batch's input; None if it cannot be begun."""
        settings, file = self.settings, self.files.get(batch.input_file_id)
        if file is None:
            batch.errors = [_error("invalid_file", "The input file does not exist.", "input_file_id")]
            return None
        batch.input_filename = str(file.record["filename"])
        if file.end - file.start > settings.maximum_bytes:
            message = f"The batch input file is larger than the {settings.maximum_bytes} maximum."
            batch.errors = [_error("file_too_large", f"{message} Please try again with a smaller batch.")]
            return None
        given = Input(file, batch.endpoint, settings.enqueued_tokens is not None)
        since = now_ns()
        for _ in given.read():
            if now_ns() - since > _SLICE_NS:
                await asyncio.sleep(0)
                since = now_ns()
        if len(given.lines) > settings.maximum_requests:
            message = f"The batch has {len(given.lines)} requests, of at most {settings.maximum_requests}."
            given.errors = [_error("too_many_tasks", message)]
        if not given.errors and settings.enqueued_tokens is not None:
            others = (each.tokens for each in self._batches.values() if each.model == given.model
                      and each.status not in FINAL)  # fmt: skip
            if sum(others) + given.tokens > settings.enqueued_tokens:
                message = (
                    f"Enqueued token limit reached for {given.model} in organization emulator. Limit: "
                    f"{settings.enqueued_tokens:,} enqueued tokens. Please try again once some in_progress batches "
                    "have been completed."
                )
                given.errors = [_error("token_limit_exceeded", message)]
        batch.errors = given.errors
        if given.errors:
            return None
        batch.model, batch.tokens, batch.total = given.model, given.tokens, len(given.lines)
        return given

    async def _carried_out(self, batch: StoredBatch, given: Input) -> list[BatchInputLine]:
        """Do a batch's lines in any order; returns those that were not done before its end."""
        order = list(given.lines)
        Random(f"{self._provider.seed}:order:{batch.id}").shuffle(order)
        if batch.ending or now_ns() >= batch.expires_ns:
            return order
        self._enter(batch, "in_progress")
        self._running += 1
        batch.begun_ns = now_ns()
        try:
            await self._paced(batch, given, order)
        finally:
            self._running -= 1
            self._announce()
        return order[batch.done :]

    async def _paced(self, batch: StoredBatch, given: Input, order: list[BatchInputLine]) -> None:
        while batch.done < batch.total and not self._cut(batch):
            self._slice(batch, given, order)
            if self._due(batch) > batch.done:
                await asyncio.sleep(0)
            elif batch.done < batch.total:
                await self._until(
                    lambda: batch.ending or self._due(batch) > batch.done,
                    lambda: min(batch.expires_ns, self._next_due_ns(batch)),
                )
        if batch.done == batch.total:
            await self._until(
                lambda: batch.ending,
                lambda: min(batch.expires_ns, batch.begun_ns + round((self.settings.duration_s or 0) * NS)),
            )

    def _slice(self, batch: StoredBatch, given: Input, order: list[BatchInputLine]) -> None:
        """Do what is due, for as long as others can wait."""
        due, since = self._due(batch), now_ns()
        while batch.done < due and not self._cut(batch):
            now = now_ns()
            if now - since > _SLICE_NS:
                return
            line = order[batch.done]
            batch.done += 1
            self._answers += 1
            body = given.body(line)
            done = batch.carry_out(self._provider, self.settings, line, body, number=self._answers, now=now)
            self._lines.append(done)

    def _cut(self, batch: StoredBatch) -> bool:
        return batch.ending or now_ns() >= batch.expires_ns

    def _due(self, batch: StoredBatch) -> int:
        return self.settings.due((now_ns() - batch.begun_ns) / NS, batch.total)

    def _next_due_ns(self, batch: StoredBatch) -> int:
        # A little later, so that a rounded moment is not met too early again and again.
        return batch.begun_ns + round(self.settings.next_due_s(batch.done, batch.total) * NS) + _SLICE_NS

    async def _finish(self, batch: StoredBatch, left: list[BatchInputLine]) -> None:
        """Write the files, and end."""
        cancelled = batch.ending
        if cancelled:
            begun, name = now_ns(), "cancelling_s"
        else:
            self._enter(batch, "finalizing")
            begun, name = now_ns(), "finalizing_s"
        await self._until(lambda: False, lambda: begun + round(getattr(self.settings, name) * NS))
        code = "batch_cancelled" if cancelled else "batch_expired"
        for line in left:
            self._answers += 1
            batch.error_output.append(unanswered(line, f"{self._answers:016x}", code))
        for lines, kind in ((batch.output, "output"), (batch.error_output, "error")):
            if lines:
                # A thread, which joins what is large without keeping the interpreter to itself.
                content = await asyncio.to_thread(b"".join, lines)
                lines.clear()
                file = self.files.add(
                    content,
                    filename=f"{batch.id}_{kind}.jsonl",
                    purpose="batch_output",
                    lifetime_s=batch.output_lifetime_s,
                )
                setattr(batch, f"{kind}_file_id", file.id)
        self._enter(batch, "cancelled" if cancelled else "expired" if left else "completed")


def _logged(batch: StoredBatch) -> BatchLog:
    return BatchLog(
        id=batch.id,
        input_file_id=batch.input_file_id,
        input_filename=batch.input_filename,
        metadata=dict(batch.metadata or {}),
        endpoint=batch.endpoint,
        status=batch.status,
        total=batch.total,
        completed=batch.completed,
        failed=batch.failed,
        created_ns=batch.created_ns,
        ended_ns=batch.ended_ns,
    )


def _error(code: str, message: str, param: str | None = None) -> dict[str, Any]:
    return {"code": code, "line": None, "message": message, "param": param}
