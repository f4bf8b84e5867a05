"""AutoGen talks through fastlane: `BaseOpenAIChatCompletionClient(client=...)`."""

from __future__ import annotations

from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import CreateResult, UserMessage
from autogen_ext.models.openai import BaseOpenAIChatCompletionClient

from tests.frameworks.lanes import QUESTION, WEATHER, Lane, River, get_weather, is_river

MESSAGES = [UserMessage(content=QUESTION, source="user")]
CAPABILITIES = {
    "vision": False,
    "function_calling": True,
    "json_output": True,
    "family": "unknown",
    "structured_output": True,
}


def model(lane: Lane) -> Any:
    return BaseOpenAIChatCompletionClient(
        client=lane.async_client, create_args={"model": lane.model}, model_info=CAPABILITIES
    )


@pytest.mark.asyncio
async def test_unstreamed_call(lane: Lane) -> None:
    for _ in range(3):
        assert (await model(lane).create(MESSAGES)).content == QUESTION
    lane.went(3)


@pytest.mark.asyncio
async def test_streamed_call(lane: Lane) -> None:
    seen = [each async for each in model(lane).create_stream(MESSAGES)]
    assert isinstance(seen[-1], CreateResult)
    assert "".join(each for each in seen[:-1] if isinstance(each, str)) == seen[-1].content == QUESTION
    lane.went(1, streams=1)


@pytest.mark.asyncio
async def test_tool_loop(lane: Lane) -> None:
    agent = AssistantAgent("guide", model_client=model(lane), tools=[get_weather], reflect_on_tool_use=True)
    run = await agent.run(task="What is the weather like?")
    assert run.messages[-1].content == WEATHER
    lane.went(2)


@pytest.mark.asyncio
async def test_structured_output(lane: Lane) -> None:
    assert is_river((await model(lane).create(MESSAGES, json_output=River)).content)
    lane.went(1, structured=True)
