"""What the lines of a batch's output and error files say of its jobs: no I/O.

A line has the answer that the live call would have had, with its status; or an error in its place, where the provider
did not come to send it. What may pass is tried again, what may not has failed for good.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ._jobs import Job, Outcome, number_of
from ._settings import WorkerSettings

# Codes of a line without an answer: https://developers.openai.com/api/docs/guides/batch#batch-expiration and, for the
# others, the codes of live calls (looked up on 2026-11-22). What is none of these is for good.
_PASSING = frozenset(
    {
        "batch_expired",
        "batch_cancelled",
        "rate_limit_exceeded",
        "server_error",
        "internal_error",
        "request_timeout",
        "timeout",
        "overloaded",
        "service_unavailable",
    }
)

# Longer, or larger, than any that was meant.
_MOST_LETTERS = 512
_NO_COUNT = 1 << 62


@dataclass(frozen=True, slots=True)
class Line:
    """One line, as far as it could be read."""

    number: int | None
    """The job's; None where the line is none of this queue's."""
    status_code: int | None
    body: bytes
    request_id: str | None
    code: str | None
    """Of an error without an answer."""


def read_line(raw: bytes) -> Line:
    """Read one line. Raises ValueError where it is no JSON: a file that was cut off."""
    try:
        told = json.loads(raw)
    except RecursionError:
        raise ValueError("expected an answer, got one that is nested too deeply") from None
    if not isinstance(told, dict):
        raise ValueError("expected an object on each line")  # noqa: TRY004 - what is wrong is the file
    name = told.get("custom_id")
    number = number_of(name) if isinstance(name, str) else None
    response, error = told.get("response"), told.get("error")
    status = response.get("status_code") if isinstance(response, dict) else None
    if isinstance(response, dict) and isinstance(status, int) and 100 <= status <= 999:
        return Line(number, status, _json(response.get("body")), word(response.get("request_id")), None)
    code = word(error.get("code")) if isinstance(error, dict) else None
    body = _json({"error": error}) if isinstance(error, dict) else b""
    return Line(number, None, body, None, code or "no_answer")


def outcome_of(line: Line, job: Job, settings: WorkerSettings) -> Outcome:
    """What a line makes of its job."""
    if line.status_code is not None and 200 <= line.status_code < 300:
        return answered(job, line.status_code, line.body, line.request_id, settings)
    if line.status_code is None:
        if line.code in _PASSING or line.code == "no_answer":
            return again(job, line.code or "no_answer", settings)
        return Outcome(number=job.number, state="failed", body=line.body, error=line.code)
    return answered_badly(job, line.status_code, line.body, line.request_id, settings)


def answered(job: Job, status: int, body: bytes, request_id: str | None, settings: WorkerSettings) -> Outcome:
    """Keep a good answer; have the job sent again where it is none: a page of a proxy's, for instance."""
    told = _object(body)
    if told is None:
        return again(job, "not_json", settings)
    tokens = tokens_of(told)
    return Outcome(
        number=job.number,
        state="done",
        status_code=status,
        body=body,
        request_id=word(request_id),
        input_tokens=tokens.input,
        output_tokens=tokens.output,
        cached_tokens=tokens.cached,
    )


def answered_badly(
    job: Job, status: int, body: bytes, request_id: str | None, settings: WorkerSettings, *, rest_s: float | None = None
) -> Outcome:
    """What an answer that is none makes of its job: 408, 409, 429 and 5xx may pass, as for openai's own retries."""
    if (status in (408, 409, 429) or status >= 500) and job.attempts < settings.max_attempts:
        wait_s = max(settings.retry_after_s(job.attempts), rest_s or 0.0)
        return Outcome(
            number=job.number, state="waiting", status_code=status, error=f"status_{status}", not_before_s=wait_s
        )
    return Outcome(number=job.number, state="failed", status_code=status, body=body, request_id=word(request_id))


def again(job: Job, code: str, settings: WorkerSettings) -> Outcome:
    """Have a job sent again, or fail where it has been sent often enough."""
    if job.attempts >= settings.max_attempts:
        return Outcome(number=job.number, state="failed", error=code)
    return Outcome(number=job.number, state="waiting", error=code, not_before_s=settings.retry_after_s(job.attempts))


class Tokens(NamedTuple):
    """What an answer says of its tokens; None where it says nothing."""

    input: int | None = None
    output: int | None = None
    cached: int | None = None


def tokens_of(told: Mapping[str, Any]) -> Tokens:
    """Return what an answer says of its tokens."""
    usage = told.get("usage")
    if not isinstance(usage, dict):
        return Tokens()
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    return Tokens(
        _count(usage, "prompt_tokens", "input_tokens"),
        _count(usage, "completion_tokens", "output_tokens"),
        _count(details, "cached_tokens") if isinstance(details, dict) else None,
    )


def _count(usage: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = usage.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _NO_COUNT:
            return value
    return None


def _json(value: Any) -> bytes:
    if value is None:
        return b""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half of a character, which JSON can say and UTF-8 cannot
        return json.dumps(value, separators=(",", ":")).encode()


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


def word(value: object) -> str | None:
    """A short text of a provider's, such as a code or an id, as any database keeps it; None for what is no text."""
    if not isinstance(value, str):
        return None
    return value[:_MOST_LETTERS].replace("\0", "").encode(errors="replace").decode()
