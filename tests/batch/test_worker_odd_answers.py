"""What a provider answers that it should not: no job is lost for it, none is sent twice, and the worker comes through.

The provider is the emulator; some of its responses are changed in between.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from fastlane.batch import JobFailedError, Queue, WorkerSettings
from fastlane.emulator import Emulator
from tests.batch.offline_parts import QUICK, executions, states, submit

Change = Callable[[str, bytes], "bytes | int | None"]
"""The response instead of a body: another body, an error's status, or None: no change. Called with the
request's method and path."""


class Changing(httpx2.BaseTransport):
    """Hands requests on, and changes what is answered."""

    def __init__(self, change: Change) -> None:
        self._change = change
        self._inner = httpx2.HTTPTransport()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        response = self._inner.handle_request(request)
        body = response.read()
        changed = self._change(f"{request.method} {request.url.path}", body)
        if isinstance(changed, int):
            return httpx2.Response(changed, content=b'{"error":{"message":"no"}}')
        if changed is None:
            return httpx2.Response(response.status_code, content=body, headers={"content-type": "application/json"})
        return httpx2.Response(200, content=changed, headers={"content-type": "application/json"})

    def close(self) -> None:
        self._inner.close()


def worked_off(where: Path, provider: Emulator, change: Change, jobs: int = 4, **settings: Any) -> Queue:
    client = openai.OpenAI(
        base_url=provider.base_url, api_key="sk-test", http_client=httpx2.Client(transport=Changing(change))
    )
    worker = WorkerSettings(**{**QUICK, "max_attempts": 3, **settings})
    queue = Queue(where, client, worker=worker)
    submit(queue, range(jobs))
    with client:
        try:
            queue.run()
        except BaseException:
            queue.close()
            raise
    return queue


class First:
    """Changes the first answers to some requests."""

    def __init__(self, times: int, asked: str, change: Callable[[bytes], bytes | int | None]) -> None:
        self.left = times
        self._asked = asked
        self._change = change

    def __call__(self, request: str, body: bytes) -> bytes | int | None:
        if self._asked not in request or not self.left:
            return None
        changed = self._change(body)
        self.left -= changed is not None
        return changed


def without_files(body: bytes) -> bytes | None:
    batch = json.loads(body)
    return None if batch["output_file_id"] is None else json.dumps({**batch, "output_file_id": None}).encode()


LATE: dict[str, First] = {
    "lines that were not written yet": First(2, "/content", lambda body: body.replace(b'"custom_id"', b'"cust', 2)),
    "a file that is cut off": First(2, "/content", lambda body: body[:-40]),
    "a file that is not there yet": First(2, "/content", lambda _: 404),
    "a file that is not named yet": First(2, "GET /v1/batches/batch", without_files),
}


@pytest.mark.parametrize("late", LATE)
def test_answers_that_only_come_late_are_waited_for(provider: Emulator, tmp_path: Path, late: str) -> None:
    change = LATE[late]
    with worked_off(tmp_path / "q", provider, change) as queue:
        assert states(queue) == {"done": 4}
    assert change.left == 0
    assert executions(provider, range(4)) == [1] * 4


@pytest.mark.parametrize(
    "gone",
    [First(4, "/content", lambda body: body.replace(b"{", b"[[[", 1)), First(4, "/content", lambda _: 404)],
    ids=["a line that stays unreadable", "a file that stays away"],
)
def test_jobs_without_readable_answer_are_sent_again(provider: Emulator, tmp_path: Path, gone: First) -> None:
    with worked_off(tmp_path / "q", provider, gone) as queue:
        assert states(queue) == {"done": 4}
        assert sum(queue.job(str(number)).attempts for number in range(4)) > 4


TRANSIENT: list[int | str | None] = [408, 409, 429, 500, 503, "batch_expired", "request_timeout", None]
FINAL: list[int | str | None] = [400, 401, 404, 413, 422, "content_refused"]


