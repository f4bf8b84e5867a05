"""Every entry point of the client, as applications write it, and what of its result is equal in every call."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pydantic

from tests.waiting import inner_of

MODEL = "fast-1"
MESSAGES: Any = [{"role": "user", "content": "Name a river."}]

# What a provider makes anew for each answer, and what depends on what it was asked before.
_NEW_EACH_TIME = frozenset({"id", "created", "created_at", "completed_at", "item_id", "obfuscation", "cached_tokens"})


class Answer(pydantic.BaseModel):
    river: str
    length_km: int


def comparable(result: Any) -> Any:
    """The types and values of a result, without what is new each time."""
    result = inner_of(result)
    if isinstance(result, pydantic.BaseModel):
        # openai's own parsed answers make pydantic warn when they are dumped.
        return type(result), _stable(result.model_dump(warnings=False))
    if isinstance(result, list | tuple):
        return [comparable(each) for each in result]
    if isinstance(result, bytes):
        return comparable(result.decode().splitlines())
    if isinstance(result, str):
        try:
            return str, _stable(json.loads(result.removeprefix("data: ")))
        except ValueError:
            return str, result
    if hasattr(result, "__dict__") and not isinstance(result, type):  # the plain objects of openai's stream helpers
        return type(result), {name: comparable(value) for name, value in vars(result).items()}
    return type(result), _stable(result)


def _stable(value: Any) -> Any:
    if isinstance(value, pydantic.BaseModel):
        return comparable(value)
    if isinstance(value, Mapping):
        return {name: _stable(each) for name, each in value.items() if name not in _NEW_EACH_TIME}
    if isinstance(value, list):
        return [_stable(each) for each in value]
    return value


def used(manager: Any, read: Callable[[Any], Any]) -> Any:
    """What is read of something within its `with`."""
    with manager as opened:
        return read(opened)


CHAT: Any = {"model": MODEL, "messages": MESSAGES}
STREAMED: Any = {**CHAT, "stream": True}
WITH_USAGE: Any = {**STREAMED, "stream_options": {"include_usage": True}, "n": 2}
RESPONSE: Any = {"model": MODEL, "input": "Name a river."}
RIVERS = ("rivers.jsonl", b'{"river": "Rhine"}\n')


def of_raw(raw: Any) -> list[Any]:
    return [raw.status_code, raw.retries_taken, raw.text, raw.parse(), raw.parse()]


def of_chat(read: Callable[[Any], Any], **given: Any) -> Callable[[Any], Any]:
    """Read the response itself, and not what openai makes of it."""
    return lambda c: used(c.chat.completions.with_streaming_response.create(**CHAT, **given), read)


def of_response(read: Callable[[Any], Any], **given: Any) -> Callable[[Any], Any]:
    return lambda c: used(c.responses.with_streaming_response.create(**RESPONSE, **given), read)


def joined(response: Any) -> bytes:
    return b"".join(response.iter_bytes())


ENTRIES: dict[str, Callable[[Any], Any]] = {
    "chat": lambda c: c.chat.completions.create(**CHAT),
    "chat_with_options": lambda c: c.with_options(max_retries=0).chat.completions.create(**CHAT),
    "chat_streamed": lambda c: list(c.chat.completions.create(**STREAMED)),
    "chat_streamed_with_usage": lambda c: used(c.chat.completions.create(**WITH_USAGE), list),
    "chat_stream_helper": lambda c: used(
        c.chat.completions.stream(**CHAT), lambda stream: [list(stream), stream.get_final_completion()]
    ),
    "chat_stream_helper_of_a_type": lambda c: used(
        c.chat.completions.stream(**CHAT, response_format=Answer), lambda stream: stream.get_final_completion()
    ),
    "chat_parse": lambda c: c.chat.completions.parse(**CHAT, response_format=Answer),
    "chat_raw": lambda c: of_raw(c.chat.completions.with_raw_response.create(**CHAT)),
    "chat_raw_parse": lambda c: c.chat.completions.with_raw_response.parse(**CHAT, response_format=Answer).parse(),
    "chat_raw_streamed": lambda c: list(c.chat.completions.with_raw_response.create(**STREAMED).parse()),
    "chat_response_parsed": of_chat(lambda response: [response.status_code, response.parse()]),
    "chat_response_read": of_chat(lambda response: response.read()),
    "chat_response_bytes": of_chat(joined),
    "chat_response_streamed_lines": of_chat(lambda response: list(response.iter_lines()), stream=True),
    "chat_response_streamed_bytes": of_chat(joined, stream=True),
    "chat_response_streamed_parsed": of_chat(lambda response: list(response.parse()), stream=True),
    "responses": lambda c: c.responses.create(**RESPONSE),
    "responses_streamed": lambda c: list(c.responses.create(**RESPONSE, stream=True)),
    "responses_stream_helper": lambda c: used(
        c.responses.stream(**RESPONSE), lambda stream: [list(stream), stream.get_final_response()]
    ),
    "responses_parse": lambda c: c.responses.parse(**RESPONSE, text_format=Answer),
    "responses_raw": lambda c: c.responses.with_raw_response.create(**RESPONSE).parse(),
    "responses_response_parsed": of_response(lambda response: response.parse()),
    "responses_response_streamed_lines": of_response(lambda response: list(response.iter_lines()), stream=True),
    "completions": lambda c: c.completions.create(model=MODEL, prompt="Name a river."),
    "completions_streamed": lambda c: list(c.completions.create(model=MODEL, prompt="Name a river.", stream=True)),
    "embeddings": lambda c: c.embeddings.create(model=MODEL, input=["Rhine", "Elbe"], dimensions=8),
    "models_list": lambda c: [c.models.list()],
    "models_iterated": lambda c: list(c.models.list()),
    "models_retrieve": lambda c: c.models.retrieve(MODEL),
    "files_create": lambda c: c.files.create(file=RIVERS, purpose="fine-tune"),
    "post": lambda c: c.post("/chat/completions", cast_to=object, body=CHAT),
}


# For tests that start tasks


async def async_chat(client: Any) -> Any:
    return await client.chat.completions.create(model=MODEL, messages=MESSAGES)


async def async_chat_streamed(client: Any) -> Any:
    return [chunk async for chunk in await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)]
