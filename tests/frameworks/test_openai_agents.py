"""The OpenAI Agents SDK talks through fastlane: a client of a model, or of all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import agents
import pytest
from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool

from tests.frameworks.lanes import AUTO, PLAYS, QUESTION, WEATHER, Lane, River, get_weather, is_river

agents.set_tracing_disabled(True)
weather_tool = function_tool(get_weather)
MODELS = pytest.mark.parametrize("kind", [OpenAIChatCompletionsModel, OpenAIResponsesModel])


def agent(lane: Lane, kind: Any, **settings: Any) -> Any:
    return Agent(name="hydrologist", model=kind(lane.model, openai_client=lane.async_client), **settings)


@MODELS
@pytest.mark.asyncio
async def test_unstreamed_async_call(lane: Lane, kind: Any) -> None:
    for _ in range(3):
        assert (await Runner.run(agent(lane, kind), QUESTION)).final_output == QUESTION
    lane.went(3)


@MODELS
@pytest.mark.asyncio
async def test_streamed_async_call(lane: Lane, kind: Any) -> None:
    run = Runner.run_streamed(agent(lane, kind), QUESTION)
    deltas = [
        event.data.delta
        async for event in run.stream_events()
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
    ]
    assert "".join(deltas) == run.final_output == QUESTION
    lane.went(1, streams=1)


@MODELS
@pytest.mark.asyncio
async def test_tool_loop(lane: Lane, kind: Any) -> None:
    run = await Runner.run(agent(lane, kind, tools=[weather_tool]), "What is the weather like?")
    assert run.final_output == WEATHER
    lane.went(2)


@MODELS
@pytest.mark.asyncio
async def test_streamed_tool_loop(lane: Lane, kind: Any) -> None:
    run = Runner.run_streamed(agent(lane, kind, tools=[weather_tool]), "What is the weather like?")
    names = [event.name async for event in run.stream_events() if event.type == "run_item_stream_event"]
    assert names == ["tool_called", "tool_output", "message_output_created"]
    assert run.final_output == WEATHER
    lane.went(2, streams=2)


@MODELS
@pytest.mark.asyncio
async def test_structured_output(lane: Lane, kind: Any) -> None:
    run = await Runner.run(agent(lane, kind, output_type=River), QUESTION)
    assert isinstance(run.final_output, River)
    assert is_river(run.final_output)
    lane.went(1, structured=True)


@pytest.fixture(params=["responses", "chat_completions"])
def default_api(request: pytest.FixtureRequest) -> Iterator[None]:
    agents.set_default_openai_api(request.param)
    yield
    agents.set_default_openai_api("responses")


@pytest.mark.usefixtures("default_api")
@pytest.mark.asyncio
async def test_one_client_for_all_agents(lane: Lane) -> None:
    agents.set_default_openai_client(lane.async_client, use_for_tracing=False)
    if lane.kind == PLAYS:
        # Of a name by itself what stands before the slash is taken for a provider: the page says so.
        with pytest.raises(agents.exceptions.UserError, match="prefix"):
            await Runner.run(Agent(name="hydrologist", model=AUTO), QUESTION)
        return
    run = await Runner.run(Agent(name="hydrologist", model=lane.model), QUESTION)
    assert run.final_output == QUESTION
    lane.went(1)
