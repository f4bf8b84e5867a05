"""LiteLLM talks through fastlane: `completion(client=...)`."""

from __future__ import annotations

import json
from typing import Any

import litellm
import pytest

from tests.frameworks.lanes import QUESTION, STOCK, WEATHER, Lane, River, get_weather, is_river

MESSAGES: Any = [{"role": "user", "content": QUESTION}]
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
]


def settings(lane: Lane, **more: Any) -> dict[str, Any]:
    return {"model": f"openai/{lane.model}", "messages": MESSAGES, **more}


def test_unstreamed_call(lane: Lane) -> None:
    for _ in range(3):
        answer: Any = litellm.completion(**settings(lane), client=lane.client)
        assert answer.choices[0].message.content == QUESTION
    lane.went(3)


def test_streamed_call(lane: Lane) -> None:
    stream: Any = litellm.completion(**settings(lane, stream=True), client=lane.client)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == QUESTION
    lane.went(1, streams=1)


def test_tool_loop(lane: Lane) -> None:
    messages = [*MESSAGES]
    asked: Any = litellm.completion(**settings(lane, messages=messages, tools=TOOLS), client=lane.client)
    message = asked.choices[0].message
    (call,) = message.tool_calls
    weather = get_weather(**json.loads(call.function.arguments))
    messages += [message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": weather}]
    answer: Any = litellm.completion(**settings(lane, messages=messages, tools=TOOLS), client=lane.client)
    assert answer.choices[0].message.content == WEATHER
    lane.went(2)


@pytest.mark.asyncio
async def test_streamed_tool_call_async(lane: Lane) -> None:
    stream: Any = await litellm.acompletion(**settings(lane, tools=TOOLS, stream=True), client=lane.async_client)
    built: Any = litellm.stream_chunk_builder([chunk async for chunk in stream])
    (call,) = built.choices[0].message.tool_calls
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments)
    lane.went(1, streams=1)


def test_structured_output(lane: Lane) -> None:
    answer: Any = litellm.completion(**settings(lane, response_format=River), client=lane.client)
    assert is_river(answer.choices[0].message.content)
    lane.went(1, structured=True)


def test_provider_error_is_raised(lane: Lane) -> None:
    lane.emulator.set_faults("status=401")
    with pytest.raises(litellm.AuthenticationError):
        litellm.completion(**settings(lane), client=lane.client)
    lane.went(1, refused=1)


def test_embedding_call(lane: Lane) -> None:
    answer: Any = litellm.embedding(model="openai/text-embedding-3-small", input=["river"], client=lane.client)
    assert len(answer.data[0]["embedding"]) > 100
    assert [each.endpoint for each in lane.reported] == ([] if lane.kind == STOCK else ["/embeddings"])
