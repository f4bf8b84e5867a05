"""The files and batches of a provider: kept, listed and cancelled by requests; batches are processed beside them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.parser import BytesHeaderParser
from email.policy import HTTP
from hashlib import blake2b
from random import Random
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from fastlane._clock import now_ns, wall_ns
from fastlane.emulator._endpoints import answer_whole, prompt_tokens
from fastlane.emulator._log import BatchLog, FileLog, LineLog, Offline, prompt_digest
from fastlane.emulator._prompt import invalid_value, missing, required_text
from fastlane.emulator._provider import Provider
from fastlane.emulator._reply import compact
from fastlane.emulator._request import ApiError
from fastlane.emulator.settings import BatchSettings

_NS = 1_000_000_000
_MOST_FILES_LISTED = 10_000
_ENDPOINTS = ("/v1/responses", "/v1/chat/completions", "/v1/embeddings", "/v1/completions")
_FINAL = ("completed", "failed", "expired", "cancelled")
_STAMPS = (
    "in_progress_at", "expires_at", "finalizing_at", "completed_at", "failed_at", "expired_at", "cancelling_at",
    "cancelled_at",
)  # fmt: skip
# How long the event loop is kept from live calls at a time, and how often a batch looks whether a line is due.
_SLICE_NS = 1_000_000
_POLL_S = 0.005
_MOST_REQUESTS = 50_000
_USUALLY_LISTED, _MOST_LISTED = 20, 100
# The emulator's own bound: a batch of wrong lines would otherwise tell of each of them whenever it is asked for.
_MOST_ERRORS = 100
# Keeps the ids of answers in batches apart from those of live calls, without a place in their sequence.
_FIRST_NUMBER = 500_000_000_000
_UNANSWERED: Mapping[str, str] = {
    "batch_expired": "This request could not be executed before the completion window expired.",
    "batch_cancelled": "The batch was cancelled before this request was executed.",
    "request_timeout": "The underlying call to the model timed out.",
}
_FAILED: Mapping[str, tuple[str, str, str]] = {
    "500": ("The server had an error while processing your request.", "server_error", "server_error"),
    "429": ("Rate limit reached for requests.", "requests", "rate_limit_exceeded"),
}


class StoredFile(NamedTuple):
    """One file."""

    record: Mapping[str, Any]
    """As OpenAI shows it."""
    content: bytes
    log: FileLog


class FileStore:
    """All files of a provider, in memory."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._files: dict[str, StoredFile] = {}
        self._made = 0

    def upload(self, body: bytes, content_type: str | None) -> Mapping[str, Any]:
        """Take an upload. Raises ApiError (400)."""
        fields = read_multipart(body, content_type)
        for name in ("file", "purpose"):
            if name not in fields:
                raise missing(name)
        purpose = fields["purpose"].content.decode("utf-8", "replace").strip()
        file = fields["file"]
        return self.add(file.content, filename=file.filename or "upload", purpose=purpose)

    def add(self, content: bytes, *, filename: str, purpose: str) -> Mapping[str, Any]:
        """Keep a file."""
        self._made += 1
        file_id = f"file-{blake2b(f'{self._provider.seed}:file:{self._made}'.encode(), digest_size=12).hexdigest()}"
        shown: dict[str, Any] = {"id": file_id, "filename": filename, "purpose": purpose, "bytes": len(content)}
        record = {
            **shown,
            "object": "file",
            "created_at": wall_ns() // _NS,
            "expires_at": None,
            "status": "processed",
            "status_details": None,
        }
        self._files[file_id] = StoredFile(record, content, FileLog(**shown, created_ns=now_ns()))
        return record

    def get(self, file_id: str) -> StoredFile | None:
        """Return a file, if there is one of this id."""
        file = self._files.get(file_id)
        return None if file is None or file.log.deleted_ns is not None else file

    def one(self, file_id: str) -> StoredFile:
        """Return a file. Raises ApiError (404)."""
        file = self.get(file_id)
        if file is None:
            raise ApiError(404, f"No such File object: {file_id[:128]}", param="id", code="not_found")
        return file

    def delete(self, file_id: str) -> Mapping[str, Any]:
        """Forget a file; a batch that has begun with it goes on. Raises ApiError (404)."""
        file = self.one(file_id)
        log = dataclasses.replace(file.log, deleted_ns=now_ns())
        self._files[file_id] = StoredFile(file.record, b"", log)
        return {"id": file_id, "object": "file", "deleted": True}

    def page(self, query: str) -> dict[str, Any]:
        """Return a page of the list. Raises ApiError (400, 404)."""
        asked = dict(parse_qsl(query))
        if "after" in asked:
            self.one(asked["after"])
        shown_before = now_ns() - round(self._provider.model.batches.listing_delay_s * _NS)
        files = [
            file.record
            for file in self._files.values()
            if file.log.created_ns <= shown_before
            and file.log.deleted_ns is None
            and asked.get("purpose") in (None, file.log.purpose)
        ]
        if asked.get("order") != "asc":
            files.reverse()
        return _page(files, asked, usual=_MOST_FILES_LISTED, most=_MOST_FILES_LISTED)

    def logs(self) -> tuple[FileLog, ...]:
        """Return what was done with files, deleted ones included."""
        return tuple(file.log for file in self._files.values())

    def clear(self) -> None:
        """Forget all files, and that there were any."""
        self._files.clear()


