"""A job sends what openai's own method would send for the same arguments, or says at once why it cannot."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import httpx2
import openai
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from openai.types.chat import ChatCompletionMessage

from fastlane import ConfigurationError
from fastlane.batch import Queue, WorkerSettings

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "a secret"}]}


class Ticket(pydantic.BaseModel):
    title: str


def bodies_of(call: Callable[[openai.OpenAI], object]) -> list[Any]:
    """What the requests of openai's own client bring to a server."""
    bodies: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        bodies.append(json.loads(request.content))
        return httpx2.Response(200, json={})

    with openai.OpenAI(api_key="none", http_client=httpx2.Client(transport=httpx2.MockTransport(answer))) as client:
        call(client)
    return bodies


def sent(queue: Queue, body: dict[str, Any], endpoint: str = CHAT) -> Any:
    """What a worker sends for a job."""

    def work(client: openai.OpenAI) -> None:
        with Queue(queue.storage.name, client, worker=WorkerSettings(lane="live")) as working:
            working.run()

    queue.submit(body, endpoint=endpoint)
    (found,) = bodies_of(work)
    return found


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
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
def test_job_body_matches_openai_request_body(queue: Queue, content: str, more: dict[str, Any], history: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": content}]
    if history:
        messages.insert(0, ChatCompletionMessage(role="assistant", content=content))
    body = {"model": "m", "messages": messages, **more}

    assert [sent(queue, body)] == bodies_of(lambda client: client.chat.completions.create(**body))


def test_pydantic_and_iterable_arguments_serialize_as_in_openai(queue: Queue) -> None:
    body = {**BODY, "messages": (message for message in BODY["messages"]), "response_format": Ticket}

    found = sent(queue, body)

    assert found["messages"] == BODY["messages"]
    assert found["response_format"]["json_schema"]["name"] == "Ticket"
    assert found["response_format"]["type"] == "json_schema"
    asked = {"model": "m", "input": "x", "text_format": Ticket, "text": {"verbosity": "low"}}
    response = sent(queue, asked, "/v1/responses")
    assert response["text"]["verbosity"] == "low"
    assert response["text"]["format"]["name"] == "Ticket"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"stream": True}, "leave `stream` out"),
        ({"timeout": 3.0}, "no place for `timeout`"),
        ({"extra_headers": {"x": "a secret"}}, "no place for `extra_headers`"),
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
        ({"messages": [{"role": "user", "content": "a secret \ud800"}]}, "`messages` cannot be"),
    ],
)
def test_unsendable_body_is_refused_without_showing_prompt(
    queue: Queue, changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint) as raised:
        queue.submit({**BODY, **changes})

    assert "a secret" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None


@pytest.mark.parametrize("key", ["", "x" * 513, "a\0", "\ud800", 3])
def test_key_is_a_text_that_every_database_keeps(queue: Queue, key: Any) -> None:
    with pytest.raises(ConfigurationError, match="the key of a job"):
        queue.submit(BODY, key=key)
