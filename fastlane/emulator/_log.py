"""What the provider really did: for each request, and for each file, batch and line of a batch."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from pydantic import TypeAdapter

from fastlane.emulator import _tokens


@dataclass(slots=True, kw_only=True)
class RequestLog:
    """One request as the provider lived it. Every `_ns` is `fastlane._clock.now_ns`; None means it has not happened.

    Holds no key and no text of a prompt or an answer.
    """

    sequence_number: int
    request_id: str
    method: str
    path: str
    http_version: str
    connection_id: str
    stream_id: int
    connection_request_number: int
    header_names: Sequence[str]
    received_ns: int
    tag: str | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    model: str | None = None
    stream: bool = False
    asked_tier: str | None = None
    """The service tier as the request asked for it; `service_tier` is the one that served it, None if none did."""
    service_tier: str | None = None
    fault: str | None = None
    refused: str | None = None
    """Why it was refused for load: `requests/minute`, `tokens/minute`, `too_large` (for any minute), `tier` (without
    capacity) or `overload` (the queue is full); None if it was not."""
    manner: str | None = None
    """How the answer misbehaved, e.g. `whitespace`; None if it was exact."""
    late: bool = False
    """Whether its prefill took `ProviderModel.late_factor` times as long."""
    status: int | None = None
    body_complete_ns: int | None = None
    admitted_ns: int | None = None
    headers_sent_ns: int | None = None
    first_token_ns: int | None = None
    token_ns: Sequence[int] = ()
    finished_ns: int | None = None
    reset_ns: int | None = None
    reset_code: int | None = None
    bytes_in: int = 0
    bytes_in_decoded: int = 0
    bytes_out: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    cache_machine: int | None = None
    output_tokens: int = 0
    reasoning_tokens: int = 0
    connection_closed_by: Literal["client", "server"] | None = None
    """Who closed the connection after this request, its last one; None if another followed, or it is open."""

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> RequestLog:
        return cls(**{**record, "header_names": tuple(record["header_names"]), "token_ns": tuple(record["token_ns"])})

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def stamp_headers(self, now: int) -> None:
        self.headers_sent_ns = now

    def stamp_token(self, now: int) -> None:
        if self.first_token_ns is None:
            self.first_token_ns, self.token_ns = now, []
        cast(list[int], self.token_ns).append(now)

    def stamp_finished(self, now: int) -> None:
        self.finished_ns = now


def prompt_digest(body: Mapping[str, Any]) -> str:
    """Return by what `LineLog.prompt` tells whose prompt was answered: a digest of messages, input or prompt."""
    given = next((body[name] for name in ("messages", "input", "prompt") if name in body), None)
    return _tokens.fingerprint(json.dumps(given, ensure_ascii=False, sort_keys=True, separators=(",", ":")))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLog:
    """One file: an upload, or what a batch wrote."""

    id: str
    filename: str
    purpose: str
    bytes: int
    created_ns: int
    deleted_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLog:
    """One batch, as it is now."""

    id: str
    input_file_id: str
    metadata: Mapping[str, str] | None
    endpoint: str
    status: str
    total: int
    completed: int
    failed: int
    created_ns: int
    ended_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineLog:
    """One line that was carried out, whatever came of it; lines that expired or were cancelled have none."""

    batch_id: str
    custom_id: str
    prompt: str
    """See `prompt_digest`."""
    status: int
    """Of its response; 0 where it has none."""
    written: bool
    """Whether it stands in one of the batch's files (see `BatchSettings.missing_share`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offline:
    """Everything that the provider did with files and batches since the log was last cleared."""

    files: tuple[FileLog, ...]
    batches: tuple[BatchLog, ...]
    lines: tuple[LineLog, ...]

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Offline:
        return _offline.validate_python(record)


_offline = TypeAdapter(Offline)