def test_failed_line_is_sent_again_if_its_error_is_transient(provider: Emulator, tmp_path: Path) -> None:
    """The error is a status, the code of a line without a response, or missing too."""
    errors: dict[str, int | str | None] = {}

    def fail(body: bytes) -> bytes:
        lines = [json.loads(line) for line in body.splitlines()]
        for line, error in zip(lines, [*TRANSIENT, *FINAL], strict=True):
            errors[line["custom_id"]] = error
            if isinstance(error, int):
                line["response"] |= {"status_code": error, "body": {"error": {"message": "no"}}}
            else:
                line |= {"response": None, "error": error and {"code": error, "message": "no"}}
        return b"\n".join(json.dumps(line).encode() for line in lines)

    jobs = len(TRANSIENT) + len(FINAL)
    with worked_off(tmp_path / "q", provider, First(1, "/content", fail), jobs) as queue:
        for job in (queue.job(str(number)) for number in range(jobs)):
            error = errors[f"job-{job.number}"]
            assert (job.state, job.attempts) == (("done", 2) if error in TRANSIENT else ("failed", 1)), error
            if error == "content_refused":
                with pytest.raises(JobFailedError, match="content_refused"):
                    queue.result(job.key)
            elif error in FINAL:
                with pytest.raises(openai.APIStatusError, match=f"Error code: {error} - no"):
                    queue.result(job.key)


def odd(body: bytes) -> bytes:
    lines = [json.loads(line) for line in body.splitlines()]
    lines[0]["response"]["request_id"] = "\ud800\0" + "x" * 5_000
    lines[0]["response"]["body"]["usage"] = ["none", {"prompt_tokens": None}]
    lines[1]["response"]["body"]["usage"] = {"prompt_tokens": 10**30, "completion_tokens": -1}
    another = {**lines[2], "custom_id": "job-99"}
    lines[3]["response"]["status_code"] = 10**30
    unknown = [{**lines[2], "custom_id": custom_id} for custom_id in ("mine", None, 5, "job-01")]
    return "\n\n".join(json.dumps(line) for line in (another, *lines, lines[0], *unknown)).encode()


def test_malformed_output_lines_do_not_stop_the_worker(provider: Emulator, tmp_path: Path) -> None:
    with worked_off(tmp_path / "q", provider, First(1, "/content", odd)) as queue:
        assert states(queue) == {"done": 4}
        assert sorted(queue.job(str(number)).attempts for number in range(4)) == [1, 1, 1, 2]


@pytest.mark.parametrize("status", [400, 404])
def test_unclear_batch_creation_is_checked_until_answered(provider: Emulator, tmp_path: Path, status: int) -> None:
    provider.set_faults("lost_answer;on=POST batches;times=1")
    with worked_off(tmp_path / "q", provider, First(5, "GET /v1/batches", lambda _: status)) as queue:
        assert states(queue) == {"done": 4}
    assert executions(provider, range(4)) == [1] * 4


def test_forbidden_job_fails_and_others_finish(provider: Emulator, tmp_path: Path) -> None:
    flagged = First(1, "POST", lambda _: 403)
    with worked_off(tmp_path / "q", provider, flagged, lane="live", max_concurrency=1) as queue:
        assert states(queue) == {"done": 3, "failed": 1}
        with pytest.raises(openai.PermissionDeniedError):
            queue.result("0")


def test_html_page_of_a_proxy_fails_the_job(provider: Emulator, tmp_path: Path) -> None:
    page = First(1_000, "POST", lambda _: b"<html>\n<p>a proxy</p>")
    with worked_off(tmp_path / "q", provider, page, lane="live", max_attempts=2) as queue:
        assert states(queue) == {"failed": 4}
        assert queue.job("0").attempts == 2
        with pytest.raises(JobFailedError, match="not_json"):
            queue.result("0")


@pytest.mark.parametrize("status", [500, 502, 408])
def test_gateway_error_on_create_does_not_repeat_the_batch(provider: Emulator, tmp_path: Path, status: int) -> None:
    # The provider has made it; what is in front of it says something else.
    change = First(1, "POST /v1/batches", lambda _: status)
    with worked_off(tmp_path / "q", provider, change) as queue:
        assert states(queue) == {"done": 4}
    assert executions(provider, range(4)) == [1] * 4
    assert len(provider.offline().batches) == 1
