"""What an application puts into a queue comes out as openai's own types, and as openai's own errors."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import openai
import pydantic
import pytest
from openai.types import Completion, CreateEmbeddingResponse
from openai.types.chat import ChatCompletion, ChatCompletionMessage, ParsedChatCompletion
from openai.types.responses import Response

from fastlane import ConfigurationError, FastlaneError, OpenAI
from fastlane.batch import (
    JobCancelledError,
    JobConflictError,
    JobFailedError,
    JobNotFinishedError,
    Queue,
    QueueError,
    QueueNotFoundError,
    QueueWaitTimeoutError,
    UnknownJobError,
    WorkerSettings,
)

BODY: dict[str, Any] = {"model": "small", "messages": [{"role": "user", "content": "a secret"}]}
ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "small",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "logprobs": None,
            "message": {"role": "assistant", "content": '{"title": "x"}', "refusal": None},
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
}
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "small",
    "status": "completed",
    "output": [
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": '{"title": "x"}', "annotations": []}],
        }
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


class Ticket(pydantic.BaseModel):
    title: str


def work_off(queue: Queue, answer: dict[str, Any] = ANSWER, status: int = 200) -> None:
    """Have a worker make all calls; a status of 0 is a connection that breaks."""

    def answered(request: httpx2.Request) -> httpx2.Response:
        if not status:
            raise httpx2.ConnectError("broken")
        return httpx2.Response(status, json=answer, headers={"x-request-id": "req_1"})

    http_client = httpx2.Client(transport=httpx2.MockTransport(answered))
    client = openai.OpenAI(api_key="sk-test", base_url="http://provider.test/v1", http_client=http_client)
    worker = WorkerSettings(lane="live", retry_s=0.0, max_attempts=1)
    with client, Queue(queue.storage.name, client.with_options(max_retries=0), worker=worker) as working:
        working.run()


def test_answer_is_what_the_live_call_would_have_returned(queue: Queue) -> None:
    job = queue.submit(BODY, key="a")
    assert (job.key, job.state, job.model) == ("a", "waiting", "small")

    work_off(queue)

    answer = queue.result("a")
    assert isinstance(answer, ChatCompletion)
    assert answer == ChatCompletion.model_validate(ANSWER)
    assert answer.choices[0].message.content == '{"title": "x"}'
    assert answer._request_id == "req_1"
    assert (queue.job("a").state, queue.job("a").input_tokens) == ("done", 3)
    assert queue.status().output_tokens == 2


def test_result_is_parsed_into_response_format_class(queue: Queue) -> None:
    queue.submit({**BODY, "response_format": Ticket}, key="a")
    queue.submit({"model": "small", "input": "x", "text_format": Ticket}, key="b", endpoint="/v1/responses")
    work_off(queue)

    answer = queue.result("a", response_format=Ticket)

    assert isinstance(answer, ParsedChatCompletion)
    assert answer.choices[0].message.parsed == Ticket(title="x")
    assert answer._request_id == "req_1"


@pytest.mark.parametrize(
    ("endpoint", "body", "answer", "kind"),
    [
        ("/v1/responses", {"input": "x"}, RESPONSE, Response),
        ("/v1/completions", {"prompt": "x"}, {"id": "1", "choices": [], "object": "text_completion"}, Completion),
        (
            "/v1/embeddings",
            {"input": "x"},
            {"data": [{"embedding": [0.5], "index": 0, "object": "embedding"}], "object": "list", "model": "small"},
            CreateEmbeddingResponse,
        ),
    ],
)
def test_each_endpoint_returns_its_own_response_type(
    queue: Queue, endpoint: str, body: dict[str, Any], answer: dict[str, Any], kind: type
) -> None:
    queue.submit({"model": "small", **body}, key="a", endpoint=endpoint)
    work_off(queue, answer)

    assert isinstance(queue.result("a"), kind)
    if kind is Response:
        assert queue.result("a", response_format=Ticket).output_parsed == Ticket(title="x")
    else:
        with pytest.raises(ConfigurationError, match="for chat completions and responses"):
            queue.result("a", response_format=Ticket)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, openai.BadRequestError),
        (403, openai.PermissionDeniedError),
        (404, openai.NotFoundError),
        (422, openai.UnprocessableEntityError),
        (429, openai.RateLimitError),
        (503, openai.InternalServerError),
        (418, openai.APIStatusError),
    ],
)
def test_job_that_failed_raises_what_the_live_call_would_have(
    queue: Queue, status: int, kind: type[openai.APIStatusError]
) -> None:
    queue.submit(BODY, key="a")
    error = {"error": {"message": "no such thing", "code": "not_there", "type": "t", "param": None}}
    work_off(queue, error, status)

    with pytest.raises(kind, match=f"Error code: {status} - no such thing") as raised:
        queue.result("a")

    assert type(raised.value) is kind
    assert (raised.value.code, raised.value.body, raised.value.request_id) == ("not_there", error["error"], "req_1")
    assert raised.value.response.request.url.path == "/v1/chat/completions"
    assert raised.value.response.request.content == b""


def test_job_failed_without_answer_has_a_reason(queue: Queue) -> None:
    queue.submit(BODY, key="a")
    work_off(queue, status=0)

    with pytest.raises(JobFailedError, match="after 1 attempts without an answer: connection") as raised:
        queue.result("a")

    assert raised.value.code == "connection"
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), again.code) == (str(raised.value), "connection")
    assert queue.retry_failed("a") == 1
    with pytest.raises(JobNotFinishedError, match="'a' is waiting"):
        queue.result("a")


def test_unknown_and_cancelled_jobs_raise_separate_errors(queue: Queue) -> None:
    queue.submit(BODY, key="a")
    assert [job.state for job in queue.cancel("a")] == ["cancelled"]

    with pytest.raises(JobCancelledError, match="'a' was cancelled"):
        queue.result("a")
    for ask in (queue.result, queue.job, queue.cancel, queue.wait):
        with pytest.raises(UnknownJobError, match="the key 'b'"):
            ask("b")
    assert issubclass(QueueError, FastlaneError)


def test_same_key_is_submitted_once_and_conflicts_with_new_body(queue: Queue) -> None:
    body = {"model": "small", "messages": [{"role": "assistant", "content": "a secret"}], "seed": 2**70}
    typed = {**body, "messages": [ChatCompletionMessage(role="assistant", content="a secret")], "top_p": openai.omit}
    first = queue.submit(body, key="a")
    assert queue.submit(dict(reversed(body.items())), key="a") == queue.submit(typed, key="a") == first
    work_off(queue)
    assert queue.submit(body, key="a").state == "done"

    with pytest.raises(JobConflictError, match="the key 'a'") as raised:
        queue.submit({**body, "seed": 2**70 + 1}, key="a")
    with pytest.raises(JobConflictError):
        queue.submit({"model": "small", "input": "x"}, key="a", endpoint="/v1/responses")

    assert "secret" not in str(raised.value)
    assert pickle.loads(pickle.dumps(raised.value)).key == "a"


def test_many_are_submitted_at_once_all_or_none(queue: Queue) -> None:
    queue.submit_many({"a": BODY, "b": BODY})
    jobs = queue.submit_many((key, BODY) for key in ("c", None, "a"))

    assert [jobs[0].key, jobs[2].key] == ["c", "a"]
    with pytest.raises(ConfigurationError):
        queue.submit_many([("d", BODY), ("e", {"model": "small"})])
    with pytest.raises(JobConflictError):
        queue.submit_many([("d", BODY), ("a", {**BODY, "seed": 1})])
    with pytest.raises(JobConflictError, match="the key 'e'"):
        queue.submit_many([("e", BODY), ("e", {**BODY, "seed": 1})])
    assert queue.submit_many([]) == []
    assert queue.status().total == 4


def test_wait_ends_when_its_jobs_are_over(queue: Queue) -> None:
    queue.submit_many({"a": BODY, "b": BODY})
    queue.cancel("b")
    queue.wait("b")
    waiter = threading.Thread(target=queue.wait, args=[["a", "b"]])
    waiter.start()

    work_off(queue)

    waiter.join()
    queue.wait()
    assert queue.status().over == 2


def test_wait_beyond_its_timeout_raises(queue: Queue) -> None:
    queue.submit(BODY, key="a")

    with pytest.raises(QueueWaitTimeoutError, match=r"within 0\.05 s"):
        queue.wait(timeout_s=0.05)
    with pytest.raises(TimeoutError):
        list(queue.results(wait=True, timeout_s=0.0))


def test_wait_ends_when_the_queue_is_closed(queue: Queue) -> None:
    queue.submit(BODY, key="a")
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            queue.wait()
        except QueueError as error:
            raised.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    queue.close()
    queue.close()
    waiter.join()

    assert "closed" in str(raised[0])


def test_results_come_in_the_order_in_which_they_were_over(queue: Queue) -> None:
    queue.submit(BODY, key="late")
    queue.submit_many({"cancelled": BODY, "failed": BODY})
    queue.cancel("cancelled")
    assert [one.key for one in queue.results()] == ["cancelled"]

    feeder = threading.Thread(target=work_off, args=[queue])
    seen = []
    for one in queue.results(wait=True):
        if one.key == "cancelled":
            feeder.start()
        seen.append(one)
    feeder.join()

    assert {one.key for one in seen} == {"cancelled", "late", "failed"}
    assert isinstance(seen[1].result(), ChatCompletion)
    with pytest.raises(JobCancelledError):
        seen[0].result()
    assert [one.key for one in queue.results(after=seen[1].sequence)] == [seen[2].key]
    assert "secret" not in repr(seen)


def test_event_loop_waits_without_being_held_up(queue: Queue) -> None:
    queue.submit_many({"a": BODY, "b": BODY})

    async def main() -> list[str]:
        waiting = asyncio.create_task(queue.async_wait(["a"]))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await asyncio.to_thread(work_off, queue)
        await waiting
        with pytest.raises(UnknownJobError):
            await queue.async_wait("missing")
        return [one.key for one in queue.results()]

    assert sorted(asyncio.run(main())) == ["a", "b"]


def test_finished_jobs_are_kept_until_forgotten(queue: Queue) -> None:
    queue.submit_many({"a": BODY, "b": BODY})
    queue.cancel("b")
    work_off(queue)

    assert queue.forget(older_than_s=60.0) == 0
    assert queue.forget(states=["cancelled"]) == 1
    assert queue.forget("a") == 1
    with pytest.raises(ConfigurationError, match="states expects some of"):
        queue.forget(states=["waiting"])
    with pytest.raises(UnknownJobError):
        queue.result("a")


def test_repr_shows_nothing_of_a_prompt(queue: Queue) -> None:
    job = queue.submit(BODY, key="a")
    work_off(queue)

    shown = repr([queue, job, queue.storage, queue.status(), list(queue.results())])
    assert "secret" not in shown
    assert "title" not in shown


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (lambda queue: queue.submit({"model": "m", "messages": []}, endpoint=[]), "endpoint expects"),
        (lambda queue: queue.submit({"model": "m", "messages": [], "response_format": int}), "response_format"),
        (lambda queue: queue.submit_many(None), "bodies expects a mapping"),
        (lambda queue: queue.submit_many([{"model": "m"}]), "bodies expects"),
        (lambda queue: queue.wait(5), "keys expects"),
        (lambda queue: queue.cancel(5), "keys expects the key"),
        (lambda _: Queue("jobs\0.sqlite"), "NUL"),
        (lambda _: Queue("postgresql://host/database", schema='x"; DROP TABLE jobs'), "schema expects a name"),
        (lambda _: Queue("jobs.sqlite", worker={"lane": "live"}), "WorkerSettings"),  # type: ignore[arg-type]
    ],
)
def test_invalid_queue_arguments_are_refused(tmp_path: Path, wrong: Callable[[Any], object], complaint: str) -> None:
    with Queue(tmp_path / "jobs.sqlite") as queue:
        queue.submit({"model": "m", "messages": []}, key="a")
        with pytest.raises(ConfigurationError, match=complaint):
            wrong(queue)
        with pytest.raises(UnknownJobError):
            queue.retry_failed("b")


NO_SERVER = "the address of a PostgreSQL database"


@pytest.mark.parametrize(
    ("where", "complaint"),
    [
        ("", "a queue expects a path"),
        (":memory:", "a queue expects a path"),
        ("file:jobs?mode=memory", "a queue expects a path"),
        ("mysql://user:hunter2@host/jobs", "a queue expects a path"),
        (7, "a queue expects a path"),
        ("postgresql://user:hunter2@host/x?nonsense=1", NO_SERVER),
        ("postgres://u:hunter2%@h/d", NO_SERVER),
        ("postgresql://[hunter2", NO_SERVER),
    ],
)
def test_invalid_queue_url_is_refused_without_password(where: Any, complaint: str) -> None:
    if complaint == NO_SERVER:
        pytest.importorskip("psycopg")
    with pytest.raises(ConfigurationError, match=complaint) as raised:
        Queue(where)

    assert "hunter2" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None


READS: dict[str, Callable[[Queue], object]] = {
    "status": lambda queue: queue.status(),
    "job": lambda queue: queue.job("a"),
    "result": lambda queue: queue.result("a"),
    "results": lambda queue: list(queue.results()),
    "wait": lambda queue: queue.wait(),
    "cancel": lambda queue: queue.cancel(None),
    "retry": lambda queue: queue.retry_failed(),
    "forget": lambda queue: queue.forget(),
    "storage": lambda queue: queue.storage,
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_reading_a_missing_queue_creates_none(tmp_path: Path, read: Callable[[Queue], object]) -> None:
    where = tmp_path / "typo.sqlite"
    with Queue(where) as queue:
        with pytest.raises(QueueNotFoundError, match=r"there is no queue '.*typo.sqlite'"):
            read(queue)
        assert not where.exists()
        assert repr(queue) == "<fastlane.batch.Queue not made yet>"
        queue.submit({"model": "m", "messages": []}, key="a")
        assert queue.status().total == 1


def test_worker_of_a_queue_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    client = OpenAI(api_key="sk-test", base_url="http://127.0.0.1:1/v1")
    with client, Queue(tmp_path / "typo.sqlite", client) as queue:
        with pytest.raises(QueueNotFoundError):
            queue.run()
        assert not list(tmp_path.iterdir())
        queue.start()
        assert queue.status().total == 0
