"""What goes over the wire is what the stock client sends, to the byte, and what it refuses is refused in its words."""

from __future__ import annotations

import datetime as dt
import enum
import json
import uuid
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any

import openai
import pydantic
import pytest
from openai import NOT_GIVEN, omit
from openai.types.chat import ChatCompletionMessage, ParsedChatCompletionMessage
from openai.types.responses import (
    ParsedResponseFunctionToolCall,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseReasoningItem,
)

import fastlane
from tests.attempts.events import DONE, choice_event, response, whole_response
from tests.call_peer import ANSWER
from tests.transport.peer_h1 import PeerH1, Request1
from tests.waiting import Form


class Ticket(pydantic.BaseModel):
    """A ticket."""

    name: str
    count: int = pydantic.Field(description="how many")


@pydantic.dataclasses.dataclass
class Seat:
    row: int


class Colour(enum.Enum):
    RED = "red"


class Role(enum.StrEnum):
    USER = "user"


class Text(str):
    __slots__ = ()


CONTENT = '{"name": "a", "count": 1}'
CHOICE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": CONTENT}}
COMPLETION = {**ANSWER, "choices": [CHOICE]}
CHUNKS = choice_event("stop", role="assistant", content=CONTENT) + DONE
TEXT = {"type": "output_text", "text": CONTENT, "annotations": []}
OUTPUT = {"id": "o", "type": "message", "role": "assistant", "status": "completed", "content": [TEXT]}
RESPONSE = whole_response(OUTPUT, created_at=1, parallel_tool_calls=True, tool_choice="auto", tools=[])
EVENTS = response("created", response=RESPONSE | {"status": "in_progress", "output": []})
EVENTS += response("completed", response=RESPONSE)


