"""The files and batches of a provider: kept, listed and cancelled by requests; batches are processed beside them."""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from email.parser import BytesHeaderParser
from email.policy import HTTP
from hashlib import blake2b
from itertools import accumulate, count
from random import Random
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import parse_qsl

from fastlane._clock import now_ns, wall_ns
from fastlane.emulator._endpoints import answer_whole, prompt_tokens
from fastlane.emulator._log import prompt_digest
from fastlane.emulator._prompt import invalid_value, missing, required_text
from fastlane.emulator._provider import Provider
from fastlane.emulator._reply import compact
from fastlane.emulator._request import ApiError

Item = TypeVar("Item")
Line: TypeAlias = tuple[str, dict[str, Any]]
"""The `custom_id` and the body of a request."""

_NS = 1_000_000_000
_ENDPOINTS = ("/v1/responses", "/v1/chat/completions", "/v1/embeddings", "/v1/completions")
_STAMPS = (
    "in_progress_at", "expires_at", "finalizing_at", "completed_at", "failed_at", "expired_at", "cancelling_at",
    "cancelled_at",
)  # fmt: skip
# How long the event loop is kept from live calls at a time, and how often a batch looks whether a line is due.
_SLICE_NS = 1_000_000
_POLL_S = 0.005
_MOST_REQUESTS = 50_000
# How many files and batches a page of their list has by default and at most.
_LISTED_FILES = (10_000, 10_000)
_LISTED_BATCHES = (20, 100)
# The emulator's own bound: a batch of wrong lines would otherwise list each of them in every response.
_MOST_ERRORS = 100
# Keeps the ids of answers in batches apart from those of live calls.
_FIRST_NUMBER = 500_000_000_000
_FAILURES: Mapping[str, tuple[int, str, str, str]] = {
    "500": (500, "The server had an error while processing your request.", "server_error", "server_error"),
    "429": (429, "Rate limit reached for requests.", "requests", "rate_limit_exceeded"),
}
_OUTCOMES = (*_FAILURES, "request_timeout", "missing")
_UNANSWERED: Mapping[str, str] = {
    "batch_expired": "This request could not be executed before the completion window expired.",
    "batch_cancelled": "The batch was cancelled before this request was executed.",
    "request_timeout": "The underlying call to the model timed out.",
}


@dataclass(slots=True, kw_only=True)
class StoredFile:
    record: dict[str, Any]
    content: bytes = field(repr=False)
    created_ns: int
    deleted_ns: int | None = None


def _digest(text: str, size: int) -> str:
    return blake2b(text.encode(), digest_size=size).hexdigest()


class MultipartField(NamedTuple):
    content: bytes
    filename: str | None


def read_multipart(body: bytes, content_type: str | None) -> Mapping[str, MultipartField]:
    """Return the fields of `multipart/form-data` by their names; none of another body."""
    parser = BytesHeaderParser(policy=HTTP)
    header = b"content-type: " + (content_type or "").encode("latin-1", "replace") + b"\r\n\r\n"
    boundary = parser.parsebytes(header).get_boundary()
    fields: dict[str, MultipartField] = {}
    if not boundary:
        return fields
    for part in (b"\r\n" + body).split(b"\r\n--" + boundary.encode("latin-1", "replace"))[1:-1]:
        head, blank, content = part.partition(b"\r\n\r\n")
        described = parser.parsebytes(head.lstrip() + blank)
        name = described.get_param("name", header="content-disposition")
        if isinstance(name, str):
            fields[name] = MultipartField(content, described.get_filename())
    return fields


@dataclass(slots=True, kw_only=True)
class StoredBatch:
    record: dict[str, Any]
    created_ns: int
    expires_ns: int
    ended_ns: int | None = None
    tokens: int = 0
    """Prompt tokens of all its lines, where those are limited."""
    results: dict[str, list[bytes]] = field(default_factory=lambda: {"output": [], "error": []}, repr=False)

    @property
    def running(self) -> bool:
        return self.record["status"] == "in_progress" and now_ns() < self.expires_ns

    def enter(self, status: str) -> None:
        self.record["status"] = status
        self.record[f"{status}_at"] = wall_ns() // _NS
        if status in ("completed", "failed", "expired", "cancelled"):
            self.ended_ns = now_ns()

    def fail(self, code: str, message: str, line: int | None = None, param: str | None = None) -> None:
        """Note what is wrong with the batch, which keeps it from beginning."""
        errors = self.record["errors"] = self.record["errors"] or {"object": "list", "data": []}
        if len(errors["data"]) < _MOST_ERRORS:
            errors["data"].append({"code": code, "line": line, "message": message, "param": param})

    def write(self, custom_id: str, number: int, *, response: bytes = b"null", error: str | None = None) -> None:
        shown = {"code": error, "message": _UNANSWERED[error]} if error else None
        head = {"id": f"batch_req_{number:016x}", "custom_id": custom_id, "error": shown}
        failed = error is not None or not response.startswith(b'{"status_code":200,')
        self.results["error" if failed else "output"].append(
            compact(head)[:-1].encode() + b',"response":' + response + b"}\n"
        )


