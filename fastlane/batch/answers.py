"""The answer of a job: its outcome, openai's object or error for it, and its line in an output file. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import httpx2
import openai

from ..compat.clients import status_error_of
from ..compat.parsing import parsed_chat_completion, parsed_response, typed_answer
from ..errors import ConfigurationError
from ..protocol.usage import usage_of
from .errors import JobCancelledError, JobFailedError
from .jobs import Job, JobOutcome
from .requests import CHAT, RESPONSES
from .settings import WorkerSettings

# Transient codes of a line without an answer: https://developers.openai.com/api/docs/guides/batch#batch-expiration and
# those of live calls (looked up on 2026-11-22). All others are final.
_TRANSIENT = frozenset(
    {
        "batch_expired", "batch_cancelled", "rate_limit_exceeded", "server_error", "internal_error", "request_timeout",
        "timeout", "overloaded", "service_unavailable", "no_answer",
    }
)  # fmt: skip
_MAX_WORD_LETTERS = 512


@dataclass(frozen=True, slots=True)
class Finished:
    """A job that is over, with its answer."""

    job: Job
    sequence: int
    """The order in which jobs were over: `results(after=...)` goes on behind it."""
    body: bytes = field(default=b"", repr=False)
    """The response's body; empty without an answer."""
    request_id: str | None = None

    @property
    def key(self) -> str:
        """The application's name for the job."""
        return self.job.key

    def result(self, *, response_format: type | None = None) -> Any:
        """Return openai's object for the answer. Raises openai's error for an error, and the queue's own errors."""
        job = self.job
        if job.state == "cancelled":
            raise JobCancelledError(f"the job {job.key!r} was cancelled")
        if job.state == "failed" and job.status_code is not None and job.status_code >= 400:
            raise self._error()
        if job.state == "failed":
            raise JobFailedError(
                f"the job {job.key!r} failed after {job.attempts} attempts without an answer"
                f"{f': {job.error}' if job.error else ''}; queue.retry_failed() lets it be sent again",
                job.error,
            )
        built = typed_answer(answer_type(job.endpoint), self.body, self.request_id)
        if response_format is None:
            return built
        parse = {CHAT: parsed_chat_completion, RESPONSES: parsed_response}.get(job.endpoint)
        if parse is None:
            raise ConfigurationError(
                f"response_format is for chat completions and responses, and not for {job.endpoint}"
            )
        return parse(built, response_format)

    def _error(self) -> openai.APIStatusError:
        headers = {"content-type": "application/json"} | ({"x-request-id": self.request_id} if self.request_id else {})
        # Without its body: an error keeps no prompt. Without a host: a job may have been sent to several.
        request = httpx2.Request("POST", self.job.endpoint)
        status = self.job.status_code or 0
        return status_error_of(httpx2.Response(status, headers=headers, content=self.body, request=request))


def answer_type(endpoint: str) -> Any:
    """Return openai's type for the answers of an endpoint."""
    from openai.types import Completion, CreateEmbeddingResponse
    from openai.types.chat import ChatCompletion
    from openai.types.responses import Response

    others = {"/v1/completions": Completion, "/v1/embeddings": CreateEmbeddingResponse}
    return {CHAT: ChatCompletion, RESPONSES: Response, **others}[endpoint]


def line_of(finished: Finished) -> bytes:
    """Return the line of a job that is over, as OpenAI's output files have it. Its `custom_id` is the job's key."""
    job = finished.job
    response: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    if job.state == "cancelled":
        error = {"code": "cancelled", "message": "The job was cancelled."}
    elif job.state == "failed" and job.status_code is None:
        error = {"code": job.error or "no_answer", "message": "The job failed without an answer."}
    if job.status_code is not None:
        response = {
            "status_code": job.status_code,
            "request_id": finished.request_id,
            "body": _parsed(finished.body or b"null"),
        }
    return _json({"id": job.custom_id, "custom_id": job.key, "response": response, "error": error}) + b"\n"


def read_line(raw: bytes) -> tuple[str, dict[str, Any]]:
    """Read a line of a batch's files: its `custom_id` and all of it; both empty if it is cut off or names no job."""
    line = _parsed(raw)
    name = line.get("custom_id") if isinstance(line, dict) else None
    return (name, line) if isinstance(name, str) else ("", {})


def outcome_of(line: Mapping[str, Any], job: Job, settings: WorkerSettings) -> JobOutcome:
    """Return the outcome of a job by its line."""
    response, error = line.get("response"), line.get("error")
    status = response.get("status_code") if isinstance(response, dict) else None
    if isinstance(response, dict) and isinstance(status, int) and 100 <= status <= 999:
        body = response.get("body")
        content = b"" if body is None else _json(body)
        return answered(job, status, content, response.get("request_id"), settings)
    code = (word(error.get("code")) if isinstance(error, dict) else None) or "no_answer"
    if code in _TRANSIENT:
        return again(job, code, settings)
    return JobOutcome(number=job.number, state="failed", body=_json({"error": error}), error=code)


def answered(
    job: Job, status: int, body: bytes, request_id: object, settings: WorkerSettings, *, rest_s: float | None = None
) -> JobOutcome:
    """Return the outcome of a job by its answer. `rest_s`: the pause that the provider asks for.

    408, 409, 429 and 5xx are transient, as for openai's own retries, and so is a 2xx that is no JSON object, such as a
    proxy's page.
    """
    tokens: dict[str, Any] = {}
    is_good = 200 <= status < 300
    if is_good:
        answer = _parsed(body)
        if not isinstance(answer, dict):
            return again(job, "not_json", settings)
        usage = usage_of(answer.get("usage"))
        tokens = {name: getattr(usage, name) for name in ("input_tokens", "output_tokens", "cached_tokens")}
    elif (status in (408, 409, 429) or status >= 500) and job.attempts < settings.max_attempts:
        wait_s = max(settings.retry_after_s(job.attempts), rest_s or 0.0)
        return replace(again(job, f"status_{status}", settings), status_code=status, not_before_s=wait_s)
    state: Literal["done", "failed"] = "done" if is_good else "failed"
    return JobOutcome(
        number=job.number, state=state, status_code=status, body=body, request_id=word(request_id), **tokens
    )


def again(job: Job, code: str, settings: WorkerSettings, *, final: bool = False) -> JobOutcome:
    """Have a job sent again, or fail where that is final or it has been sent often enough."""
    if final or job.attempts >= settings.max_attempts:
        return JobOutcome(number=job.number, state="failed", error=code)
    return JobOutcome(number=job.number, state="waiting", error=code, not_before_s=settings.retry_after_s(job.attempts))


def _json(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # a surrogate, which JSON can express and UTF-8 cannot
        return json.dumps(value, separators=(",", ":")).encode()


def _parsed(text: bytes) -> Any:
    """Return the JSON value of a body. Other content, such as a proxy's page, becomes a text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text.decode(errors="replace")


def word(value: object) -> str | None:
    """Return a short text of a provider's, such as a code or an id, as any database stores it; None for no text."""
    if not isinstance(value, str):
        return None
    return value[:_MAX_WORD_LETTERS].replace("\0", "").encode(errors="replace").decode()
