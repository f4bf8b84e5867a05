"""The requests to files and batches: which means what, and how a file's content leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from fastlane.emulator import _bodies
from fastlane.emulator._batches import Batches
from fastlane.emulator._errors import ApiError
from fastlane.emulator._exchange import Request, ServerExchange
from fastlane.emulator._files import StoredFile
from fastlane.emulator.settings import Dialect

_PIECE = 262_144


async def upload(
    batches: Batches, request: Request, content_type: str | None, decompressed: Callable[[Request], bytes]
) -> Mapping[str, Any]:
    """Take an upload. Raises ApiError."""
    size = sum(map(len, request.upload))
    if not size and (request.headers.get("content-length") or "0") != "0":
        # The connection keeps nothing of a body that is too long.
        raise ApiError(413, f"The body exceeds {_bodies.MAXIMUM_UPLOAD_BYTES} bytes.", code="body_too_large")
    chunks = request.upload
    if request.headers.get("content-encoding"):
        chunks = [decompressed(request)]
    return await batches.files.upload(chunks, content_type)


def answer(batches: Batches, request: Request, resource: str, body: Callable[[], Mapping[str, Any]]) -> object | None:
    """Return what a request to files or batches is answered; None if it is to neither. Raises ApiError."""
    files = batches.files
    match (request.method, *resource.split("/")):
        case "GET", "files":
            return files.page(request.query)
        case "GET", "files", file_id:
            return files.one(file_id).record
        case "GET", "files", file_id, "content":
            return files.one(file_id)
        case "DELETE", "files", file_id:
            return files.delete(file_id)
        case "POST", "batches":
            return batches.create(body())
        case "GET", "batches":
            return batches.page(request.query)
        case "GET", "batches", batch_id:
            return batches.one(batch_id)
        case "POST", "batches", batch_id, "cancel":
            return batches.cancel(batch_id)
    return None


async def send_content(exchange: ServerExchange, file: StoredFile, dialect: Dialect) -> None:
    """Send a file's content, a piece at a time so that others have their turn."""
    headers = [
        ("content-type", "application/octet-stream"),
        ("content-length", str(file.end - file.start)),
        ("x-request-id", exchange.record.request_id),
    ]
    exchange.send_headers(200, dialect.spoken(headers))
    for piece in file.slices(_PIECE):
        if not exchange.writable:
            await exchange.drained()
        exchange.send(bytes(piece))
        await asyncio.sleep(0)
    exchange.end()