def _page(items: Sequence[Mapping[str, Any]], asked: Mapping[str, str], *, usual: int, most: int) -> dict[str, Any]:
    """Return the page of a list that `after` and `limit` ask for. Raises ApiError (400)."""
    given = asked.get("limit", str(usual))
    if not given.isascii() or not given.isdigit() or not 1 <= int(given[:9]) <= most:
        message = f"Invalid 'limit': expected an integer from 1 to {most}, got '{given[:64]}'."
        raise ApiError(400, message, param="limit", code="invalid_value")
    first = 0
    if "after" in asked:
        # One that is not listed is of another purpose: then the list has no end to go on from.
        first = next((at + 1 for at, item in enumerate(items) if item["id"] == asked["after"]), len(items))
    shown = items[first : first + int(given)]
    return {
        "object": "list",
        "data": shown,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": first + len(shown) < len(items),
    }


class MultipartField(NamedTuple):
    """One field of a form, and the name of its file, if it is one."""

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


class Line(NamedTuple):
    """One request of a batch."""

    custom_id: str
    body: dict[str, Any]


@dataclass(slots=True, kw_only=True)
class StoredBatch:
    """A batch and how far it is."""

    record: dict[str, Any]
    """As OpenAI shows it."""
    created_ns: int
    expires_ns: int
    ended_ns: int | None = None
    tokens: int = 0
    """Prompt tokens of all its lines, where those are limited."""
    output: list[bytes] = field(default_factory=list, repr=False)
    error_output: list[bytes] = field(default_factory=list, repr=False)

    @property
    def id(self) -> str:
        return str(self.record["id"])

    @property
    def resource(self) -> str:
        """Its endpoint, as `answer_whole` names it."""
        return str(self.record["endpoint"]).removeprefix("/v1/")

    @property
    def status(self) -> str:
        return str(self.record["status"])

    def enter(self, status: str) -> None:
        """Go on to another status."""
        self.record["status"] = status
        self.record[f"{status}_at"] = wall_ns() // _NS
        if status in _FINAL:
            self.ended_ns = now_ns()

    def fail(self, code: str, message: str, line: int | None = None, param: str | None = None) -> None:
        """Note what is wrong with the batch, which keeps it from beginning."""
        errors = self.record["errors"] = self.record["errors"] or {"object": "list", "data": []}
        if len(errors["data"]) < _MOST_ERRORS:
            errors["data"].append({"code": code, "line": line, "message": message, "param": param})

    def logged(self) -> BatchLog:
        """Return what the log says of it."""
        record, counts = self.record, self.record["request_counts"]
        return BatchLog(
            id=self.id,
            input_file_id=record["input_file_id"],
            metadata=record["metadata"] or {},
            endpoint=record["endpoint"],
            status=self.status,
            created_ns=self.created_ns,
            ended_ns=self.ended_ns,
            **counts,
        )


