"""LlamaIndex talks through fastlane: `OpenAI(openai_client=..., async_openai_client=...)`."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAI, OpenAIResponses
from llama_index.llms.openai_like import OpenAILike, OpenAILikeResponses

from tests.frameworks.lanes import PLAYS, QUESTION, WEATHER, Lane, River, get_weather, is_river

LLMS = pytest.mark.parametrize("kind", [OpenAI, OpenAIResponses])
MESSAGES = [ChatMessage(role="user", content=QUESTION)]


# These take the name of any model, where the others take those that LlamaIndex has a list of.
OF_ANY_NAME = {OpenAI: OpenAILike, OpenAIResponses: OpenAILikeResponses}


def llm(lane: Lane, kind: Any) -> Any:
    made, settings = kind, {}
    if lane.kind == PLAYS:
        made, settings = OF_ANY_NAME[kind], {"is_chat_model": True, "is_function_calling_model": True}
    return made(
        model=lane.model, openai_client=lane.client, async_openai_client=lane.async_client, api_key="none", **settings
    )


@LLMS
def test_unstreamed_call(lane: Lane, kind: Any) -> None:
    for _ in range(3):
        assert llm(lane, kind).chat(MESSAGES).message.content == QUESTION
    lane.went(3)


@LLMS
def test_streamed_call(lane: Lane, kind: Any) -> None:
    pieces = [each.delta for each in llm(lane, kind).stream_chat(MESSAGES)]
    assert "".join(piece for piece in pieces if piece) == QUESTION
    lane.went(1, streams=1)


@LLMS
def test_tool_loop(lane: Lane, kind: Any) -> None:
    tool = FunctionTool.from_defaults(get_weather)
    model = llm(lane, kind)
    messages = [ChatMessage(role="user", content="What is the weather like?")]
    asked = model.chat_with_tools([tool], chat_history=messages)
    (call,) = model.get_tool_calls_from_response(asked)
    assert call.tool_name == "get_weather"
    output = str(tool(**call.tool_kwargs))
    messages += [
        asked.message,
        ChatMessage(role="tool", content=output, additional_kwargs={"tool_call_id": call.tool_id}),
    ]
    assert model.chat_with_tools([tool], chat_history=messages).message.content == WEATHER
    lane.went(2)


@LLMS
@pytest.mark.asyncio
async def test_agent_run(lane: Lane, kind: Any) -> None:
    from llama_index.core.agent.workflow import FunctionAgent

    agent = FunctionAgent(tools=[FunctionTool.from_defaults(get_weather)], llm=llm(lane, kind))
    assert str(await agent.run("What is the weather like?")) == WEATHER
    lane.went(2, streams=2)


@LLMS
def test_structured_output(lane: Lane, kind: Any) -> None:
    river = llm(lane, kind).as_structured_llm(River).chat(MESSAGES).raw
    assert isinstance(river, River)
    assert is_river(river)
    lane.went(1, structured=True)
