"""Marks reach the plays, and a provider never sees them, whichever way a call takes."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import openai
import pytest
from openai.resources.chat.completions import Completions
from openai.types.chat import ChatCompletionMessage
from pydantic import BaseModel

import fastlane
from fastlane import Call, PromptCache
from fastlane.prompts import Prompt, volatile
from tests.call_peer import ANSWER, Asked, CallPeer, Reply
from tests.session_play import SessionPlay

NOW: dict[str, Any] = {"type": "text", "text": "It is 10:04."}
QUESTION: dict[str, Any] = {"role": "user", "content": "Is water wet?"}
TOOLS: list[Any] = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]


class Ticket(BaseModel):
    name: str


@dataclass(frozen=True, slots=True)
class Keep(SessionPlay):
    """Keeps what plays are given."""

    calls: Any

    def plan(self, call: Call) -> Call:
        self.calls.append(call)
        return call


def only_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return type(value) is dict and all(map(only_plain, value.values()))
    if isinstance(value, list):
        return type(value) is list and all(map(only_plain, value))
    return True


def marked_messages() -> list[Any]:
    return [volatile("10:04"), {"role": "system", "content": [volatile(NOW), {"type": "text", "text": "a"}]}, QUESTION]


WRITTEN = [
    {"role": "system", "content": "10:04"},
    {"role": "system", "content": [NOW, {"type": "text", "text": "a"}]},
    QUESTION,
]
DECLARED = ("volatile", ("volatile", None), None)

WAYS: dict[str, Callable[[Any], Any]] = {
    "create": lambda client: client.chat.completions.create(model="m", messages=marked_messages()),
    "with an answer's message": lambda client: client.chat.completions.create(
        model="m", messages=[*marked_messages(), ChatCompletionMessage(role="assistant", content="Yes.")]
    ),
    "with what openai has to walk through": lambda client: client.chat.completions.create(
        model="m", messages=marked_messages(), stop=("a",)
    ),
    "as a tuple": lambda client: client.chat.completions.create(model="m", messages=tuple(marked_messages())),
    "responses as a tuple": lambda client: client.responses.create(model="m", input=tuple(marked_messages())),
    "streamed": lambda client: list(client.chat.completions.create(model="m", messages=marked_messages(), stream=True)),
    "parse": lambda client: client.chat.completions.parse(
        model="m", messages=marked_messages(), response_format=Ticket
    ),
    "raw": lambda client: client.chat.completions.with_raw_response.create(
        model="m", messages=marked_messages()
    ).parse(),
    "responses": lambda client: client.responses.create(model="m", input=marked_messages()),
    "parsed responses": lambda client: client.responses.parse(model="m", input=marked_messages(), text_format=Ticket),
}


def stream(client: Any) -> None:
    with client.chat.completions.stream(model="m", messages=marked_messages()) as events:
        events.until_done()


def response_stream(client: Any) -> None:
    with client.responses.stream(model="m", input=marked_messages()) as events:
        events.until_done()


WAYS |= {"stream": stream, "streamed responses": response_stream}


SAID = '{"name": "Rhine"}'
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "completed",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "output": [
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": SAID, "annotations": []}],
        }
    ],
}
CHOICE = {"index": 0, "finish_reason": "stop"}
CHUNK = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def answer(asked: Asked) -> Reply:
    """What each endpoint answers, streamed or not."""
    body = json.loads(asked.body)
    is_chat = "messages" in body
    if not body.get("stream"):
        choices = [{**CHOICE, "message": {"role": "assistant", "content": SAID}}]
        return Reply(body=json.dumps({**ANSWER, "choices": choices} if is_chat else RESPONSE).encode())
    events: list[dict[str, Any]] = [
        {"type": f"response.{kind}", "sequence_number": number, "response": RESPONSE}
        for number, kind in enumerate(("created", "completed"))
    ]
    if is_chat:
        events = [{**CHUNK, "choices": [{**CHOICE, "delta": {"role": "assistant", "content": SAID}}]}]
    lines = [*(json.dumps(event) for event in events), *(["[DONE]"] if is_chat else [])]
    return Reply(
        headers=(("content-type", "text/event-stream"),), body="".join(f"data: {line}\n\n" for line in lines).encode()
    )


@pytest.fixture
def bodies(one_peer: CallPeer) -> list[Any]:
    """The messages of the requests that a server gets, which `of_the_peer` leads to."""
    seen: list[Any] = []

    def noting(asked: Asked) -> Reply:
        body = json.loads(asked.body)
        seen.append(body.get("messages", body.get("input")))
        return answer(asked)

    one_peer.usually = noting
    return seen


@pytest.fixture
def of_the_peer(one_peer: CallPeer, bodies: list[Any]) -> dict[str, Any]:
    """What a client of that server is made with."""
    return {"api_key": "sk-test", "base_url": f"{one_peer.url}/v1", "max_retries": 0}


@pytest.mark.parametrize("way", WAYS)
def test_plays_see_plain_messages_and_what_was_declared_of_each(arguments: dict[str, Any], way: str) -> None:
    calls: list[Any] = []
    with fastlane.OpenAI(**arguments, only_plays=[Keep(calls)]) as client:
        WAYS[way](client)

    (call,) = calls
    messages = call.body["messages" if "messages" in call.body else "input"]
    assert len(call.placements) == len(messages)
    assert call.placements[:3] == DECLARED
    assert messages[:3] == WRITTEN
    assert only_plain(messages)


def test_a_prompt_goes_wherever_a_list_of_messages_goes(arguments: dict[str, Any]) -> None:
    calls: list[Call] = []
    prompt = Prompt(stable="a", session=[QUESTION], volatile="10:04")
    before = copy.deepcopy(prompt)
    with fastlane.OpenAI(**arguments, only_plays=[Keep(calls)]) as client:
        client.chat.completions.create(model="m", messages=prompt, tools=TOOLS)
        client.chat.completions.create(model="m", messages=prompt)
        client.responses.create(model="m", input=prompt)

    assert [call.placements for call in calls] == [("stable", "session", "volatile")] * 3
    assert [call.body.get("tools") is not None for call in calls] == [True, False, False]
    assert only_plain([dict(call.body) for call in calls])
    assert prompt == before


def test_the_callers_own_messages_stay_as_they_are(arguments: dict[str, Any]) -> None:
    messages = marked_messages()
    before = copy.deepcopy(messages)
    with fastlane.OpenAI(**arguments) as client:
        client.chat.completions.create(model="m", messages=messages)

    assert messages == before
    assert [type(one).__name__ for one in messages] == ["Marked", "dict", "dict"]
    assert messages[1]["content"][0].placement == "volatile"


def stock(arguments: dict[str, Any]) -> openai.OpenAI:
    return openai.OpenAI(**arguments)


def without_plays(arguments: dict[str, Any]) -> openai.OpenAI:
    return fastlane.OpenAI(**arguments, only_plays=[])


def of_its_own_http(arguments: dict[str, Any]) -> openai.OpenAI:
    return fastlane.OpenAI(**arguments, http_client=openai.DefaultHttpxClient(), only_plays=[])


@pytest.mark.parametrize("make", [stock, without_plays, of_its_own_http])
@pytest.mark.parametrize("way", WAYS)
def test_without_the_play_messages_go_out_as_they_were_written(
    of_the_peer: dict[str, Any], bodies: list[Any], make: Any, way: str
) -> None:
    with make(of_the_peer) as client:
        WAYS[way](client)

    (messages,) = bodies
    assert messages[:3] == WRITTEN


@pytest.mark.parametrize("way", WAYS)
def test_with_the_play_what_is_volatile_goes_behind_the_rest(
    of_the_peer: dict[str, Any], bodies: list[Any], way: str
) -> None:
    with fastlane.OpenAI(**of_the_peer, only_plays=[PromptCache()]) as client:
        WAYS[way](client)

    (messages,) = bodies
    assert messages[:4] == [
        {"role": "system", "content": [{"type": "text", "text": "a"}]},
        QUESTION,
        {"role": "system", "content": "10:04"},
        {"role": "system", "content": [NOW]},
    ]


def test_switched_off_messages_go_out_as_they_were_written(
    of_the_peer: dict[str, Any], bodies: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTLANE_DISABLED", "1")
    with fastlane.OpenAI(**of_the_peer) as client:
        client.chat.completions.create(model="m", messages=marked_messages())
        client.responses.create(model="m", input=Prompt(stable="a", volatile="b"))

    assert bodies == [WRITTEN, [{"role": "system", "content": "a"}, {"role": "system", "content": "b"}]]


def test_a_method_that_others_have_replaced_sends_marked_messages_as_they_were_written(
    of_the_peer: dict[str, Any], bodies: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Completions.create

    def another(self: Any, **kwargs: Any) -> Any:
        return own(self, **kwargs)

    monkeypatch.setattr(Completions, "create", another)
    with fastlane.OpenAI(**of_the_peer) as client:
        client.chat.completions.create(model="m", messages=marked_messages())

    assert bodies == [WRITTEN]
