"""Reads an upload, `multipart/form-data`, without a copy of what may be hundreds of megabytes."""

from __future__ import annotations

from collections.abc import Mapping
from email.message import EmailMessage
from email.parser import BytesHeaderParser
from email.policy import HTTP
from typing import NamedTuple

# What `bytes.find` looks through before other threads have their turn: it keeps the interpreter to itself.
_WINDOW = 4 * 1_048_576


class MultipartField(NamedTuple):
    """One field: where its content begins and ends in the body, and the name of its file, if it is one."""

    start: int
    end: int
    filename: str | None


def read_multipart(body: bytes, content_type: str | None) -> Mapping[str, MultipartField]:
    """Return the fields of a body by their names; none of a body that is no multipart."""
    boundary = _header(b"content-type: " + (content_type or "").encode("latin-1", "replace")).get_boundary()
    if not boundary:
        return {}
    delimiter = b"--" + boundary.encode("latin-1", "replace")
    fields: dict[str, MultipartField] = {}
    at = _find(body, delimiter, 0)
    while at >= 0:
        head = at + len(delimiter)
        if body[head : head + 2] == b"--":
            break
        blank = body.find(b"\r\n\r\n", head, head + _WINDOW)
        if blank < 0:
            break
        described = _header(body[head + 2 : blank])
        at = _find(body, b"\r\n" + delimiter, blank + 2)
        if at < 0:
            break
        name = described.get_param("name", header="content-disposition")
        if isinstance(name, str):
            fields[name] = MultipartField(min(blank + 4, at), at, described.get_filename())
        at += 2
    return fields


def _header(head: bytes) -> EmailMessage:
    return BytesHeaderParser(policy=HTTP).parsebytes(head + b"\r\n\r\n")


def _find(body: bytes, sought: bytes, start: int) -> int:
    for at in range(start, len(body), _WINDOW):
        found = body.find(sought, at, at + _WINDOW + len(sought) - 1)
        if found >= 0:
            return found
    return -1
