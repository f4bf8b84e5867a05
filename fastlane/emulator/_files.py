"""The files that a provider keeps: uploads and what batches wrote, with lists in pages as OpenAI has them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any
from urllib.parse import parse_qsl

from fastlane._clock import now_ns, wall_ns
from fastlane.emulator._batch_log import FileLog
from fastlane.emulator._errors import ApiError
from fastlane.emulator._multipart import read_multipart
from fastlane.emulator.settings import MAXIMUM_FILE_BYTES, BatchSettings

# As OpenAI lists them where it refuses another.
_PURPOSES = ("fine-tune", "assistants", "batch", "user_data", "vision", "evals")
_BATCH_LIFETIME_S = 30 * 86_400
_MOST_LISTED = 10_000
# Above it, putting an upload together is left to a thread.
_LARGE = 1_048_576
MAXIMUM_FILES = 100_000
NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """One file; `content` holds it from `start` to `end`."""

    record: Mapping[str, Any]
    content: bytes = field(repr=False)
    start: int
    end: int
    visible_ns: int

    @property
    def id(self) -> str:
        """Its id."""
        return str(self.record["id"])

    def slices(self, size: int) -> list[memoryview]:
        """Return the content in pieces."""
        view = memoryview(self.content)
        return [view[at : min(at + size, self.end)] for at in range(self.start, self.end, size)]


class FileStore:
    """All files of a provider, in memory; what is beyond `BatchSettings.storage_bytes` is refused."""

    def __init__(self, seed: int, settings: Callable[[], BatchSettings]) -> None:
        self._seed = seed
        self._settings = settings
        self._files: dict[str, StoredFile] = {}
        self._bytes = 0
        self._made = 0
        self._uploads: set[asyncio.Task[StoredFile]] = set()
        self.logs: dict[str, FileLog] = {}

    async def upload(self, chunks: Sequence[bytes], content_type: str | None) -> Mapping[str, Any]:
        """Take an upload, even if its client leaves meanwhile. Raises ApiError (400, 413)."""
        if sum(map(len, chunks)) <= _LARGE:
            return self._taken(*_read(chunks, content_type)).record
        task = asyncio.get_running_loop().create_task(self._upload_large(chunks, content_type))
        self._uploads.add(task)
        task.add_done_callback(self._forget_upload)
        return (await asyncio.shield(task)).record

    async def _upload_large(self, chunks: Sequence[bytes], content_type: str | None) -> StoredFile:
        return self._taken(*await asyncio.to_thread(_read, chunks, content_type))

    def _forget_upload(self, task: asyncio.Task[StoredFile]) -> None:
        self._uploads.discard(task)
        if not task.cancelled():
            # Whose client has left has nobody else to look at its error.
            task.exception()

    def _taken(self, body: bytes, fields: Mapping[str, Any]) -> StoredFile:
        for name in ("file", "purpose"):
            if name not in fields:
                code = "missing_required_parameter"
                raise ApiError(400, f"Missing required parameter: '{name}'.", param=name, code=code)
        texts = {name: body[part.start : part.end].decode("utf-8", "replace") for name, part in fields.items()
                 if name != "file"}  # fmt: skip
        purpose, part = texts["purpose"].strip(), fields["file"]
        if purpose not in _PURPOSES:
            message = f"'{purpose[:64]}' is not one of {list(_PURPOSES)} - 'purpose'"
            raise ApiError(400, message, param="purpose", code="invalid_value")
        size = part.end - part.start
        if size > MAXIMUM_FILE_BYTES:
            raise ApiError(413, f"File is too large: {size} bytes, of at most {MAXIMUM_FILE_BYTES}.")
        if self._bytes + size > self._settings().storage_bytes or len(self._files) >= MAXIMUM_FILES:
            raise ApiError(400, "The project's storage is full: delete files.", code="storage_limit_exceeded")
        lifetime = texts.get("expires_after[seconds]", str(_BATCH_LIFETIME_S) if purpose == "batch" else "")
        return self.add(
            body,
            part.start,
            part.end,
            filename=part.filename or "upload",
            purpose=purpose,
            lifetime_s=int(lifetime) if lifetime.isdigit() else None,
        )

    def add(
        self,
        content: bytes,
        start: int = 0,
        end: int | None = None,
        *,
        filename: str,
        purpose: str,
        lifetime_s: int | None = None,
    ) -> StoredFile:
        """Keep a file."""
        end = len(content) if end is None else end
        self._made += 1
        created = wall_ns() // NS
        record = {
            "id": f"file-{blake2b(f'{self._seed}:file:{self._made}'.encode(), digest_size=12).hexdigest()}",
            "object": "file",
            "bytes": end - start,
            "created_at": created,
            "expires_at": None if lifetime_s is None else created + lifetime_s,
            "filename": filename,
            "purpose": purpose,
            "status": "processed",
            "status_details": None,
        }
        visible = now_ns() + round(self._settings().file_listing_delay_s * NS)
        file = StoredFile(record=record, content=content, start=start, end=end, visible_ns=visible)
        self._files[file.id] = file
        self._bytes += end - start
        self.logs[file.id] = FileLog(
            id=file.id, filename=filename, purpose=purpose, bytes=end - start, created_ns=now_ns(), deleted_ns=None
        )
        return file

    def get(self, file_id: str) -> StoredFile | None:
        """Return a file, if there is one of this id."""
        return self._files.get(file_id)

    def one(self, file_id: str) -> StoredFile:
        """Return a file. Raises ApiError (404)."""
        file = self._files.get(file_id)
        if file is None:
            raise ApiError(404, f"No such File object: {file_id[:128]}", param="id", code="not_found")
        return file

    def delete(self, file_id: str) -> Mapping[str, Any]:
        """Forget a file; a batch that has begun with it goes on. Raises ApiError (404)."""
        file = self.one(file_id)
        del self._files[file_id]
        self._bytes -= file.end - file.start
        if file_id in self.logs:
            self.logs[file_id] = self.logs[file_id].deleted(now_ns())
        return {"id": file_id, "object": "file", "deleted": True}

    def page(self, query: str) -> dict[str, Any]:
        """Return a page of the list. Raises ApiError (400, 404)."""
        asked = dict(parse_qsl(query))
        order, now = asked.get("order", "desc"), now_ns()
        if order not in ("asc", "desc"):
            message = f"'{order[:64]}' is not one of ['asc', 'desc'] - 'order'"
            raise ApiError(400, message, param="order", code="invalid_value")
        if "after" in asked:
            self.one(asked["after"])
        files = [
            file.record
            for file in self._files.values()
            if file.visible_ns <= now and asked.get("purpose") in (None, file.record["purpose"])
        ]
        if order == "desc":
            files.reverse()
        return page(files, asked, usual=_MOST_LISTED, most=_MOST_LISTED)

    def clear(self) -> None:
        """Forget all files, and that there were any."""
        self._files.clear()
        self.logs.clear()
        self._bytes = 0


def page(items: list[Mapping[str, Any]], asked: Mapping[str, str], *, usual: int, most: int) -> dict[str, Any]:
    """Return the page of a list that `after` and `limit` ask for. Raises ApiError (400)."""
    given = asked.get("limit", str(usual))
    if not given.isascii() or not given.isdigit() or not 1 <= int(given[:9]) <= most:
        message = f"Invalid 'limit': expected an integer from 1 to {most}, got '{given[:64]}'."
        raise ApiError(400, message, param="limit", code="invalid_value")
    first = 0
    if "after" in asked:
        # Not there: deleted, or of another purpose. Then the list has no end to go on from.
        first = next((at + 1 for at, item in enumerate(items) if item["id"] == asked["after"]), len(items))
    shown = items[first : first + int(given)]
    return {
        "object": "list",
        "data": shown,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": first + len(shown) < len(items),
    }


def _read(chunks: Sequence[bytes], content_type: str | None) -> tuple[bytes, Mapping[str, Any]]:
    body = b"".join(chunks)
    return body, read_multipart(body, content_type)
