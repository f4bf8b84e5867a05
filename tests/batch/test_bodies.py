"""What the lines of a batch's files make of its jobs."""

from __future__ import annotations

import json
import math
from typing import Any

import openai
import pydantic
import pytest
from hypothesis import given, strategies as st
from openai.types.chat import ChatCompletionMessage

from fastlane import ConfigurationError
from fastlane.batch import WorkerSettings
from fastlane.batch.answers import outcome_of, read_line
from fastlane.batch.jobs import JobOutcome
from fastlane.batch.requests import new_job
from tests.batch.conftest import packed

SETTINGS = WorkerSettings(max_attempts=3, retry_s=10.0)


def judged(status: int | None = None, error: str | None = None, body: Any = None, attempts: int = 1) -> JobOutcome:
    response = None if status is None else {"status_code": status, "request_id": "r", "body": body}
    line = {
        "id": "x",
        "custom_id": "job-7",
        "response": response,
        "error": None if error is None else {"code": error, "message": "a message"},
    }
    name, read = read_line(json.dumps(line).encode())
    assert name == "job-7"
    return outcome_of(read, packed(attempts=attempts), SETTINGS)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
def test_transient_failure_is_retried_up_to_max_attempts(status: int) -> None:
    first, last = judged(status, body={"error": {}}), judged(status, body={"error": {}}, attempts=3)

    assert (first.state, first.not_before_s, first.error) == ("waiting", 10.0, f"status_{status}")
    assert judged(status, attempts=2).not_before_s == 20.0
    assert (last.state, last.status_code, last.body) == ("failed", status, b'{"error":{}}')


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
def test_client_error_fails_the_job_with_its_body(status: int) -> None:
    outcome = judged(status, body={"error": {"message": "no"}})

    assert (outcome.state, outcome.status_code) == ("failed", status)
    assert json.loads(outcome.body) == {"error": {"message": "no"}}


def test_line_without_response_is_retried_if_error_is_transient() -> None:
    assert (judged(error="batch_expired").state, judged(error="batch_expired").error) == ("waiting", "batch_expired")
    assert judged(error="batch_expired", attempts=3).state == "failed"
    assert (judged().state, judged().error) == ("waiting", "no_answer")
    assert (judged(error="content_refused").state, judged(error="content_refused").error) == (
        "failed",
        "content_refused",
    )


@pytest.mark.parametrize("name", ["job-07", "job-", "request-7", "", None, 7, "job-7 "])
def test_line_with_foreign_custom_id_is_not_matched(name: object) -> None:
    assert read_line(json.dumps({"custom_id": name, "response": None}).encode())[0] != "job-7"


@given(st.dictionaries(st.text(), st.text(), min_size=1), st.data())
def test_line_that_was_cut_off_is_no_answer(line: dict[str, str], data: st.DataObject) -> None:
    whole = json.dumps({"custom_id": "job-7", "response": {"status_code": 200, "body": line}}).encode()
    cut = data.draw(st.integers(0, len(whole) - 1))

    assert read_line(whole[:cut]) == ("", {})


@given(
    st.recursive(
        st.none() | st.text() | st.floats(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    )
)
def test_answer_without_token_usage_is_accepted(body: object) -> None:
    outcome = judged(200, body={"usage": body})

    assert (outcome.input_tokens, outcome.output_tokens, outcome.cached_tokens) == (None, None, None)


# A job sends what openai's own method would send for the same arguments, or says at once why it cannot


CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "a secret"}]}


class Ticket(pydantic.BaseModel):
    title: str


def sent(body: dict[str, Any], endpoint: str = CHAT) -> Any:
    job = new_job(body, key="k", endpoint=endpoint)
    assert b"\n" not in job.body
    assert job.model == body["model"]
    return json.loads(job.body)


def stock(body: dict[str, Any]) -> Any:
    """What a client of openai's own writes to its server for these arguments."""
    import httpx2

    bodies: list[bytes] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        bodies.append(request.content)
        return httpx2.Response(200, json={})

    with openai.OpenAI(api_key="none", http_client=httpx2.Client(transport=httpx2.MockTransport(answer))) as client:
        client.chat.completions.create(**body)
    return json.loads(bodies[0])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=6,
)


