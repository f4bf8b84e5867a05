"""Every way into the client, as an application writes it, and what of its result is equal from call to call."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pydantic

MODEL = "fast-1"
MESSAGES: Any = [{"role": "user", "content": "Name a river."}]

# What a provider makes anew for each answer, and what depends on what it was asked before.
_NEW_EACH_TIME = frozenset({"id", "created", "created_at", "completed_at", "item_id", "obfuscation", "cached_tokens"})


class Answer(pydantic.BaseModel):
    river: str
    length_km: int


SYNC: dict[str, Callable[[Any], Any]] = {}
ASYNC: dict[str, Callable[[Any], Awaitable[Any]]] = {}


def sync(entry: Callable[[Any], Any]) -> Callable[[Any], Any]:
    SYNC[entry.__name__] = entry
    return entry


def asynchronous(entry: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
    ASYNC[entry.__name__.removeprefix("async_")] = entry
    return entry


def comparable(result: Any) -> Any:
    """The types and values of a result, without what is new each time."""
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


@sync
def chat(client: Any) -> Any:
    return client.chat.completions.create(model=MODEL, messages=MESSAGES)


@asynchronous
async def async_chat(client: Any) -> Any:
    return await client.chat.completions.create(model=MODEL, messages=MESSAGES)


@sync
def chat_with_options(client: Any) -> Any:
    return client.with_options(max_retries=0).chat.completions.create(model=MODEL, messages=MESSAGES)


@asynchronous
async def async_chat_with_options(client: Any) -> Any:
    return await client.with_options(max_retries=0).chat.completions.create(model=MODEL, messages=MESSAGES)


@sync
def chat_streamed(client: Any) -> Any:
    return list(client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True))


@asynchronous
async def async_chat_streamed(client: Any) -> Any:
    return [chunk async for chunk in await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)]


@sync
def chat_streamed_with_usage(client: Any) -> Any:
    options = {"include_usage": True}
    with client.chat.completions.create(
        model=MODEL, messages=MESSAGES, stream=True, stream_options=options, n=2
    ) as stream:
        return list(stream)


@asynchronous
async def async_chat_streamed_with_usage(client: Any) -> Any:
    options = {"include_usage": True}
    async with await client.chat.completions.create(
        model=MODEL, messages=MESSAGES, stream=True, stream_options=options, n=2
    ) as stream:
        return [chunk async for chunk in stream]


@sync
def chat_stream_helper(client: Any) -> Any:
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES) as stream:
        return [list(stream), stream.get_final_completion()]


@asynchronous
async def async_chat_stream_helper(client: Any) -> Any:
    async with client.chat.completions.stream(model=MODEL, messages=MESSAGES) as stream:
        return [[event async for event in stream], await stream.get_final_completion()]


@sync
def chat_stream_helper_of_a_type(client: Any) -> Any:
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES, response_format=Answer) as stream:
        return stream.get_final_completion()


@asynchronous
async def async_chat_stream_helper_of_a_type(client: Any) -> Any:
    async with client.chat.completions.stream(model=MODEL, messages=MESSAGES, response_format=Answer) as stream:
        return await stream.get_final_completion()


@sync
def chat_parse(client: Any) -> Any:
    return client.chat.completions.parse(model=MODEL, messages=MESSAGES, response_format=Answer)


@asynchronous
async def async_chat_parse(client: Any) -> Any:
    return await client.chat.completions.parse(model=MODEL, messages=MESSAGES, response_format=Answer)


@sync
def chat_raw(client: Any) -> Any:
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES)
    return [raw.status_code, raw.retries_taken, raw.text, raw.parse(), raw.parse()]


@asynchronous
async def async_chat_raw(client: Any) -> Any:
    raw = await client.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES)
    return [raw.status_code, raw.retries_taken, raw.text, raw.parse(), raw.parse()]


@sync
def chat_raw_parse(client: Any) -> Any:
    raw = client.chat.completions.with_raw_response.parse(model=MODEL, messages=MESSAGES, response_format=Answer)
    return raw.parse()


@asynchronous
async def async_chat_raw_parse(client: Any) -> Any:
    raw = await client.chat.completions.with_raw_response.parse(model=MODEL, messages=MESSAGES, response_format=Answer)
    return raw.parse()


@sync
def chat_raw_streamed(client: Any) -> Any:
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES, stream=True)
    return [raw.status_code, list(raw.parse())]


@asynchronous
async def async_chat_raw_streamed(client: Any) -> Any:
    raw = await client.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES, stream=True)
    return [raw.status_code, [chunk async for chunk in raw.parse()]]


@sync
def chat_response_parsed(client: Any) -> Any:
    with client.chat.completions.with_streaming_response.create(model=MODEL, messages=MESSAGES) as response:
        return [response.status_code, response.parse()]


@asynchronous
async def async_chat_response_parsed(client: Any) -> Any:
    create = client.chat.completions.with_streaming_response.create
    async with create(model=MODEL, messages=MESSAGES) as response:
        return [response.status_code, await response.parse()]


@sync
def chat_response_read(client: Any) -> Any:
    with client.chat.completions.with_streaming_response.create(model=MODEL, messages=MESSAGES) as response:
        return response.read()


@asynchronous
async def async_chat_response_read(client: Any) -> Any:
    create = client.chat.completions.with_streaming_response.create
    async with create(model=MODEL, messages=MESSAGES) as response:
        return await response.read()


@sync
def chat_response_bytes(client: Any) -> Any:
    with client.chat.completions.with_streaming_response.create(model=MODEL, messages=MESSAGES) as response:
        return b"".join(response.iter_bytes())


@asynchronous
async def async_chat_response_bytes(client: Any) -> Any:
    create = client.chat.completions.with_streaming_response.create
    async with create(model=MODEL, messages=MESSAGES) as response:
        return b"".join([part async for part in response.iter_bytes()])


@sync
def chat_response_streamed_lines(client: Any) -> Any:
    create = client.chat.completions.with_streaming_response.create
    with create(model=MODEL, messages=MESSAGES, stream=True) as response:
        return list(response.iter_lines())


@asynchronous
async def async_chat_response_streamed_lines(client: Any) -> Any:
    create = client.chat.completions.with_streaming_response.create
    async with create(model=MODEL, messages=MESSAGES, stream=True) as response:
        return [line async for line in response.iter_lines()]


@sync
def chat_response_streamed_bytes(client: Any) -> Any:
    create = client.chat.completions.with_streaming_response.create
    with create(model=MODEL, messages=MESSAGES, stream=True) as response:
        return b"".join(response.iter_bytes())


@asynchronous
async def async_chat_response_streamed_bytes(client: Any) -> Any:
    create = client.chat.completions.with_streaming_response.create
    async with create(model=MODEL, messages=MESSAGES, stream=True) as response:
        return b"".join([part async for part in response.iter_bytes()])


@sync
def chat_response_streamed_parsed(client: Any) -> Any:
    create = client.chat.completions.with_streaming_response.create
    with create(model=MODEL, messages=MESSAGES, stream=True) as response:
        return list(response.parse())


@asynchronous
async def async_chat_response_streamed_parsed(client: Any) -> Any:
    create = client.chat.completions.with_streaming_response.create
    async with create(model=MODEL, messages=MESSAGES, stream=True) as response:
        return [chunk async for chunk in await response.parse()]


# Responses


@sync
def responses(client: Any) -> Any:
    return client.responses.create(model=MODEL, input="Name a river.")


@asynchronous
async def async_responses(client: Any) -> Any:
    return await client.responses.create(model=MODEL, input="Name a river.")


@sync
def responses_streamed(client: Any) -> Any:
    return list(client.responses.create(model=MODEL, input="Name a river.", stream=True))


@asynchronous
async def async_responses_streamed(client: Any) -> Any:
    return [event async for event in await client.responses.create(model=MODEL, input="Name a river.", stream=True)]


@sync
def responses_stream_helper(client: Any) -> Any:
    with client.responses.stream(model=MODEL, input="Name a river.") as stream:
        return [list(stream), stream.get_final_response()]


@asynchronous
async def async_responses_stream_helper(client: Any) -> Any:
    async with client.responses.stream(model=MODEL, input="Name a river.") as stream:
        return [[event async for event in stream], await stream.get_final_response()]


@sync
def responses_parse(client: Any) -> Any:
    return client.responses.parse(model=MODEL, input="Name a river.", text_format=Answer)


@asynchronous
async def async_responses_parse(client: Any) -> Any:
    return await client.responses.parse(model=MODEL, input="Name a river.", text_format=Answer)


@sync
def responses_raw(client: Any) -> Any:
    return client.responses.with_raw_response.create(model=MODEL, input="Name a river.").parse()


@asynchronous
async def async_responses_raw(client: Any) -> Any:
    return (await client.responses.with_raw_response.create(model=MODEL, input="Name a river.")).parse()


@sync
def responses_response_parsed(client: Any) -> Any:
    with client.responses.with_streaming_response.create(model=MODEL, input="Name a river.") as response:
        return response.parse()


@asynchronous
async def async_responses_response_parsed(client: Any) -> Any:
    async with client.responses.with_streaming_response.create(model=MODEL, input="Name a river.") as response:
        return await response.parse()


@sync
def responses_response_streamed_lines(client: Any) -> Any:
    create = client.responses.with_streaming_response.create
    with create(model=MODEL, input="Name a river.", stream=True) as response:
        return list(response.iter_lines())


@asynchronous
async def async_responses_response_streamed_lines(client: Any) -> Any:
    create = client.responses.with_streaming_response.create
    async with create(model=MODEL, input="Name a river.", stream=True) as response:
        return [line async for line in response.iter_lines()]


# The rest


@sync
def completions(client: Any) -> Any:
    return client.completions.create(model=MODEL, prompt="Name a river.")


@asynchronous
async def async_completions(client: Any) -> Any:
    return await client.completions.create(model=MODEL, prompt="Name a river.")


@sync
def completions_streamed(client: Any) -> Any:
    return list(client.completions.create(model=MODEL, prompt="Name a river.", stream=True))


@asynchronous
async def async_completions_streamed(client: Any) -> Any:
    return [part async for part in await client.completions.create(model=MODEL, prompt="Name a river.", stream=True)]


@sync
def embeddings(client: Any) -> Any:
    return client.embeddings.create(model=MODEL, input=["Rhine", "Elbe"], dimensions=8)


@asynchronous
async def async_embeddings(client: Any) -> Any:
    return await client.embeddings.create(model=MODEL, input=["Rhine", "Elbe"], dimensions=8)


@sync
def models_list(client: Any) -> Any:
    return [client.models.list()]


@asynchronous
async def async_models_list(client: Any) -> Any:
    return [await client.models.list()]


@sync
def models_iterated(client: Any) -> Any:
    return list(client.models.list())


@asynchronous
async def async_models_iterated(client: Any) -> Any:
    return [model async for model in client.models.list()]


@sync
def models_retrieve(client: Any) -> Any:
    return client.models.retrieve(MODEL)


@asynchronous
async def async_models_retrieve(client: Any) -> Any:
    return await client.models.retrieve(MODEL)


@sync
def files_create(client: Any) -> Any:
    return client.files.create(file=("rivers.jsonl", b'{"river": "Rhine"}\n'), purpose="fine-tune")


@asynchronous
async def async_files_create(client: Any) -> Any:
    return await client.files.create(file=("rivers.jsonl", b'{"river": "Rhine"}\n'), purpose="fine-tune")


@sync
def post(client: Any) -> Any:
    return client.post("/chat/completions", cast_to=object, body={"model": MODEL, "messages": MESSAGES})


@asynchronous
async def async_post(client: Any) -> Any:
    return await client.post("/chat/completions", cast_to=object, body={"model": MODEL, "messages": MESSAGES})