class Batches:
    """All batches of a provider, and its files. Every change happens on one event loop."""

    def __init__(self, provider: Provider) -> None:
        self.files = FileStore(provider)
        self._provider = provider
        self._batches: dict[str, StoredBatch] = {}
        self._lines: list[LineLog] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._made = 0
        self._answers = 0

    @property
    def _settings(self) -> BatchSettings:
        return self._provider.model.batches

    def create(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Make a batch, which begins by itself. Raises ApiError (400)."""
        file_id, endpoint, window = (
            required_text(body, name) for name in ("input_file_id", "endpoint", "completion_window")
        )
        if endpoint not in _ENDPOINTS:
            raise invalid_value("endpoint", endpoint, _ENDPOINTS)
        if window != "24h":
            raise invalid_value("completion_window", window, ("24h",))
        file = self.files.get(file_id)
        if file is None and not self._settings.missing_file_fails_late:
            message = f"Invalid 'input_file_id': no such File object: {file_id[:128]}"
            raise ApiError(400, message, param="input_file_id", code="invalid_file")
        if file is not None and file.record["purpose"] != "batch":
            message = "Invalid file purpose: the input file of a batch must have the purpose 'batch'."
            raise ApiError(400, message, param="input_file_id", code="invalid_file_purpose")
        self._made += 1
        now, lifetime_ns = now_ns(), round(self._settings.expires_after_s * _NS)
        record = {
            "id": f"batch_{blake2b(f'{self._provider.seed}:batch:{self._made}'.encode(), digest_size=16).hexdigest()}",
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
        batch = StoredBatch(record=record, created_ns=now, expires_ns=now + lifetime_ns)
        self._batches[batch.id] = batch
        task = asyncio.get_running_loop().create_task(self._process(batch))
        self._tasks[batch.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(batch.id, None))
        return record

    def cancel(self, batch_id: str) -> Mapping[str, Any]:
        """Cancel a batch; one that is cancelled already stays so. Raises ApiError (404, 409)."""
        batch = self.one(batch_id)
        if batch.status in ("validating", "in_progress"):
            batch.enter("cancelling")
        elif batch.status not in ("cancelling", "cancelled"):
            raise ApiError(409, f"Cannot cancel a batch with status '{batch.status}'.")
        return batch.record

    def page(self, query: str) -> dict[str, Any]:
        """Return a page of the list, the latest first. Raises ApiError (400, 404)."""
        asked = dict(parse_qsl(query))
        if "after" in asked:
            self.one(asked["after"])
        shown_before = now_ns() - round(self._settings.listing_delay_s * _NS)
        latest = [batch.record for batch in reversed(self._batches.values()) if batch.created_ns <= shown_before]
        return _page(latest, asked, usual=_USUALLY_LISTED, most=_MOST_LISTED)

    def log(self) -> Offline:
        """Return what was done."""
        return Offline(
            files=self.files.logs(),
            batches=tuple(batch.logged() for batch in self._batches.values()),
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
        """Stop what is being processed."""
        for task in self._tasks.values():
            task.cancel()

    def one(self, batch_id: str) -> StoredBatch:
        """Return a batch. Raises ApiError (404)."""
        batch = self._batches.get(batch_id)
        if batch is None:
            raise ApiError(404, f"No batch found with id '{batch_id[:128]}'.", code="not_found")
        return batch

    async def _process(self, batch: StoredBatch) -> None:
        """Take a batch through all of its life."""
        try:
            await asyncio.sleep(0)
            lines = await self._validated(batch)
            if batch.record["errors"]:
                batch.enter("failed")
                return
            # Any order, as with OpenAI.
            Random(f"{self._provider.seed}:order:{batch.id}").shuffle(lines)
            done = await self._carry_out(batch, lines)
            self._finish(batch, lines[done:])
        # Whatever it is, the client that waits for the batch learns of it.
        except Exception:  # noqa: BLE001
            traceback.print_exc(file=sys.stderr)
            batch.fail("server_error", "The emulator has a bug; see its stderr.")
            batch.enter("failed")

    async def _validated(self, batch: StoredBatch) -> list[Line]:
        """Read a batch's input, and note what is wrong with it as OpenAI does before a batch begins."""
        file = self.files.get(batch.record["input_file_id"])
        if file is None:
            batch.fail("invalid_file", "The input file does not exist.", param="input_file_id")
            return []
        lines: list[Line] = []
        names: set[str] = set()
        most_tokens, since = self._settings.enqueued_tokens, now_ns()
        for number, text in enumerate(file.content.split(b"\n"), 1):
            # A last line that is empty is the end of the one before; in between it is no request.
            line = self._read(batch, number, text, names) if text.strip() else None
            if line is not None:
                names.add(line.custom_id)
                lines.append(line)
                if most_tokens is not None:
                    batch.tokens += prompt_tokens(batch.resource, line.body)
            if now_ns() - since > _SLICE_NS:
                await asyncio.sleep(0)
                since = now_ns()
        model = batch.record["model"]
        if not lines and not batch.record["errors"]:
            message = "The batch input file is empty. Please ensure that the batch contains at least one request."
            batch.fail("empty_file", message)
        if len(lines) > _MOST_REQUESTS:
            batch.fail("too_many_tasks", f"The batch has {len(lines)} requests, of at most {_MOST_REQUESTS}.")
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
        return lines

    @staticmethod
    def _read(batch: StoredBatch, number: int, text: bytes, names: set[str]) -> Line | None:
        try:
            request = json.loads(text)
        except (ValueError, RecursionError):
            request = None
        if not isinstance(request, dict):
            batch.fail("invalid_json_line", "This line is not parseable as valid JSON.", number)
            return None
        for name, kind in (("custom_id", str), ("method", str), ("url", str), ("body", dict)):
            if name not in request:
                batch.fail("missing_required_parameter", f"Missing required parameter: '{name}'.", number, name)
                return None
            if not isinstance(request[name], kind) or not request[name]:
                batch.fail("invalid_type", f"Invalid type for '{name}'.", number, name)
                return None
        custom_id, body = request["custom_id"], request["body"]
        model = body.get("model")
        batch.record["model"] = batch.record["model"] or model
        for code, param, is_right in (
            ("invalid_method", "method", request["method"] == "POST"),
            ("url_mismatch", "url", request["url"] == batch.record["endpoint"]),
            ("duplicate_custom_id", "custom_id", custom_id not in names),
            ("missing_required_parameter", "body.model", isinstance(model, str)),
            ("model_mismatch", "body.model", model is None or model == batch.record["model"]),
        ):
            if not is_right:
                batch.fail(code, f"The parameter '{param}' of this request does not fit the batch.", number, param)
        return Line(custom_id, body)

    async def _carry_out(self, batch: StoredBatch, lines: list[Line]) -> int:
        """Do a batch's lines at the pace of the settings, until its end; return how many were done."""
        if batch.status == "validating":
            batch.enter("in_progress")
        done, begun, since = 0, now_ns(), now_ns()
        while batch.status == "in_progress" and now_ns() < batch.expires_ns:
            duration_ns = round(self._settings.duration_s * _NS)
            elapsed_ns = now_ns() - begun
            due = len(lines) if elapsed_ns >= duration_ns else len(lines) * elapsed_ns // duration_ns
            if done < due:
                self._lines.append(self._answer(batch, lines[done]))
                done += 1
                if now_ns() - since > _SLICE_NS:
                    await asyncio.sleep(0)
                    since = now_ns()
            elif elapsed_ns >= duration_ns:
                break
            else:
                await asyncio.sleep(_POLL_S)
        return done

    def _answer(self, batch: StoredBatch, line: Line) -> LineLog:
        """Answer one line, and write the answer down."""
        settings, provider = self._settings, self._provider
        self._answers += 1
        counts, request_id = batch.record["request_counts"], f"{self._answers:016x}"
        chance = Random(f"{provider.seed}:line:{batch.id}:{line.custom_id}").random()
        outcome = "answered"
        for struck, share in (
            ("500", settings.server_error_share),
            ("429", settings.rate_limited_share),
            ("request_timeout", settings.timeout_share),
            ("missing", settings.missing_share),
        ):
            if 0 <= chance < share:
                outcome = struck
            chance -= share
        status = 0
        if outcome == "request_timeout":
            counts["failed"] += 1
            batch.error_output.append(_unanswered(line, request_id, outcome))
        else:
            try:
                if outcome in _FAILED:
                    message, kind, code = _FAILED[outcome]
                    raise ApiError(int(outcome), message, type=kind, code=code)
                number = _FIRST_NUMBER + self._answers
                answer = answer_whole(batch.resource, line.body, provider, number=number)
            except ApiError as error:
                status = error.status
                counts["failed"] += 1
                batch.error_output.append(_answered(line, request_id, status, error.body()))
            else:
                status = 200
                counts["completed"] += 1
                if outcome != "missing":
                    batch.output.append(_answered(line, request_id, status, answer))
        return LineLog(
            batch_id=batch.id,
            custom_id=line.custom_id,
            prompt=prompt_digest(line.body),
            status=status,
            written=outcome != "missing",
        )

    def _finish(self, batch: StoredBatch, left: list[Line]) -> None:
        """Write the files, and end."""
        cancelled = batch.status == "cancelling"
        if not cancelled:
            batch.enter("finalizing")
        code = "batch_cancelled" if cancelled else "batch_expired"
        for line in left:
            self._answers += 1
            batch.error_output.append(_unanswered(line, f"{self._answers:016x}", code))
        for kind, lines in (("output", batch.output), ("error", batch.error_output)):
            if lines:
                name = f"{batch.id}_{kind}.jsonl"
                file = self.files.add(b"".join(lines), filename=name, purpose="batch_output")
                batch.record[f"{kind}_file_id"] = file["id"]
                lines.clear()
        batch.enter("cancelled" if cancelled else "expired" if left else "completed")


def _answered(line: Line, request_id: str, status: int, body: bytes) -> bytes:
    return (
        f'{{"id": "batch_req_{request_id}", "custom_id": {json.dumps(line.custom_id)}, "response": {{"status_code": '
        f'{status}, "request_id": "{request_id}", "body": '
    ).encode() + body + b'}, "error": null}\n'  # fmt: skip


def _unanswered(line: Line, request_id: str, code: str) -> bytes:
    """Return what stands in the error file for a line that has no response."""
    error = {"code": code, "message": _UNANSWERED[code]}
    shown = {"id": f"batch_req_{request_id}", "custom_id": line.custom_id, "response": None, "error": error}
    return compact(shown).encode() + b"\n"