@given(
    content=st.text(max_size=20),
    more=st.fixed_dictionaries(
        {},
        optional={
            "temperature": st.floats(0, 2),
            "seed": st.integers() | st.just(openai.omit) | st.just(openai.NOT_GIVEN),
            "metadata": st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
            "stop": st.none() | st.lists(st.text(max_size=3), max_size=2),
            "stream": st.just(False) | st.none(),
            "extra_body": st.none() | st.dictionaries(st.sampled_from(["top_k", "seed", "x"]), JSON, max_size=2),
        },
    ),
    history=st.booleans(),
)
def test_job_body_matches_openai_request_body(content: str, more: dict[str, Any], history: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": content}]
    if history:
        messages.insert(0, ChatCompletionMessage(role="assistant", content=content))
    body = {"model": "m", "messages": messages, **more}

    assert sent(body) == stock(body)


def test_pydantic_and_iterable_arguments_serialize_as_in_openai() -> None:
    body = {**BODY, "messages": (message for message in BODY["messages"]), "response_format": Ticket}

    found = sent(body)

    assert found["messages"] == BODY["messages"]
    assert found["response_format"]["json_schema"]["name"] == "Ticket"
    assert found["response_format"]["type"] == "json_schema"
    response = sent({"model": "m", "input": "x", "text_format": Ticket, "text": {"verbosity": "low"}}, "/v1/responses")
    assert response["text"]["verbosity"] == "low"
    assert response["text"]["format"]["name"] == "Ticket"


def test_equal_bodies_have_equal_digests() -> None:
    plain = {"model": "m", "messages": [{"role": "assistant", "content": "x"}]}
    typed = {"messages": [ChatCompletionMessage(role="assistant", content="x")], "model": "m", "seed": openai.omit}

    def digest(body: dict[str, Any], endpoint: str = CHAT) -> bytes:
        return new_job(body, key="k", endpoint=endpoint).digest

    assert digest(plain) == digest(typed) == digest(dict(reversed(plain.items())))
    assert digest({**plain, "seed": 1}) != digest(plain)
    assert digest({**plain, "seed": 2**70}) != digest({**plain, "seed": 2**70 + 1})
    either = {"model": "m", "prompt": "x"}, {"model": "m", "input": "x"}
    assert digest(either[0], "/v1/completions") != digest(either[1], "/v1/responses")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"stream": True}, "leave `stream` out"),
        ({"timeout": 3.0}, "no place for `timeout`"),
        ({"extra_headers": {"x": "a secret"}}, "no place for `extra_headers`"),
        ({"extra_query": {"x": "1"}}, "no place for `extra_query`"),
        ({"model": None}, "needs `model`"),
        ({"model": 3}, "`model` expects the name of a model, got int"),
        ({"model": "m\0"}, "`model` expects"),
        ({"messages": openai.omit}, "needs `messages`"),
        ({"top_k": 3}, "has no argument `top_k`: .*`extra_body`"),
        ({f"a{number}": 1 for number in range(30)}, "has no argument `a0`.*`a15`: .*`extra_body`"),
        ({"extra_body": ["a secret"]}, "`extra_body` expects a mapping, got list"),
        ({"extra_body": {"stream": True}}, "nothing for `extra_body`"),
        ({"metadata": {"a": math.nan}}, "`metadata` cannot be"),
        ({"messages": [{"role": "user", "content": object()}]}, "`messages` cannot be"),
        (
            {"messages": [{"role": "user", "content": "a secret \ud800"}]},
            "`messages` cannot be",
        ),
        ({"metadata": {("a secret",): "x"}}, "`metadata` cannot be"),
        ({"extra_body": {"a": b"a secret"}}, "`extra_body` cannot be"),
    ],
)
def test_unsendable_body_is_refused_without_showing_prompt(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint) as raised:
        new_job({**BODY, **changes}, key="k", endpoint=CHAT)

    assert "a secret" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None


@pytest.mark.parametrize("key", ["", "x" * 513, "a\0", "\ud800", 3, None])
def test_key_is_a_text_that_every_database_keeps(key: Any) -> None:
    with pytest.raises(ConfigurationError, match="the key of a job"):
        new_job(BODY, key=key, endpoint=CHAT)
