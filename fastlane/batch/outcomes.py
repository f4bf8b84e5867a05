"""What an answer, or a line of a batch's output and error files, makes of its job: no I/O.

A line has the answer that the live call would have had, with its status, or an error in its place. What may pass is
tried again, what may not has failed for good.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .jobs import Job, JobOutcome, number_of
from .settings import WorkerSettings

# Codes of a line without an answer: https://developers.openai.com/api/docs/guides/batch#batch-expiration and, for the
# others, the codes of live calls (looked up on 2026-11-22). What is none of these is for good.
_PASSING = frozenset(
    {
        "batch_expired", "batch_cancelled", "rate_limit_exceeded", "server_error", "internal_error", "request_timeout",
        "timeout", "overloaded", "service_unavailable", "no_answer",
    }
)  # fmt: skip
_MOST_LETTERS = 512


@dataclass(frozen=True, slots=True)
class OutputLine:
    """One line, as far as it could be read."""

    number: int | None
    """The job's; None where the line is none of this queue's."""
    status_code: int | None
    body: bytes
    request_id: str | None
    code: str | None
    """Of an error without an answer."""


def read_line(raw: bytes) -> OutputLine:
    """Read one line. Raises ValueError where it is no JSON object: a file that was cut off."""
    line = _object(raw)
    if line is None:
        raise ValueError("expected an object on each line")
    name = line.get("custom_id")
    number = number_of(name) if isinstance(name, str) else None
    response, error = line.get("response"), line.get("error")
    status = response.get("status_code") if isinstance(response, dict) else None
    if isinstance(response, dict) and isinstance(status, int) and 100 <= status <= 999:
        return OutputLine(number, status, _json(response.get("body")), word(response.get("request_id")), None)
    code = word(error.get("code")) if isinstance(error, dict) else None
    body = _json({"error": error}) if isinstance(error, dict) else b""
    return OutputLine(number, None, body, None, code or "no_answer")


def outcome_of(line: OutputLine, job: Job, settings: WorkerSettings) -> JobOutcome:
    """Return what a line makes of its job."""
    if line.status_code is not None:
        return answered(job, line.status_code, line.body, line.request_id, settings)
    code = line.code or "no_answer"
    if code in _PASSING:
        return again(job, code, settings)
    return JobOutcome(number=job.number, state="failed", body=line.body, error=code)


def answered(
    job: Job, status: int, body: bytes, request_id: str | None, settings: WorkerSettings, *, rest_s: float | None = None
) -> JobOutcome:
    """Return what an answer makes of its job. `rest_s`: for how long the provider asks to be left alone.

    408, 409, 429 and 5xx may pass, as for openai's own retries, and so may a 2xx that is no JSON object, such as a
    proxy's page.
    """
    if 200 <= status < 300:
        answer = _object(body)
        if answer is None:
            return again(job, "not_json", settings)
        return JobOutcome(
            number=job.number,
            state="done",
            status_code=status,
            body=body,
            request_id=word(request_id),
            **tokens_of(answer),
        )
    if (status in (408, 409, 429) or status >= 500) and job.attempts < settings.max_attempts:
        wait_s = max(settings.retry_after_s(job.attempts), rest_s or 0.0)
        return JobOutcome(
            number=job.number, state="waiting", status_code=status, error=f"status_{status}", not_before_s=wait_s
        )
    return JobOutcome(number=job.number, state="failed", status_code=status, body=body, request_id=word(request_id))


def again(job: Job, code: str, settings: WorkerSettings) -> JobOutcome:
    """Have a job sent again, or fail where it has been sent often enough."""
    if job.attempts >= settings.max_attempts:
        return JobOutcome(number=job.number, state="failed", error=code)
    return JobOutcome(number=job.number, state="waiting", error=code, not_before_s=settings.retry_after_s(job.attempts))


def tokens_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an answer says of its tokens, by the names of an outcome; None where it says nothing."""
    usage = answer.get("usage")
    if not isinstance(usage, dict):
        return {}
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    return {
        "input_tokens": _count(usage, "prompt_tokens", "input_tokens"),
        "output_tokens": _count(usage, "completion_tokens", "output_tokens"),
        "cached_tokens": _count(details, "cached_tokens") if isinstance(details, dict) else None,
    }


def _count(usage: Mapping[str, Any], *names: str) -> int | None:
    values = (usage.get(name) for name in names)
    return next((one for one in values if type(one) is int and 0 <= one < 1 << 62), None)


def _json(value: Any) -> bytes:
    if value is None:
        return b""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half of a character, which JSON can say and UTF-8 cannot
        return json.dumps(value, separators=(",", ":")).encode()


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def word(value: object) -> str | None:
    """Return a short text of a provider's, such as a code or an id, as any database keeps it; None for what is none."""
    if not isinstance(value, str):
        return None
    return value[:_MOST_LETTERS].replace("\0", "").encode(errors="replace").decode()