class Provider(PeerH1):
    """Answers everything, and keeps what it was sent."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.bodies: list[tuple[str, bytes]] = []

    @property
    def arguments(self) -> dict[str, Any]:
        return {"api_key": "none", "base_url": f"{self.url}/v1", "max_retries": 0}

    def sent(self) -> list[tuple[str, bytes]]:
        bodies, self.bodies = self.bodies, []
        return bodies

    def _answer(self, request: Request1) -> None:
        body = request.body()
        self.bodies.append((request.target, body))
        if json.loads(body).get("stream"):
            request.answer(CHUNKS if "chat" in request.target else EVENTS, "text/event-stream")
        else:
            request.answer(json.dumps(COMPLETION if "chat" in request.target else RESPONSE).encode())


@pytest.fixture(scope="module")
def running_server() -> Iterator[Provider]:
    with Provider() as provider:
        yield provider


@pytest.fixture
def server(running_server: Provider) -> Provider:
    running_server.sent()
    return running_server


USER = {"role": "user", "content": 'Is "wäter"\nwet? \u2028 😀'}
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "strict": True,
        "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "additionalProperties": False},
    },
}
RESPONSES_TOOL = {"type": "function", **TOOL["function"]}  # type: ignore[dict-item]
CALLING = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"at": "sea"}'}}],
}
TOOL_RESULT = {"role": "tool", "tool_call_id": "1", "content": "blue"}
PARTS = {
    "role": "user",
    "content": [
        {"type": "text", "text": "what is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
    ],
}
MESSAGE = ChatCompletionMessage.model_validate({**CALLING, "reasoning_content": "a field of some provider's own"})
PARSED = ParsedChatCompletionMessage[Ticket].model_validate(
    {"role": "assistant", "content": CONTENT, "parsed": {"name": "a", "count": 1}}
)
ITEMS = [
    ResponseReasoningItem.model_validate({"id": "1", "type": "reasoning", "summary": [], "status": None}),
    ResponseFunctionToolCall.model_validate(
        {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"}
    ),
    ResponseOutputMessage.model_validate(OUTPUT),
    ParsedResponseFunctionToolCall.model_validate(
        {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}", "parsed_arguments": {"a": 1}}
    ),
]


Call = Callable[[], dict[str, Any]]

CHAT: dict[str, Call] = {
    "a word": lambda: {"messages": [USER]},
    "a conversation": lambda: {"messages": [USER, CALLING, TOOL_RESULT, PARTS] * 3, "tools": [TOOL]},
    "many plain arguments": lambda: {
        "messages": [{"role": "system", "content": "?", "name": "n"}, USER],
        "logit_bias": {"50256": -100},
        "max_tokens": None,
        "metadata": {"a": "b"},
        "prediction": {"type": "content", "content": [{"type": "text", "text": "a"}]},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
        "seed": 2**63,
        "stop": ["a", "b"],
        "store": True,
        "stream_options": {"include_usage": True},
        "temperature": 1e-7,
        "tool_choice": {"type": "function", "function": {"name": "look"}},
        "tools": [TOOL, {"type": "custom", "custom": {"name": "c"}}],
    },
    "extra body": lambda: {"messages": [USER], "extra_body": {"top_k": 4, "model": "other"}},
    "extra body that is not plain": lambda: {"messages": [USER], "extra_body": {"at": dt.date(2026, 1, 2)}},
    "extra headers and query": lambda: {"messages": [USER], "extra_headers": {"a": "b"}, "extra_query": {"c": "d"}},
    "messages of a tuple": lambda: {"messages": (USER, CALLING, TOOL_RESULT), "tools": (TOOL,)},
    "messages of a generator": lambda: {"messages": (message for message in [USER, CALLING, TOOL_RESULT])},
    "tuples inside": lambda: {"messages": [{**PARTS, "content": tuple(PARTS["content"])}], "stop": ("a", "b")},
    "a generator inside": lambda: {"messages": [{**PARTS, "content": (part for part in PARTS["content"])}, USER]},
    "messages of a map and a set": lambda: {"messages": map(dict, [USER]), "stop": {"a"}},
    "an answer's message": lambda: {"messages": [USER, MESSAGE, TOOL_RESULT], "tools": [TOOL]},
    "a parsed message": lambda: {"messages": [USER, PARSED, USER]},
    "an answer's tool calls": lambda: {"messages": [USER, {**CALLING, "tool_calls": MESSAGE.tool_calls}, TOOL_RESULT]},
    "a model of the application's": lambda: {"messages": [USER], "metadata": Ticket(name="a", count=1)},
    "a tool of a model": lambda: {"messages": [USER], "tools": [openai.pydantic_function_tool(Ticket), TOOL]},
    "not given": lambda: {"messages": [{**USER, "name": NOT_GIVEN}], "temperature": NOT_GIVEN, "top_p": omit},
    "an ordered dictionary": lambda: {"messages": [OrderedDict(USER), USER]},
    "a mapping": lambda: {"messages": [MappingProxyType(USER)]},
    "a string of a subclass": lambda: {"messages": [{"role": Role.USER, "content": Text("a")}], "model": Text("m")},
    "a UUID": lambda: {"messages": [USER], "user": uuid.UUID(int=1)},
    "NaN": lambda: {"messages": [USER], "temperature": float("nan")},
    "a large number": lambda: {"messages": [USER], "seed": 2**70, "temperature": 1e22},
    "keys that are no strings": lambda: {"messages": [USER], "logit_bias": {1: 2, None: 3, 0.5: 4}},
    "a surrogate": lambda: {"messages": [{"role": "user", "content": "\ud800"}]},
    "no messages": dict,
    "messages that are a string": lambda: {"messages": "a"},
    "a message that is nothing": lambda: {"messages": [None, 1, "a", [USER]]},
    "an unknown argument": lambda: {"messages": [USER], "colour": "red"},
    "a model as a format": lambda: {"messages": [USER], "response_format": Ticket},
    "a dataclass as a format": lambda: {"messages": [USER], "response_format": Seat},
    "a type that is no format": lambda: {"messages": [USER], "response_format": int},
    "a tool that is not strict": lambda: {
        "messages": [USER],
        "tools": [{"type": "function", "function": {"name": "a"}}],
    },
}

RESPONSES: dict[str, Call] = {
    "a word": lambda: {"input": "Is wäter wet?"},
    "a conversation": lambda: {
        "input": [USER, {"role": "assistant", "content": "Yes."}] * 4,
        "tools": [RESPONSES_TOOL],
    },
    "many plain arguments": lambda: {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}], "type": "message"}],
        "include": ["reasoning.encrypted_content"],
        "instructions": "Answer.",
        "prompt": {"id": "p", "variables": {"a": "b", "c": {"type": "input_text", "text": "t"}}},
        "reasoning": {"effort": "low", "summary": "auto"},
        "temperature": 0.1,
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}, "verbosity": "low"},
        "tool_choice": {"type": "function", "name": "look"},
        "tools": [RESPONSES_TOOL, {"type": "web_search"}, {"type": "file_search", "vector_store_ids": ["v"]}],
    },
    "an answer's items": lambda: {
        "input": [USER, *ITEMS, {"type": "function_call_output", "call_id": "1", "output": "b"}]
    },
    "input of a generator": lambda: {"input": (message for message in [USER])},
    "a tool of a model": lambda: {"input": "a", "tools": [openai.pydantic_function_tool(Ticket)]},
    "a format of a model": lambda: {"input": "a", "text_format": Ticket},
    "a format of a model and one of text": lambda: {"input": "a", "text_format": Ticket, "text": {"verbosity": "low"}},
    "two formats": lambda: {"input": "a", "text_format": Ticket, "text": {"format": {"type": "text"}}},
    "extra body": lambda: {"input": "a", "extra_body": {"top_k": 4}},
    "no input": dict,
    "not given": lambda: {"input": [{**USER, "type": NOT_GIVEN}], "reasoning": {"effort": omit}},
    "NaN": lambda: {"input": "a", "top_p": float("nan")},
    "an enumeration": lambda: {"input": [{"role": "user", "content": Colour.RED}]},
}

# What these two add is the same for all bodies: that they come to `create()`.
STREAMED = {
    "a conversation", "many plain arguments", "messages of a generator", "an answer's message", "an answer's items",
    "a tool of a model", "a model as a format", "a format of a model", "NaN", "no messages", "no input",
}  # fmt: skip
CALLS = [
    pytest.param(endpoint, method, call, id=f"{endpoint} {method} {name}")
    for endpoint, calls in (("chat", CHAT), ("responses", RESPONSES))
    for name, call in calls.items()
    for method in ("create", "parse", *(("create streamed", "stream") if name in STREAMED else ()))
]


def of(client: Any, endpoint: str) -> Any:
    return client.chat.completions if endpoint == "chat" else client.responses


def outcome_of(server: Provider, run: Callable[[], str]) -> tuple[str, list[tuple[str, bytes]]]:
    """What came back or was raised, and what the provider was sent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pydantic's about values that are not of their type, in both
        try:
            answer = run()
        except Exception as error:  # noqa: BLE001 - whatever it is, it has to be the same
            cause = error.__cause__
            answer = f"{type(error).__name__}: {error} ({type(cause).__name__}: {cause})"
    return answer, server.sent()


