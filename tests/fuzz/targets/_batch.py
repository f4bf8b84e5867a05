"""Lines of batches, in and out: a job or an answer, or the one error that says that it is none."""

from __future__ import annotations

import json
from typing import Any

from fastlane.batch import Finished, Job, WorkerSettings
from fastlane.batch.answers import line_of, outcome_of, read_line
from fastlane.batch.requests import jobs_in
from fastlane.errors import ConfigurationError
from tests.fuzz import mutation
from tests.fuzz.drawn import Drawn, chance, json_text, json_value
from tests.fuzz.targets._target import holds

_SETTINGS = WorkerSettings()
_BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi."}], "temperature": 0.5}
_USAGE = {"prompt_tokens": 5, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 1}}
_KNOWN: list[Any] = [
    {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": _BODY},
    {"custom_id": "b", "method": "POST", "url": "/v1/responses", "body": {"model": "m", "input": "Hi."}},
    {"custom_id": "c", "url": "/v1/embeddings", "body": {"model": "m", "input": ["a", "b"]}},
    _BODY,
    {"id": "x", "custom_id": "fastlane-7", "error": None, "response": {
        "status_code": 200, "request_id": "r", "body": {"id": "c", "choices": [], "usage": _USAGE}}},
    {"id": "x", "custom_id": "fastlane-7", "response": None, "error": {"code": "batch_expired", "message": "Late."}},
    {"id": "x", "custom_id": "fastlane-7", "response": {"status_code": 429, "body": {"error": {"message": "m"}}}},
]  # fmt: skip
_NAMES = (
    "custom_id",
    "method",
    "url",
    "body",
    "response",
    "error",
    "status_code",
    "request_id",
    "usage",
    "code",
    "model",
)


def check(data: bytes) -> None:
    """By the first byte: a line of bytes, or one drawn by them."""
    draw = Drawn(data[1:])
    if (data[0] if data else 0) % 3 == 0:
        line = data[1:]
    elif data[0] % 3 == 1:
        line = mutation.mutated(draw.choice(_KNOWN), draw, _KNOWN)
    else:
        line = json_text(draw, json_value(draw, _NAMES)).encode("utf-8", "surrogatepass")
    check_line(line)


def check_line(line: bytes) -> None:
    """Read a line as one of a batch's input and as one of its output."""
    _check_in(line)
    _check_out(line)


def _check_in(line: bytes) -> None:
    try:
        jobs = list(jobs_in([line]))
    except ConfigurationError as error:
        holds(str(error).startswith("line 1: ") and len(str(error)) < 3_000, "a refusal is none", str(error))
        return
    for job in jobs:
        parsed = json.loads(job.body)
        holds(parsed["model"] == job.model and b"\n" not in job.body, "a job's line is not its body", line, job.body)
        again = list(jobs_in([line]))
        holds(again[0].digest == job.digest, "the same line is another job", line)
        asked = json.loads(line)
        body = asked["body"]
        sent = {name for name, value in body.items() if name not in ("extra_body", "timeout")}
        if not body.get("extra_body") and job.endpoint == "/v1/chat/completions":
            holds(sent >= set(parsed) - {"stream"}, "a job holds more than was submitted", line, parsed)


def _check_out(line: bytes) -> None:
    name, read = read_line(line)
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError):
        holds(not read, "what is no JSON is an answer", line)
        return
    has_name = isinstance(parsed, dict) and isinstance(parsed.get("custom_id"), str)
    # As text: what is no number equals nothing.
    holds(
        repr((name, read)) == repr((parsed["custom_id"], parsed) if has_name else ("", {})), "a line is another", line
    )
    for attempts in (1, _SETTINGS.max_attempts):
        job = Job(
            number=7, key="k", endpoint="/v1/chat/completions", model="m", size=1, state="packed", attempts=attempts,
            not_before=0.0, submitted_at=0.0,
        )  # fmt: skip
        outcome = outcome_of(read, job, _SETTINGS)
        holds(
            outcome.number == 7 and outcome.state in ("done", "failed", "waiting"), "an outcome is none", outcome.state
        )
        if outcome.state == "waiting":
            holds(attempts < _SETTINGS.max_attempts, "a job is sent for ever", line)
            holds(0 <= (outcome.not_before_s or 0) <= 3_600, "a job waits for more than an hour", outcome.not_before_s)
        for word in (outcome.error, outcome.request_id):
            holds(word is None or _can_be_kept(word), "no database keeps it", word)
        for count in (outcome.input_tokens, outcome.output_tokens, outcome.cached_tokens):
            holds(count is None or 0 <= count < 1 << 62, "a count is none", count)
        if outcome.state == "done":
            _check_kept(parsed, outcome.body, job)


def _can_be_kept(word: str) -> bool:
    """Whether any database takes it as text."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in word and len(word) <= 512


def _check_kept(parsed: Any, body: bytes, job: Job) -> None:
    holds(200 <= parsed["response"]["status_code"] < 300, "an error counts as an answer", parsed)
    # As text: what is no number equals nothing.
    kept = repr(json.loads(body)) == repr(parsed["response"]["body"])
    holds(kept, "the answer that is kept is not the provider's", body, parsed)
    written = line_of(Finished(job=job, body=body, request_id=None, sequence=1))
    holds(json.loads(written)["custom_id"] == job.key and written.count(b"\n") == 1, "a line is none", written)


def seeds() -> list[bytes]:
    """Lines in and out, and bytes that draw changes of them."""
    drawn = chance(20, 100)
    return [
        *(b"\0" + json.dumps(one).encode() for one in _KNOWN),
        *(bytes([kind]) + one for one in drawn for kind in (1, 2)),
    ]
