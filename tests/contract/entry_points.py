"""Every way into the client, as an application writes it, and what of its result is equal from call to call."""

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


ENTRIES: dict[str, Callable[[Any], Any]] = {}


def entry_point(use: Callable[[Any], Any]) -> Callable[[Any], Any]:
    ENTRIES[use.__name__] = use
    return use


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


# Chat


@entry_point
def chat(client: Any) -> Any:
    return client.chat.completions.create(model=MODEL, messages=MESSAGES)


@entry_point
def chat_with_options(client: Any) -> Any:
    return client.with_options(max_retries=0).chat.completions.create(model=MODEL, messages=MESSAGES)


@entry_point
def chat_streamed(client: Any) -> Any:
    return list(client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True))


@entry_point
def chat_streamed_with_usage(client: Any) -> Any:
    options = {"include_usage": True}
    with client.chat.completions.create(
        model=MODEL, messages=MESSAGES, stream=True, stream_options=options, n=2
    ) as stream:
        return list(stream)


@entry_point
def chat_stream_helper(client: Any) -> Any:
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES) as stream:
        return [list(stream), stream.get_final_completion()]


@entry_point
def chat_stream_helper_of_a_type(client: Any) -> Any:
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES, response_format=Answer) as stream:
        return stream.get_final_completion()


@entry_point
def chat_parse(client: Any) -> Any:
    return client.chat.completions.parse(model=MODEL, messages=MESSAGES, response_format=Answer)


@entry_point
def chat_raw(client: Any) -> Any:
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES)
    return [raw.status_code, raw.retries_taken, raw.text, raw.parse(), raw.parse()]


@entry_point
def chat_raw_parse(client: Any) -> Any:
    raw = client.chat.completions.with_raw_response.parse(model=MODEL, messages=MESSAGES, response_format=Answer)
    return raw.parse()


@entry_point
def chat_raw_streamed(client: Any) -> Any:
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES, stream=True)
    return [raw.status_code, list(raw.parse())]


@entry_point
def chat_response_parsed(client: Any) -> Any:
    with client.chat.completions.with_streaming_response.create(model=MODEL, messages=MESSAGES) as response:
        return [response.status_code, response.parse()]


@entry_point
def chat_response_read(client: Any) -> Any:
    with client.chat.completions.with_streaming_response.create(model=MODEL, messages=MESSAGES) as response:
        return response.read()


@entry_point
def chat_response_bytes(client: Any) -> Any:
    with client.chat.completions.with_streaming_response.create(model=MODEL, messages=MESSAGES) as response:
        return b"".join(response.iter_bytes())


@entry_point
def chat_response_streamed_lines(client: Any) -> Any:
    create = client.chat.completions.with_streaming_response.create
    with create(model=MODEL, messages=MESSAGES, stream=True) as response:
        return list(response.iter_lines())


@entry_point
def chat_response_streamed_bytes(client: Any) -> Any:
    create = client.chat.completions.with_streaming_response.create
    with create(model=MODEL, messages=MESSAGES, stream=True) as response:
        return b"".join(response.iter_bytes())


@entry_point
def chat_response_streamed_parsed(client: Any) -> Any:
    create = client.chat.completions.with_streaming_response.create
    with create(model=MODEL, messages=MESSAGES, stream=True) as response:
        return list(response.parse())


# Responses


@entry_point
def responses(client: Any) -> Any:
    return client.responses.create(model=MODEL, input="Name a river.")


@entry_point
def responses_streamed(client: Any) -> Any:
    return list(client.responses.create(model=MODEL, input="Name a river.", stream=True))


@entry_point
def responses_stream_helper(client: Any) -> Any:
    with client.responses.stream(model=MODEL, input="Name a river.") as stream:
        return [list(stream), stream.get_final_response()]


@entry_point
def responses_parse(client: Any) -> Any:
    return client.responses.parse(model=MODEL, input="Name a river.", text_format=Answer)


@entry_point
def responses_raw(client: Any) -> Any:
    return client.responses.with_raw_response.create(model=MODEL, input="Name a river.").parse()


@entry_point
def responses_response_parsed(client: Any) -> Any:
    with client.responses.with_streaming_response.create(model=MODEL, input="Name a river.") as response:
        return response.parse()


@entry_point
def responses_response_streamed_lines(client: Any) -> Any:
    create = client.responses.with_streaming_response.create
    with create(model=MODEL, input="Name a river.", stream=True) as response:
        return list(response.iter_lines())


# The rest


@entry_point
def completions(client: Any) -> Any:
    return client.completions.create(model=MODEL, prompt="Name a river.")


@entry_point
def completions_streamed(client: Any) -> Any:
    return list(client.completions.create(model=MODEL, prompt="Name a river.", stream=True))


@entry_point
def embeddings(client: Any) -> Any:
    return client.embeddings.create(model=MODEL, input=["Rhine", "Elbe"], dimensions=8)


@entry_point
def models_list(client: Any) -> Any:
    return [client.models.list()]


@entry_point
def models_iterated(client: Any) -> Any:
    return list(client.models.list())


@entry_point
def models_retrieve(client: Any) -> Any:
    return client.models.retrieve(MODEL)


@entry_point
def files_create(client: Any) -> Any:
    return client.files.create(file=("rivers.jsonl", b'{"river": "Rhine"}\n'), purpose="fine-tune")


@entry_point
def post(client: Any) -> Any:
    return client.post("/chat/completions", cast_to=object, body={"model": MODEL, "messages": MESSAGES})


# For tests that start tasks


async def async_chat(client: Any) -> Any:
    return await client.chat.completions.create(model=MODEL, messages=MESSAGES)


async def async_chat_streamed(client: Any) -> Any:
    return [chunk async for chunk in await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)]
