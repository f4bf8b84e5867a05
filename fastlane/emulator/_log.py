"""What the provider really did for each request: an open record while it answers, a frozen one to read."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
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
    tag: str | None
    header_names: tuple[str, ...]
    content_type: str | None
    content_encoding: str | None
    model: str | None
    stream: bool
    service_tier: str | None
    fault: str | None
    status: int | None
    received_ns: int
    body_complete_ns: int | None
    admitted_ns: int | None
    headers_sent_ns: int | None
    first_token_ns: int | None
    token_ns: tuple[int, ...]
    finished_ns: int | None
    reset_ns: int | None
    reset_code: int | None
    bytes_in: int
    bytes_in_decoded: int
    bytes_out: int
    prompt_tokens: int
    cached_tokens: int
    cache_machine: int | None
    output_tokens: int
    reasoning_tokens: int
    manner: str | None = None
    """How the answer misbehaved, e.g. `whitespace`; None where it was exact."""
    late: bool = False
    """Whether its prefill took `ProviderModel.late_factor` times as long."""
    asked_tier: str | None = None
    """The service tier as the request asked for it; `service_tier` is the one that served it, None where none did."""
    refused: str | None = None
    """Why it was refused for load: `requests/minute`, `tokens/minute` (or `/hour`, `/day`), `too_large` (for any
    minute), `quota`, `tier` (without capacity) or `overload` (the queue is full); None where it was not."""
    limited_tokens: int | None = None
    """Tokens that it was counted as when it came; None where it was not rate limited, or refused."""
    remaining_requests: float | None = None
    """Requests that were left of the minute's limit once it was counted."""
    remaining_tokens: float | None = None
    queue_wait_ns: int | None = None
    """How long it waited for its place; None where it never got one."""
    connection_closed_by: Literal["client", "server"] | None = None
    """Who closed the connection after this request, its last one; None where another followed, or it is open."""

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> RequestLog:
        """Rebuild a record that `to_json` made."""
        return cls(**{**record, "header_names": tuple(record["header_names"]), "token_ns": tuple(record["token_ns"])})

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain JSON values."""
        return dataclasses.asdict(self)


@dataclass(slots=True, kw_only=True)
class OpenRecord:
    """The record of a request that is still being answered; `closed()` gives the frozen copy."""

    sequence_number: int
    request_id: str
    method: str
    path: str
    http_version: str
    connection_id: str
    stream_id: int
    connection_request_number: int
    header_names: tuple[str, ...]
    received_ns: int
    tag: str | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    model: str | None = None
    stream: bool = False
    service_tier: str | None = None
    fault: str | None = None
    status: int | None = None
    body_complete_ns: int | None = None
    admitted_ns: int | None = None
    headers_sent_ns: int | None = None
    token_ns: list[int] = field(default_factory=list)
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
    manner: str | None = None
    late: bool = False
    asked_tier: str | None = None
    refused: str | None = None
    limited_tokens: int | None = None
    remaining_requests: float | None = None
    remaining_tokens: float | None = None
    queue_wait_ns: int | None = None
    connection_closed_by: Literal["client", "server"] | None = None

    def stamp_headers(self, now: int) -> None:
        """Note that the answer's headers were handed to the socket."""
        self.headers_sent_ns = now

    def stamp_finished(self, now: int) -> None:
        """Note that the answer's last byte was handed to the socket."""
        self.finished_ns = now

    def closed(self) -> RequestLog:
        """Return a frozen copy of what is known now."""
        values = {name: getattr(self, name) for name in _OPEN_FIELDS}
        values["token_ns"] = tuple(self.token_ns)
        return RequestLog(first_token_ns=self.token_ns[0] if self.token_ns else None, **values)


_OPEN_FIELDS = tuple(each.name for each in dataclasses.fields(OpenRecord))


class RequestRecords:
    """All records in the order in which their headers came in."""

    def __init__(self) -> None:
        self._records: list[OpenRecord] = []
        self._next_number = 0

    def next_number(self) -> int:
        """Return the next request's sequence number, from 0; `clear` does not start it over."""
        number = self._next_number
        self._next_number += 1
        return number

    def add(self, record: OpenRecord) -> None:
        """Keep the record of a request that has begun."""
        self._records.append(record)

    def read(self) -> tuple[RequestLog, ...]:
        """Return a frozen copy of every record, unfinished ones included."""
        return tuple(record.closed() for record in self._records)

    def clear(self) -> None:
        """Forget every record."""
        self._records.clear()
