"""The answer of a job as the live call would have returned it, or the error that the live call would have raised."""

from __future__ import annotations

from functools import cache
from typing import Any

import openai

from ..compat.clients import status_error_of
from ..compat.parsing import parsed_chat_completion, parsed_response, typed_answer
from ..errors import ConfigurationError
from ._errors import JobCancelledError, JobFailedError
from ._jobs import Answer


def result_of(answer: Answer, *, base_url: str, response_format: type | None = None) -> Any:
    """What openai makes of such an answer. Raises what openai raises for such an error, and this package's errors."""
    job = answer.job
    if job.state == "cancelled":
        raise JobCancelledError(f"the job {job.key!r} was cancelled")
    if job.state == "done":
        return _built(answer, response_format)
    if job.status_code is not None and job.status_code >= 400:
        raise _error_of(answer, base_url)
    raise JobFailedError(
        f"the job {job.key!r} failed after {job.attempts} attempts without an answer"
        f"{f': {job.error}' if job.error else ''}; queue.retry_failed() lets it be sent again",
        code=job.error,
    )


@cache
def _types() -> dict[str, Any]:
    from openai.types import Completion, CreateEmbeddingResponse
    from openai.types.chat import ChatCompletion
    from openai.types.responses import Response

    return {
        "/v1/chat/completions": ChatCompletion,
        "/v1/responses": Response,
        "/v1/completions": Completion,
        "/v1/embeddings": CreateEmbeddingResponse,
    }


def _built(answer: Answer, response_format: type | None) -> Any:
    endpoint = answer.job.endpoint
    built = typed_answer(_types()[endpoint], answer.body, answer.request_id)
    if response_format is None:
        return built
    if endpoint == "/v1/chat/completions":
        return parsed_chat_completion(built, response_format)
    if endpoint == "/v1/responses":
        return parsed_response(built, response_format)
    raise ConfigurationError(f"response_format is for chat completions and responses, and not for {endpoint}")


def _error_of(answer: Answer, base_url: str) -> openai.APIStatusError:
    import httpx2

    job = answer.job
    headers = {"content-type": "application/json", **({"x-request-id": answer.request_id} if answer.request_id else {})}
    path = job.endpoint.removeprefix("/v1") if base_url.rstrip("/").endswith("/v1") else job.endpoint
    # Without its body: an error keeps no prompt.
    request = httpx2.Request("POST", f"{base_url.rstrip('/')}{path}")
    response = httpx2.Response(job.status_code or 0, headers=headers, content=answer.body, request=request)
    return status_error_of(response)
