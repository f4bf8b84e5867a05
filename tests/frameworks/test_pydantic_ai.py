"""pydantic-ai talks through fastlane: `OpenAIProvider(openai_client=...)`."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.frameworks.lanes import PLAYS, QUESTION, STOCK, WEATHER, Lane, River, get_weather, is_river

MODELS = pytest.mark.parametrize("kind", [OpenAIChatModel, OpenAIResponsesModel])


def agent(lane: Lane, kind: Any, **settings: Any) -> Any:
    return Agent(kind(lane.model, provider=OpenAIProvider(openai_client=lane.async_client)), **settings)


@MODELS
@pytest.mark.asyncio
async def test_unstreamed_async_call(lane: Lane, kind: Any) -> None:
    for _ in range(3):
        assert (await agent(lane, kind).run(QUESTION)).output == QUESTION
    lane.went(3)


@MODELS
@pytest.mark.asyncio
async def test_streamed_async_call(lane: Lane, kind: Any) -> None:
    async with agent(lane, kind).run_stream(QUESTION) as run:
        pieces = [piece async for piece in run.stream_text(delta=True, debounce_by=None)]
    assert "".join(pieces) == QUESTION
    lane.went(1, streams=1)


@MODELS
@pytest.mark.asyncio
async def test_tool_loop(lane: Lane, kind: Any) -> None:
    run = await agent(lane, kind, tools=[get_weather]).run("What is the weather like?")
    assert run.output == WEATHER
    lane.went(2)


@MODELS
@pytest.mark.asyncio
async def test_streamed_tool_loop(lane: Lane, kind: Any) -> None:
    async with agent(lane, kind, tools=[get_weather]).run_stream("What is the weather like?") as run:
        assert await run.get_output() == WEATHER
    lane.went(2, streams=2)


@MODELS
@pytest.mark.parametrize("output_mode", [ToolOutput, NativeOutput])
@pytest.mark.asyncio
async def test_structured_output(lane: Lane, kind: Any, output_mode: Any) -> None:
    run = await agent(lane, kind, output_type=output_mode(River)).run(QUESTION)
    assert is_river(run.output)
    lane.went(1, structured=True)


@MODELS
@pytest.mark.asyncio
async def test_streamed_structured_output(lane: Lane, kind: Any) -> None:
    async with agent(lane, kind, output_type=River).run_stream(QUESTION) as run:
        seen = [each async for each in run.stream_output(debounce_by=None)]
    assert is_river(seen[-1])
    lane.went(1, streams=1)


@MODELS
@pytest.mark.asyncio
async def test_provider_error_is_raised(lane: Lane, kind: Any) -> None:
    lane.emulator.set_faults("status=401")
    with pytest.raises(ModelHTTPError) as error:
        await agent(lane, kind).run(QUESTION)
    assert error.value.status_code == 401
    lane.went(1, refused=1)


@pytest.mark.asyncio
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_tool_loop_over_one_websocket(lane: Lane, streamed: bool) -> None:
    if lane.kind == PLAYS:
        pytest.skip("no play takes part in a WebSocket, and Routing's model is none that can be sent")
    settings: Any = {"openai_transport": "websocket"}
    talking = agent(lane, OpenAIResponsesModel, tools=[get_weather], model_settings=settings)
    if streamed:
        async with talking.run_stream("What is the weather like?") as run:
            assert await run.get_output() == WEATHER
    else:
        assert (await talking.run("What is the weather like?")).output == WEATHER

    log = lane.answered
    assert [each.http_version for each in log] == ["WebSocket"] * 2
    assert len({each.connection_id for each in log}) == 1
    if lane.kind != STOCK:
        assert [(each.outcome, each.transport) for each in lane.reported] == [("completed", "fastlane")] * 2
