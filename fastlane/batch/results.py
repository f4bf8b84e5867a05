"""The answer of a job as the live call would have returned or raised it, and as a line of OpenAI's output files."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import openai

from ..compat.clients import status_error_of
from ..compat.parsing import parsed_chat_completion, parsed_response, typed_answer
from ..errors import ConfigurationError
from .errors import JobCancelledError, JobFailedError
from .jobs import Job, JobAnswer
from .requests import CHAT, RESPONSES


def answer_type(endpoint: str) -> Any:
    """Return openai's type for the answers of an endpoint."""
    from openai.types import Completion, CreateEmbeddingResponse
    from openai.types.chat import ChatCompletion
    from openai.types.responses import Response

    others = {"/v1/completions": Completion, "/v1/embeddings": CreateEmbeddingResponse}
    return {CHAT: ChatCompletion, RESPONSES: Response, **others}[endpoint]


@dataclass(frozen=True, slots=True)
class Finished:
    """A job that is over."""

    answer: JobAnswer
    base_url: str = field(repr=False)

    @property
    def job(self) -> Job:
        """The job."""
        return self.answer.job

    @property
    def key(self) -> str:
        """The application's name for it."""
        return self.answer.job.key

    @property
    def sequence(self) -> int:
        """The order in which jobs were over: `results(after=...)` goes on behind it."""
        return self.answer.sequence

    def result(self, *, response_format: type | None = None) -> Any:
        """Return openai's object for the answer. Raises openai's error for an error, and the queue's own errors."""
        answer, job = self.answer, self.answer.job
        if job.state == "cancelled":
            raise JobCancelledError(f"the job {job.key!r} was cancelled")
        if job.state == "failed" and job.status_code is not None and job.status_code >= 400:
            raise _error_of(answer, self.base_url)
        if job.state == "failed":
            raise JobFailedError(
                f"the job {job.key!r} failed after {job.attempts} attempts without an answer"
                f"{f': {job.error}' if job.error else ''}; queue.retry_failed() lets it be sent again",
                job.error,
            )
        built = typed_answer(answer_type(job.endpoint), answer.body, answer.request_id)
        if response_format is None:
            return built
        parse = {CHAT: parsed_chat_completion, RESPONSES: parsed_response}.get(job.endpoint)
        if parse is None:
            raise ConfigurationError(
                f"response_format is for chat completions and responses, and not for {job.endpoint}"
            )
        return parse(built, response_format)


def _error_of(answer: JobAnswer, base_url: str) -> openai.APIStatusError:
    import httpx2

    job, base_url = answer.job, base_url.rstrip("/")
    headers = {"content-type": "application/json", **({"x-request-id": answer.request_id} if answer.request_id else {})}
    path = job.endpoint.removeprefix("/v1") if base_url.endswith("/v1") else job.endpoint
    # Without its body: an error keeps no prompt.
    request = httpx2.Request("POST", f"{base_url}{path}")
    return status_error_of(httpx2.Response(job.status_code or 0, headers=headers, content=answer.body, request=request))


def line_of(answer: JobAnswer) -> bytes:
    """Return the line of a job that is over, as OpenAI's output files have it. Its `custom_id` is the job's key."""
    job, response, error = answer.job, b"null", None
    if job.status_code is not None:
        request_id = json.dumps(answer.request_id).encode()
        response = b'{"status_code":%d,"request_id":%b,"body":%b}' % (job.status_code, request_id, _one_line(answer))
    elif job.state == "failed":
        error = {"code": job.error or "no_answer", "message": "The job failed without an answer."}
    if job.state == "cancelled":
        error = {"code": "cancelled", "message": "The job was cancelled."}
    key = json.dumps(job.key, ensure_ascii=False).encode()
    ends = json.dumps(job.custom_id).encode(), key, response, json.dumps(error).encode()
    return b'{"id":%b,"custom_id":%b,"response":%b,"error":%b}\n' % ends


def _one_line(answer: JobAnswer) -> bytes:
    """Return the body as JSON without a line feed. Other content, such as a proxy's page, becomes a text."""
    body = answer.body
    if not body:
        return b"null"
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return json.dumps(body.decode(errors="replace")).encode()
    return body if b"\n" not in body and b"\r" not in body else json.dumps(value).encode()