def made(client: Any, endpoint: str, method: str, call: Call) -> str:
    resource, arguments = of(client, endpoint), {"model": "m", **call()}
    if method == "stream":
        with resource.stream(**arguments) as events:
            return "".join(event.type for event in events)
    if method == "create streamed":
        with resource.create(**arguments, stream=True) as chunks:
            return "".join(chunk.model_dump_json() for chunk in chunks)
    answer = getattr(resource, method)(**arguments)
    return answer.model_dump_json()  # type: ignore[no-any-return]


@pytest.fixture(scope="module", params=["sync", "async"])
def clients(request: pytest.FixtureRequest, running_server: Provider) -> Iterator[tuple[Any, Any]]:
    form = Form(request.param)
    with (
        form.make(openai, **running_server.arguments) as stock,
        form.make(fastlane, **running_server.arguments) as ours,
    ):
        yield stock, ours
    form.close()


@pytest.mark.parametrize(("endpoint", "method", "call"), CALLS)
def test_call_sends_and_raises_what_the_stock_clients_does(
    server: Provider, clients: tuple[Any, Any], endpoint: str, method: str, call: Call
) -> None:
    stock, ours = (
        outcome_of(server, lambda client=client: made(client, endpoint, method, call))  # type: ignore[misc]
        for client in clients
    )

    assert ours == stock


def add_to_bodies(owner: Any, name: str) -> None:
    """Have a method of a class or of an object add to the body that it is given."""
    stock = getattr(owner, name)

    def method(*given: Any, **more: Any) -> Any:
        options = (one.json_data for one in (*given, *more.values()) if hasattr(one, "json_data"))
        body = more.get("body") or next(options)
        body["messages"].insert(0, {"role": "system", "content": "be brief"})
        body["user"] = "me"
        return stock(*given, **more)

    setattr(owner, name, method)


@pytest.mark.parametrize(
    "method", ["post of a subclass", "request of a subclass", "request of the client", "_post of the resource"]
)
def test_body_changed_by_the_application_is_sent(server: Provider, method: str) -> None:
    name, _, owner = method.partition(" of ")
    sent = []
    for kind in (openai.OpenAI, fastlane.OpenAI):
        made: Any = type("Own", (kind,), {}) if owner == "a subclass" else kind
        if owner == "a subclass":
            add_to_bodies(made, name)
        with made(**server.arguments) as client:
            if owner != "a subclass":
                add_to_bodies(client if owner == "the client" else client.chat.completions, name)
            for _ in range(3):
                client.chat.completions.create(model="m", messages=[{"role": "user", "content": "?"}])
        sent.append(server.sent())

    assert sent[1] == sent[0]
    assert all(b"be brief" in body for _, body in sent[1])