class Batches:
    """All files and batches of a provider, in memory. Every change happens on one event loop."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._files: dict[str, StoredFile] = {}
        self._batches: dict[str, StoredBatch] = {}
        self.lines: list[dict[str, Any]] = []
        """What was carried out, as `LineLog` has it."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._next = count(1).__next__

    def upload(self, body: bytes, content_type: str | None) -> Mapping[str, Any]:
        fields = read_multipart(body, content_type)
        for name in ("file", "purpose"):
            if name not in fields:
                raise missing(name)
        purpose = fields["purpose"].content.decode("utf-8", "replace").strip()
        return self._add_file(fields["file"].content, fields["file"].filename or "upload", purpose)

    def _add_file(self, content: bytes, filename: str, purpose: str) -> Mapping[str, Any]:
        record = {
            "id": f"file-{_digest(f'{self._provider.seed}:file:{self._next()}', 12)}",
            "filename": filename,
            "purpose": purpose,
            "bytes": len(content),
            "object": "file",
            "created_at": wall_ns() // _NS,
            "expires_at": None,
            "status": "processed",
            "status_details": None,
        }
        self._files[str(record["id"])] = StoredFile(record=record, content=content, created_ns=now_ns())
        return record

    def _file(self, file_id: str) -> StoredFile | None:
        file = self._files.get(file_id)
        return None if file is None or file.deleted_ns is not None else file

    def file(self, file_id: str) -> StoredFile:
        file = self._file(file_id)
        if file is None:
            raise ApiError(404, f"No such File object: {file_id[:128]}", param="id", code="not_found")
        return file

    def delete_file(self, file_id: str) -> Mapping[str, Any]:
        """Delete a file; a batch that has begun with it goes on. Raises ApiError (404)."""
        file = self.file(file_id)
        file.content, file.deleted_ns = b"", now_ns()
        return {"id": file_id, "object": "file", "deleted": True}

    def list_files(self, query: str) -> dict[str, Any]:
        return self._page([file for file in self._files.values() if file.deleted_ns is None], query, _LISTED_FILES)

    def list_batches(self, query: str) -> dict[str, Any]:
        return self._page(self._batches.values(), query, _LISTED_BATCHES)

    def _page(self, items: Iterable[StoredFile | StoredBatch], query: str, limits: tuple[int, int]) -> dict[str, Any]:
        asked = dict(parse_qsl(query))
        usual, most = limits
        text = asked.get("limit", str(usual))
        limit = int(text) if text.isdecimal() else 0
        if not 1 <= limit <= most:
            message = f"Invalid 'limit': expected an integer from 1 to {most}, got '{text[:64]}'."
            raise ApiError(400, message, param="limit", code="invalid_value")
        shown_before = now_ns() - round(self._provider.model.batches.listing_delay_s * _NS)
        records = [
            item.record
            for item in items
            if item.created_ns <= shown_before and asked.get("purpose") in (None, item.record.get("purpose"))
        ]
        if asked.get("order") != "asc":
            records.reverse()
        if "after" in asked:
            # After an item that is not in the list comes nothing.
            first = next((at for at, record in enumerate(records, 1) if record["id"] == asked["after"]), len(records))
            records = records[first:]
        shown = records[:limit]
        return {
            "object": "list",
            "data": shown,
            "first_id": shown[0]["id"] if shown else None,
            "last_id": shown[-1]["id"] if shown else None,
            "has_more": len(shown) < len(records),
        }

    def create(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        file_id, endpoint, window = (
            required_text(body, name) for name in ("input_file_id", "endpoint", "completion_window")
        )
        if endpoint not in _ENDPOINTS:
            raise invalid_value("endpoint", endpoint, _ENDPOINTS)
        if window != "24h":
            raise invalid_value("completion_window", window, ("24h",))
        file = self._file(file_id)
        settings = self._provider.model.batches
        if file is None and not settings.missing_file_fails_late:
            message = f"Invalid 'input_file_id': no such File object: {file_id[:128]}"
            raise ApiError(400, message, param="input_file_id", code="invalid_file")
        if file is not None and file.record["purpose"] != "batch":
            message = "Invalid file purpose: the input file of a batch must have the purpose 'batch'."
            raise ApiError(400, message, param="input_file_id", code="invalid_file_purpose")
        batch_id = f"batch_{_digest(f'{self._provider.seed}:batch:{self._next()}', 16)}"
        lifetime_ns = round(settings.expires_after_s * _NS)
        record = {
            "id": batch_id,
            "object": "batch",
            "endpoint": endpoint,
            "model": None,
            "errors": None,
            "input_file_id": file_id,
            "completion_window": window,
            "status": "validating",
            "output_file_id": None,
            "error_file_id": None,
            "created_at": wall_ns() // _NS,
            **dict.fromkeys(_STAMPS),
            "expires_at": (wall_ns() + lifetime_ns) // _NS,
            "request_counts": {"total": 0, "completed": 0, "failed": 0},
            "metadata": body.get("metadata"),
        }
        batch = StoredBatch(record=record, created_ns=now_ns(), expires_ns=now_ns() + lifetime_ns)
        self._batches[batch_id] = batch
        task = asyncio.get_running_loop().create_task(self._process(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return record

    def cancel(self, batch_id: str) -> Mapping[str, Any]:
        """Cancel a batch; one that is cancelled already stays so. Raises ApiError (404, 409)."""
        batch = self.batch(batch_id)
        status = batch.record["status"]
        if status in ("validating", "in_progress"):
            batch.enter("cancelling")
        elif status not in ("cancelling", "cancelled"):
            raise ApiError(409, f"Cannot cancel a batch with status '{status}'.")
        return batch.record

    def batch(self, batch_id: str) -> StoredBatch:
        if batch_id not in self._batches:
            raise ApiError(404, f"No batch found with id '{batch_id[:128]}'.", code="not_found")
        return self._batches[batch_id]

    def log(self) -> dict[str, Any]:
        """Return what was done, for `Offline.from_json`."""
        files = [
            {**file.record, "created_ns": file.created_ns, "deleted_ns": file.deleted_ns}
            for file in self._files.values()
        ]
        batches = [
            {**each.record, **each.record["request_counts"], "created_ns": each.created_ns, "ended_ns": each.ended_ns}
            for each in self._batches.values()
        ]
        return {"files": files, "batches": batches, "lines": self.lines}

    def clear(self) -> None:
        self.close()
        for kept in (self._files, self._batches, self.lines):
            kept.clear()

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _process(self, batch: StoredBatch) -> None:
        try:
            await asyncio.sleep(0)
            lines = await self._validated(batch)
            if batch.record["errors"]:
                batch.enter("failed")
                return
            # Any order, as with OpenAI.
            Random(f"{self._provider.seed}:order:{batch.record['id']}").shuffle(lines)
            if batch.record["status"] == "validating":
                batch.enter("in_progress")
            done = await self._answer_lines(batch, lines)
            self._finish(batch, lines[done:])
        # Whatever it is, the client that waits for the batch learns of it.
        except Exception:  # noqa: BLE001
            traceback.print_exc(file=sys.stderr)
            batch.fail("server_error", "The emulator has a bug; see its stderr.")
            batch.enter("failed")

    async def _validated(self, batch: StoredBatch) -> list[Line]:
        """Read a batch's input, and note what is wrong with it as OpenAI does before a batch begins."""
        file = self._file(batch.record["input_file_id"])
        if file is None:
            batch.fail("invalid_file", "The input file does not exist.", param="input_file_id")
            return []
        lines: dict[str, dict[str, Any]] = {}
        resource = batch.record["endpoint"].removeprefix("/v1/")
        most_tokens = self._provider.model.batches.enqueued_tokens
        async for number, text in _in_slices(enumerate(file.content.split(b"\n"), 1)):
            # A last line that is empty is the end of the one before; in between it is no request.
            line = _read(batch, number, text, lines) if text.strip() else None
            if line is not None:
                lines[line[0]] = line[1]
                if most_tokens is not None:
                    batch.tokens += prompt_tokens(resource, line[1])
        if not lines and not batch.record["errors"]:
            message = "The batch input file is empty. Please ensure that the batch contains at least one request."
            batch.fail("empty_file", message)
        if len(lines) > _MOST_REQUESTS:
            batch.fail("too_many_tasks", f"The batch has {len(lines)} requests, of at most {_MOST_REQUESTS}.")
        model = batch.record["model"]
        enqueued = sum(
            each.tokens for each in self._batches.values() if each.record["model"] == model and not each.ended_ns
        )
        if most_tokens is not None and enqueued > most_tokens:
            message = (
                f"Enqueued token limit reached for {model} in organization emulator. Limit: {most_tokens:,} enqueued "
                "tokens. Please try again once some in_progress batches have been completed."
            )
            batch.fail("token_limit_exceeded", message)
        batch.record["request_counts"]["total"] = len(lines)
        return list(lines.items())

    async def _answer_lines(self, batch: StoredBatch, lines: list[Line]) -> int:
        """Answer a batch's lines, evenly over the duration of the settings; return how many were done."""
        done, begun = 0, now_ns()
        async for line in _in_slices(lines):
            # Read each time, because settings can change while a batch is processed.
            duration_ns = self._provider.model.batches.duration_s * _NS
            while batch.running and (now_ns() - begun) * len(lines) < (done + 1) * duration_ns:
                await asyncio.sleep(_POLL_S)
                duration_ns = self._provider.model.batches.duration_s * _NS
            if not batch.running:
                break
            self._answer(batch, *line)
            done += 1
        return done

    def _answer(self, batch: StoredBatch, custom_id: str, body: dict[str, Any]) -> None:
        settings = self._provider.model.batches
        shares = (
            settings.server_error_share, settings.rate_limited_share, settings.timeout_share, settings.missing_share,
        )  # fmt: skip
        chance = Random(f"{self._provider.seed}:line:{batch.record['id']}:{custom_id}").random()
        outcome = next((name for name, end in zip(_OUTCOMES, accumulate(shares), strict=True) if chance < end), "")
        number, status = self._next(), 0
        if outcome == "request_timeout":
            batch.write(custom_id, number, error=outcome)
        else:
            try:
                if outcome in _FAILURES:
                    status, message, kind, code = _FAILURES[outcome]
                    raise ApiError(status, message, type=kind, code=code)
                resource = batch.record["endpoint"].removeprefix("/v1/")
                answer = answer_whole(resource, body, self._provider, number=_FIRST_NUMBER + number)
                status = 200
            except ApiError as error:
                status, answer = error.status, error.body()
            if outcome != "missing":
                head = f'{{"status_code":{status},"request_id":"{number:016x}","body":'
                batch.write(custom_id, number, response=head.encode() + answer + b"}")
        batch.record["request_counts"]["completed" if status == 200 else "failed"] += 1
        done = {"batch_id": batch.record["id"], "custom_id": custom_id, "prompt": prompt_digest(body)}
        self.lines.append({**done, "status": status, "written": outcome != "missing"})

    def _finish(self, batch: StoredBatch, left: list[Line]) -> None:
        cancelled = batch.record["status"] == "cancelling"
        if not cancelled:
            batch.enter("finalizing")
        for custom_id, _ in left:
            batch.write(custom_id, self._next(), error="batch_cancelled" if cancelled else "batch_expired")
        for kind, lines in batch.results.items():
            if lines:
                file = self._add_file(b"".join(lines), f"{batch.record['id']}_{kind}.jsonl", "batch_output")
                batch.record[f"{kind}_file_id"] = file["id"]
        batch.results.clear()
        batch.enter("cancelled" if cancelled else "expired" if left else "completed")


async def _in_slices(items: Iterable[Item]) -> AsyncIterator[Item]:
    """Yield the items, and let live calls run in between."""
    since = now_ns()
    for item in items:
        yield item
        if now_ns() - since > _SLICE_NS:
            await asyncio.sleep(0)
            since = now_ns()


def _read(batch: StoredBatch, number: int, text: bytes, before: Mapping[str, object]) -> Line | None:
    """Read one line of a batch's input, or note what is wrong with it."""
    try:
        request = json.loads(text)
    except (ValueError, RecursionError):
        request = None
    if not isinstance(request, dict):
        batch.fail("invalid_json_line", "This line is not parseable as valid JSON.", number)
        return None
    for name, kind in (("custom_id", str), ("method", str), ("url", str), ("body", dict)):
        if not isinstance(request.get(name), kind) or not request[name]:
            if name in request:
                batch.fail("invalid_type", f"Invalid type for '{name}'.", number, name)
            else:
                batch.fail("missing_required_parameter", f"Missing required parameter: '{name}'.", number, name)
            return None
    custom_id, body = request["custom_id"], request["body"]
    model = body.get("model")
    batch.record["model"] = batch.record["model"] or model
    for code, param, is_right in (
        ("invalid_method", "method", request["method"] == "POST"),
        ("url_mismatch", "url", request["url"] == batch.record["endpoint"]),
        ("duplicate_custom_id", "custom_id", custom_id not in before),
        ("missing_required_parameter", "body.model", isinstance(model, str)),
        ("model_mismatch", "body.model", model is None or model == batch.record["model"]),
    ):
        if not is_right:
            batch.fail(code, f"The parameter '{param}' of this request does not fit the batch.", number, param)
    return custom_id, body
