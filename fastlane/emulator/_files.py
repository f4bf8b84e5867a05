"""The files that a provider keeps: uploads and what batches wrote, with lists in pages as OpenAI has them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.parser import BytesHeaderParser
from email.policy import HTTP
from hashlib import blake2b
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from fastlane._clock import now_ns, wall_ns
from fastlane.emulator._errors import ApiError
from fastlane.emulator._log import FileLog
from fastlane.emulator._provider import Provider

NS = 1_000_000_000
# As OpenAI lists them where it refuses another.
_PURPOSES = ("fine-tune", "assistants", "batch", "user_data", "vision", "evals")
_MOST_LISTED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """One file."""

    record: Mapping[str, Any]
    content: bytes = field(repr=False)
    created_ns: int

    @property
    def id(self) -> str:
        """Its id."""
        return str(self.record["id"])


class FileStore:
    """All files of a provider, in memory."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._files: dict[str, StoredFile] = {}
        self._made = 0
        self.logs: dict[str, FileLog] = {}

    def upload(self, body: bytes, content_type: str | None) -> Mapping[str, Any]:
        """Take an upload. Raises ApiError (400)."""
        fields = read_multipart(body, content_type)
        for name in ("file", "purpose"):
            if name not in fields:
                code = "missing_required_parameter"
                raise ApiError(400, f"Missing required parameter: '{name}'.", param=name, code=code)
        purpose = fields["purpose"].content.decode("utf-8", "replace").strip()
        if purpose not in _PURPOSES:
            message = f"'{purpose[:64]}' is not one of {list(_PURPOSES)} - 'purpose'"
            raise ApiError(400, message, param="purpose", code="invalid_value")
        file = fields["file"]
        return self.add(file.content, filename=file.filename or "upload", purpose=purpose).record

    def add(self, content: bytes, *, filename: str, purpose: str) -> StoredFile:
        """Keep a file."""
        self._made += 1
        now = now_ns()
        record = {
            "id": f"file-{blake2b(f'{self._provider.seed}:file:{self._made}'.encode(), digest_size=12).hexdigest()}",
            "object": "file",
            "bytes": len(content),
            "created_at": wall_ns() // NS,
            "expires_at": None,
            "filename": filename,
            "purpose": purpose,
            "status": "processed",
            "status_details": None,
        }
        file = StoredFile(record=record, content=content, created_ns=now)
        self._files[file.id] = file
        self.logs[file.id] = FileLog(id=file.id, filename=filename, purpose=purpose, bytes=len(content), created_ns=now)
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
        self.one(file_id)
        del self._files[file_id]
        self.logs[file_id] = dataclasses.replace(self.logs[file_id], deleted_ns=now_ns())
        return {"id": file_id, "object": "file", "deleted": True}

    def page(self, query: str) -> dict[str, Any]:
        """Return a page of the list. Raises ApiError (400, 404)."""
        asked = dict(parse_qsl(query))
        if "after" in asked:
            self.one(asked["after"])
        shown_before = now_ns() - round(self._provider.model.batches.listing_delay_s * NS)
        files = [
            file.record
            for file in self._files.values()
            if file.created_ns <= shown_before and asked.get("purpose") in (None, file.record["purpose"])
        ]
        if asked.get("order") != "asc":
            files.reverse()
        return page(files, asked, usual=_MOST_LISTED, most=_MOST_LISTED)

    def clear(self) -> None:
        """Forget all files, and that there were any."""
        self._files.clear()
        self.logs.clear()


def page(items: Sequence[Mapping[str, Any]], asked: Mapping[str, str], *, usual: int, most: int) -> dict[str, Any]:
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
