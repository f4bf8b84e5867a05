"""Jobs out of a file of JSON lines, as OpenAI's batches take them or as plain bodies; and answers into one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from ..errors import ConfigurationError
from ._bodies import new_job
from ._jobs import Answer, NewJob


class LineError(Exception):
    """A line that is no job: which one, and why. Quotes nothing of it but its key."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(f"line {number}: {why}")


def jobs_in(lines: Iterable[bytes], *, prefix: str, endpoint: str) -> Iterator[NewJob]:
    """Yield the jobs of a file's lines. Raises LineError.

    A line is `{"custom_id": ..., "method": "POST", "url": ..., "body": {...}}`, whose `custom_id` becomes the job's
    key; or a body alone, which goes to `endpoint` under the key `prefix` and its line's number.
    """
    for number, raw in enumerate(lines, start=1):
        if raw.strip():
            yield _job_of(raw, number, prefix=prefix, endpoint=endpoint)


def _job_of(raw: bytes, number: int, *, prefix: str, endpoint: str) -> NewJob:
    try:
        told = json.loads(raw)
    except (ValueError, RecursionError):
        raise LineError(number, "expected JSON, an object on each line") from None
    if not isinstance(told, dict):
        raise LineError(number, f"expected an object, got {type(told).__name__}")
    key: object = f"{prefix}-{number}"
    if "custom_id" in told or ("body" in told and "url" in told):
        key, endpoint = told.get("custom_id"), told.get("url", endpoint)
        method, told = told.get("method", "POST"), told.get("body")
        if method != "POST":
            raise LineError(number, 'expected "method": "POST"')
        if not isinstance(key, str) or not isinstance(endpoint, str) or not isinstance(told, dict):
            raise LineError(number, 'expected "custom_id" and "url" as texts and "body" as an object')
    try:
        return new_job(told, key=str(key), endpoint=endpoint)
    except ConfigurationError as error:
        raise LineError(number, str(error)) from None


def _on_one_line(body: bytes) -> bytes:
    """JSON without a line feed. What is none, such as a proxy's page, is a text in it."""
    if not body:
        return b"null"
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        told = body.decode(errors="replace")
    else:
        if b"\n" not in body and b"\r" not in body:
            return body
    return json.dumps(told).encode()


def line_of(answer: Answer) -> bytes:
    """Return the line of a job that is over, as OpenAI's output files have it; its `custom_id` is the job's key."""
    job = answer.job
    body = _on_one_line(answer.body)
    response = b"null"
    if job.status_code is not None:
        response = b'{"status_code":%d,"request_id":%b,"body":%b}' % (
            job.status_code,
            json.dumps(answer.request_id).encode(),
            body,
        )
    error = None
    if job.state == "cancelled":
        error = {"code": "cancelled", "message": "The job was cancelled."}
    elif job.status_code is None and job.state == "failed":
        error = {"code": job.error or "no_answer", "message": "The job failed without an answer."}
    return b'{"id":%b,"custom_id":%b,"response":%b,"error":%b}\n' % (
        json.dumps(job.custom_id).encode(),
        json.dumps(job.key, ensure_ascii=False).encode(),
        response,
        json.dumps(error).encode(),
    )
