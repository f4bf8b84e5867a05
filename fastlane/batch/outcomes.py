"""The outcome of a job by its answer, or by a line of a batch's output and error files. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .jobs import Job, JobOutcome, number_of
from .settings import WorkerSettings

# Transient codes of a line without an answer: https://developers.openai.com/api/docs/guides/batch#batch-expiration and
# those of live calls (looked up on 2026-11-22). All others are final.
_TRANSIENT = frozenset(
    {
        "batch_expired", "batch_cancelled", "rate_limit_exceeded", "server_error", "internal_error", "request_timeout",
        "timeout", "overloaded", "service_unavailable", "no_answer",
    }
)  # fmt: skip
_LONGEST_WORD = 512


@dataclass(frozen=True, slots=True)
class OutputLine:
    """One line of a batch's files."""

    number: int | None
    """The job's; None where the line belongs to no job of this queue."""
    status_code: int | None
    body: bytes
    request_id: str | None
    code: str | None
    """Of an error without an answer."""


def read_line(raw: bytes) -> OutputLine:
    """Read one line. Raises ValueError where it is no JSON object, as in a file that was cut off."""
    line = _object(raw)
    if line is None:
        raise ValueError("expected an object on each line")
    name, response, error = line.get("custom_id"), line.get("response"), line.get("error")
    number = number_of(name) if isinstance(name, str) else None
    status = response.get("status_code") if isinstance(response, dict) else None
    if isinstance(response, dict) and isinstance(status, int) and 100 <= status <= 999:
        return OutputLine(number, status, _json(response.get("body")), word(response.get("request_id")), None)
    if not isinstance(error, dict):
        return OutputLine(number, None, b"", None, "no_answer")
    return OutputLine(number, None, _json({"error": error}), None, word(error.get("code")) or "no_answer")


def outcome_of(line: OutputLine, job: Job, settings: WorkerSettings) -> JobOutcome:
    """Return the outcome of a job by its line."""
    if line.status_code is not None:
        return answered(job, line.status_code, line.body, line.request_id, settings)
    code = line.code or "no_answer"
    if code in _TRANSIENT:
        return again(job, code, settings)
    return JobOutcome(number=job.number, state="failed", body=line.body, error=code)


def answered(
    job: Job, status: int, body: bytes, request_id: str | None, settings: WorkerSettings, *, rest_s: float | None = None
) -> JobOutcome:
    """Return the outcome of a job by its answer. `rest_s`: the pause that the provider asks for.

    408, 409, 429 and 5xx are transient, as for openai's own retries, and so is a 2xx that is no JSON object, such as a
    proxy's page.
    """
    number, request_id = job.number, word(request_id)
    if 200 <= status < 300:
        answer = _object(body)
        if answer is None:
            return again(job, "not_json", settings)
        tokens = tokens_of(answer)
        return JobOutcome(number=number, state="done", status_code=status, body=body, request_id=request_id, **tokens)
    if (status in (408, 409, 429) or status >= 500) and job.attempts < settings.max_attempts:
        wait_s = max(settings.retry_after_s(job.attempts), rest_s or 0.0)
        error = f"status_{status}"
        return JobOutcome(number=number, state="waiting", status_code=status, error=error, not_before_s=wait_s)
    return JobOutcome(number=number, state="failed", status_code=status, body=body, request_id=request_id)


def again(job: Job, code: str, settings: WorkerSettings) -> JobOutcome:
    """Have a job sent again, or fail where it has been sent often enough."""
    if job.attempts >= settings.max_attempts:
        return JobOutcome(number=job.number, state="failed", error=code)
    return JobOutcome(number=job.number, state="waiting", error=code, not_before_s=settings.retry_after_s(job.attempts))


def tokens_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the usage of an answer, by the names of an outcome; None where it is not known."""
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
    except UnicodeEncodeError:  # a surrogate, which JSON can express and UTF-8 cannot
        return json.dumps(value, separators=(",", ":")).encode()


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def word(value: object) -> str | None:
    """Return a short text of a provider's, such as a code or an id, as any database stores it; None for no text."""
    if not isinstance(value, str):
        return None
    return value[:_LONGEST_WORD].replace("\0", "").encode(errors="replace").decode()
