"""One batch as its client sees it, and the lines of its files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from fastlane.emulator._batch_input import RESOURCES, BatchInputLine
from fastlane.emulator._batch_log import LineLog, prompt_digest
from fastlane.emulator._chat import compact
from fastlane.emulator._endpoints import answer_whole
from fastlane.emulator._errors import ApiError
from fastlane.emulator._provider import Provider
from fastlane.emulator.settings import BatchSettings

FINAL = frozenset({"completed", "failed", "expired", "cancelled"})
# Keeps the ids of answers in batches apart from those of live calls, without a place in their sequence.
_FIRST_NUMBER = 500_000_000_000
_UNANSWERED: Mapping[str, str] = {
    "batch_expired": "This request could not be executed before the completion window expired.",
    "batch_cancelled": "The batch was cancelled before this request was executed.",
    "request_timeout": "The underlying call to the model timed out.",
}
_FAILED: Mapping[int, tuple[str, str, str]] = {
    500: ("The server had an error while processing your request.", "server_error", "server_error"),
    429: ("Rate limit reached for requests.", "requests", "rate_limit_exceeded"),
}
_STAMPS = (
    "in_progress_at", "expires_at", "finalizing_at", "completed_at", "failed_at", "expired_at", "cancelling_at",
    "cancelled_at",
)  # fmt: skip


@dataclass(slots=True, kw_only=True)
class StoredBatch:
    """A batch and how far it is."""

    id: str
    endpoint: str
    input_file_id: str
    input_filename: str | None
    metadata: Mapping[str, str] | None
    output_lifetime_s: int | None
    created_at: int
    created_ns: int
    visible_ns: int
    expires_ns: int
    status: str = "validating"
    stamps: dict[str, int] = field(default_factory=dict)
    errors: list[dict[str, Any]] = field(default_factory=list)
    model: str | None = None
    tokens: int = 0
    total: int = 0
    begun_ns: int = 0
    done: int = 0
    """Lines that were carried out, whatever came of them."""
    completed: int = 0
    failed: int = 0
    usage: list[int] = field(default_factory=lambda: [0, 0, 0])
    """Tokens read, tokens written, and how many of these were reasoning."""
    output_file_id: str | None = None
    error_file_id: str | None = None
    ended_ns: int | None = None
    output: list[bytes] = field(default_factory=list, repr=False)
    error_output: list[bytes] = field(default_factory=list, repr=False)

    @property
    def ending(self) -> bool:
        """Whether it was cancelled, or is over."""
        return self.status == "cancelling" or self.status in FINAL

    def shown(self) -> dict[str, Any]:
        """Return it as OpenAI shows it."""
        read, written, reasoning = self.usage
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": self.endpoint,
            "model": self.model,
            "errors": {"object": "list", "data": self.errors} if self.errors else None,
            "input_file_id": self.input_file_id,
            "completion_window": "24h",
            "status": self.status,
            "output_file_id": self.output_file_id,
            "error_file_id": self.error_file_id,
            "created_at": self.created_at,
            **{name: self.stamps.get(name) for name in _STAMPS},
            "request_counts": {"total": self.total, "completed": self.completed, "failed": self.failed},
            "metadata": self.metadata,
            "usage": {
                "input_tokens": read,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": written,
                "output_tokens_details": {"reasoning_tokens": reasoning},
                "total_tokens": read + written,
            },
        }

    def carry_out(
        self,
        provider: Provider,
        settings: BatchSettings,
        line: BatchInputLine,
        body: dict[str, Any],
        *,
        number: int,
        now: int,
    ) -> LineLog:
        """Answer one line, and write the answer down."""
        chance = Random(f"{provider.seed}:line:{self.id}:{line.custom_id}").random()
        status, code, missing = 200, None, False
        for share, struck_status, struck_code in (
            (settings.server_error_share, 500, None),
            (settings.rate_limited_share, 429, None),
            (settings.timeout_share, 0, "request_timeout"),
            (settings.missing_share, 200, "missing"),
        ):
            if chance < share:
                status, code, missing = struck_status, struck_code, struck_code == "missing"
                break
            chance -= share
        request_id = f"{number:016x}"
        if code == "request_timeout":
            self.failed += 1
            self.error_output.append(unanswered(line, request_id, code))
        elif status != 200:
            message, kind, error_code = _FAILED[status]
            self._fail(line, request_id, ApiError(status, message, type=kind, code=error_code))
        else:
            status = self._answer(provider, line, body, request_id, number, missing=missing)
        return LineLog(
            batch_id=self.id,
            custom_id=line.custom_id,
            prompt=prompt_digest(body),
            status=status,
            written=not missing,
            done_ns=now,
        )

    def _answer(
        self,
        provider: Provider,
        line: BatchInputLine,
        body: dict[str, Any],
        request_id: str,
        number: int,
        *,
        missing: bool,
    ) -> int:
        try:
            whole = answer_whole(RESOURCES[self.endpoint], body, provider, number=_FIRST_NUMBER + number)
        except ApiError as error:
            self._fail(line, request_id, error)
            return error.status
        self.completed += 1
        for index, tokens in enumerate((whole.usage.prompt, whole.usage.output, whole.usage.reasoning)):
            self.usage[index] += tokens
        if not missing:
            self.output.append(_answered(line, request_id, 200, whole.body))
        return 200

    def _fail(self, line: BatchInputLine, request_id: str, error: ApiError) -> None:
        self.failed += 1
        self.error_output.append(_answered(line, request_id, error.status, error.body()))


def _answered(line: BatchInputLine, request_id: str, status: int, body: bytes) -> bytes:
    return (
        f'{{"id": "batch_req_{request_id}", "custom_id": {json.dumps(line.custom_id)}, "response": {{"status_code": '
        f'{status}, "request_id": "{request_id}", "body": '
    ).encode() + body + b'}, "error": null}\n'  # fmt: skip


def unanswered(line: BatchInputLine, request_id: str, code: str) -> bytes:
    """Return what stands in the error file for a line that has no response."""
    error = {"code": code, "message": _UNANSWERED[code]}
    shown = {"id": f"batch_req_{request_id}", "custom_id": line.custom_id, "response": None, "error": error}
    return compact(shown).encode() + b"\n"
