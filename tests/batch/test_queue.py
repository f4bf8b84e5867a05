"""What an application puts into a queue comes out as openai's own types, and as openai's own errors."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pydantic
import pytest
from openai.types import Completion, CreateEmbeddingResponse
from openai.types.chat import ChatCompletion, ChatCompletionMessage, ParsedChatCompletion
from openai.types.responses import Response

from fastlane import ConfigurationError, FastlaneError
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
from fastlane.emulator import Emulator
from tests.batch.offline_parts import client_of

BODY: dict[str, Any] = {"model": "small", "messages": [{"role": "user", "content": "a secret"}]}

WorkOff = Callable[..., None]


class Ticket(pydantic.BaseModel):
    title: str


@pytest.fixture
def work_off(queue: Queue, provider: Emulator) -> Callable[..., None]:
    """Have a worker make all calls, once each; a fault strikes them all."""

    def work_off(*faults: str) -> None:
        provider.set_faults(*faults)
        worker = WorkerSettings(lane="live", retry_s=0.0, max_attempts=1)
        with client_of(provider, max_retries=0) as client, Queue(queue.storage.name, client, worker=worker) as working:
            working.run()

    return work_off


def test_answer_is_what_the_live_call_would_have_returned(queue: Queue, provider: Emulator, work_off: WorkOff) -> None:
    job = queue.submit(BODY, key="a")
    assert (job.key, job.state, job.model) == ("a", "waiting", "small")

    work_off()

    answer = queue.result("a")
    with client_of(provider) as client:
        live = client.chat.completions.create(**BODY)
    assert isinstance(answer, ChatCompletion)
    assert answer.choices == live.choices
    assert answer.usage == live.usage
    assert answer._request_id == provider.log()[0].request_id
    assert queue.job("a").state == "done"
    assert (queue.job("a").input_tokens, queue.status().output_tokens) == (
        live.usage.prompt_tokens,
        live.usage.completion_tokens,
    )


@pytest.mark.parametrize(
    ("endpoint", "body", "kind"),
    [
        ("/v1/responses", {"input": "x", "text_format": Ticket}, Response),
        ("/v1/chat/completions", {**BODY, "response_format": Ticket}, ChatCompletion),
        ("/v1/completions", {"prompt": "x"}, Completion),
        ("/v1/embeddings", {"input": "x"}, CreateEmbeddingResponse),
    ],
)
def test_each_endpoint_returns_its_own_response_type(
    queue: Queue, work_off: WorkOff, endpoint: str, body: dict[str, Any], kind: type
) -> None:
    queue.submit({"model": "small", **body}, key="a", endpoint=endpoint)
    work_off()

    assert isinstance(queue.result("a"), kind)
    if kind is Response:
        assert isinstance(queue.result("a", response_format=Ticket).output_parsed, Ticket)
    elif kind is ChatCompletion:
        parsed = queue.result("a", response_format=Ticket)
        assert isinstance(parsed, ParsedChatCompletion)
        assert isinstance(parsed.choices[0].message.parsed, Ticket)
        assert parsed._request_id == queue.result("a")._request_id
    else:
        with pytest.raises(ConfigurationError, match="for chat completions and responses"):
            queue.result("a", response_format=Ticket)


@pytest.mark.parametrize("status", [400, 403, 404, 422, 429, 503, 418])
def test_job_that_failed_raises_what_the_live_call_would_have(
    queue: Queue, provider: Emulator, work_off: WorkOff, status: int
) -> None:
    queue.submit(BODY, key="a")
    work_off(f"status={status}")

    with pytest.raises(openai.APIStatusError, match=f"Error code: {status} - ") as raised:
        queue.result("a")
    with client_of(provider, max_retries=0) as client, pytest.raises(openai.APIStatusError) as live:
        client.chat.completions.create(**BODY)

    error, expected = raised.value, live.value
    assert type(error) is type(expected)
    assert (error.code, error.body, error.status_code) == (expected.code, expected.body, status)
    assert error.request_id == provider.log()[0].request_id
    assert error.response.request.url.path == "/v1/chat/completions"
    assert error.response.request.content == b""


def test_job_failed_without_answer_has_a_reason(queue: Queue, work_off: WorkOff) -> None:
    queue.submit(BODY, key="a")
    work_off("disconnect")

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


def test_same_key_is_submitted_once_and_conflicts_with_new_body(queue: Queue, work_off: WorkOff) -> None:
    body = {"model": "small", "messages": [{"role": "assistant", "content": "a secret"}], "seed": 2**70}
    typed = {**body, "messages": [ChatCompletionMessage(role="assistant", content="a secret")], "top_p": openai.omit}
    first = queue.submit(body, key="a")
    assert queue.submit(dict(reversed(body.items())), key="a") == queue.submit(typed, key="a") == first
    work_off()
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


def test_wait_ends_when_its_jobs_are_over(queue: Queue, work_off: WorkOff) -> None:
    queue.submit_many({"a": BODY, "b": BODY})
    queue.cancel("b")
    queue.wait("b")
    waiter = threading.Thread(target=queue.wait, args=[["a", "b"]])
    waiter.start()

    work_off()

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


def test_results_come_in_the_order_in_which_they_were_over(queue: Queue, work_off: WorkOff) -> None:
    queue.submit(BODY, key="late")
    queue.submit_many({"cancelled": BODY, "failed": BODY})
    queue.cancel("cancelled")
    assert [one.key for one in queue.results()] == ["cancelled"]

    feeder = threading.Thread(target=work_off)
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


@pytest.mark.asyncio
async def test_event_loop_waits_without_being_held_up(queue: Queue, work_off: WorkOff) -> None:
    queue.submit_many({"a": BODY, "b": BODY})
    waiting = asyncio.create_task(queue.async_wait(["a"]))
    await asyncio.sleep(0)
    assert not waiting.done()
    await asyncio.to_thread(work_off)
    await waiting
    with pytest.raises(UnknownJobError):
        await queue.async_wait("missing")

    assert sorted(one.key for one in queue.results()) == ["a", "b"]


def test_finished_jobs_are_kept_until_forgotten(queue: Queue, work_off: WorkOff) -> None:
    queue.submit_many({"a": BODY, "b": BODY})
    queue.cancel("b")
    work_off()

    assert queue.forget(older_than_s=60.0) == 0
    assert queue.forget(states=["cancelled"]) == 1
    assert queue.forget("a") == 1
    with pytest.raises(ConfigurationError, match="states expects some of"):
        queue.forget(states=["waiting"])
    with pytest.raises(UnknownJobError):
        queue.result("a")


def test_repr_shows_nothing_of_a_prompt(queue: Queue, work_off: WorkOff) -> None:
    job = queue.submit(BODY, key="a")
    work_off()

    shown = repr([queue, job, queue.storage, queue.status(), list(queue.results())])
    answer = queue.result("a").choices[0].message.content
    assert answer
    assert not any(text in shown for text in ("secret", repr(answer)[1:-1]))


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
