"""Haystack talks through fastlane: the `client` and `async_client` of a generator, before it is warmed up."""

from __future__ import annotations

from typing import Any

import pytest
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret

from tests.frameworks.lanes import QUESTION, WEATHER, Lane, River, get_weather, is_river

MESSAGES = [ChatMessage.from_user(QUESTION)]


def generator(lane: Lane, **settings: Any) -> Any:
    made = OpenAIChatGenerator(model=lane.model, api_key=Secret.from_token("none"), **settings)
    made.client, made.async_client = lane.client, lane.async_client
    return made


def test_unstreamed_call(lane: Lane) -> None:
    for _ in range(3):
        (reply,) = generator(lane).run(MESSAGES)["replies"]
        assert reply.text == QUESTION
    lane.went(3)


@pytest.mark.asyncio
async def test_unstreamed_async_call(lane: Lane) -> None:
    (reply,) = (await generator(lane).run_async(MESSAGES))["replies"]
    assert reply.text == QUESTION
    lane.went(1)


def test_streamed_call(lane: Lane) -> None:
    pieces: list[str] = []
    generator(lane, streaming_callback=lambda chunk: pieces.append(chunk.content)).run(MESSAGES)
    assert "".join(pieces) == QUESTION
    lane.went(1, streams=1)


def test_tool_loop(lane: Lane) -> None:
    tool = create_tool_from_function(get_weather)
    chat = generator(lane, tools=[tool])
    messages = [ChatMessage.from_user("What is the weather like?")]
    (asked,) = chat.run(messages)["replies"]
    (call,) = asked.tool_calls
    messages += [asked, ChatMessage.from_tool(tool.invoke(**call.arguments), origin=call)]
    (answer,) = chat.run(messages)["replies"]
    assert answer.text == WEATHER
    lane.went(2)


def test_structured_output(lane: Lane) -> None:
    (reply,) = generator(lane, generation_kwargs={"response_format": River}).run(MESSAGES)["replies"]
    assert is_river(reply.text)
    lane.went(1, structured=True)
