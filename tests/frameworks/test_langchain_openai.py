"""LangChain talks through fastlane: `ChatOpenAI` with all four of its clients handed in."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

import fastlane
from tests.frameworks.lanes import LONG, MODEL, PLAYS, QUESTION, STOCK, WEATHER, Lane, River, get_weather, is_river


def chat(lane: Lane, **settings: Any) -> Any:
    client, async_client = lane.client, lane.async_client
    return ChatOpenAI(
        model=lane.model,
        client=client.chat.completions,
        async_client=async_client.chat.completions,
        root_client=client,
        root_async_client=async_client,
        **settings,
    )


def test_unstreamed_call(lane: Lane) -> None:
    model = chat(lane)
    for _ in range(3):
        assert model.invoke(QUESTION).content == QUESTION
    lane.went(3)


def test_streamed_call(lane: Lane) -> None:
    model = chat(lane)
    for _ in range(3):
        pieces = [chunk.content for chunk in model.stream(QUESTION)]
        assert "".join(pieces) == QUESTION
        assert len(pieces) > 3
    lane.went(3, streams=3)


@pytest.mark.parametrize("responses", [False, True])
def test_tool_loop(lane: Lane, responses: bool) -> None:
    model = chat(lane, use_responses_api=responses).bind_tools([get_weather])
    messages: list[Any] = [HumanMessage("What is the weather like?")]
    asked = model.invoke(messages)
    (call,) = asked.tool_calls
    assert call["name"] == "get_weather"
    messages += [asked, ToolMessage(get_weather(**call["args"]), tool_call_id=call["id"])]
    assert model.invoke(messages).text == WEATHER
    lane.went(2)


@pytest.mark.asyncio
async def test_streamed_tool_loop_async(lane: Lane) -> None:
    model = chat(lane).bind_tools([get_weather])
    messages: list[Any] = [HumanMessage("What is the weather like?")]
    asked: Any = None
    async for chunk in model.astream(messages):
        asked = chunk if asked is None else asked + chunk
    (call,) = asked.tool_calls
    messages += [asked, ToolMessage(get_weather(**call["args"]), tool_call_id=call["id"])]
    assert "".join([chunk.content async for chunk in model.astream(messages)]) == WEATHER
    lane.went(2, streams=2)


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output(lane: Lane, method: str) -> None:
    river = chat(lane).with_structured_output(River, method=method).invoke(QUESTION)
    assert isinstance(river, River)
    assert is_river(river)
    lane.went(1, structured=True)


def test_responses_endpoint(lane: Lane) -> None:
    model = chat(lane, use_responses_api=True)
    assert model.invoke(QUESTION).text == QUESTION
    assert "".join(chunk.text for chunk in model.stream(QUESTION)) == QUESTION
    lane.went(2, streams=1)


def test_long_prompt_goes_encoded(lane: Lane) -> None:
    for _ in range(3):
        chat(lane).invoke([("system", LONG), ("human", QUESTION)])
    lane.went(3)
    assert any(each.content_encoding == "gzip" for each in lane.answered) is (lane.kind == PLAYS)


def test_embeddings_endpoint(lane: Lane) -> None:
    embeddings: Any = OpenAIEmbeddings(
        client=lane.client.embeddings, async_client=lane.async_client.embeddings, check_embedding_ctx_length=False
    )
    assert len(embeddings.embed_query("river")) > 100
    assert [each.endpoint for each in lane.reported] == ([] if lane.kind == STOCK else ["/embeddings"])


@pytest.mark.asyncio
async def test_urgency_reaches_the_call(lane: Lane) -> None:
    with fastlane.urgency("background"):
        await chat(lane).ainvoke(QUESTION)
    lane.went(1)
    levels = [each.urgency.urgency for each in lane.reported if each.urgency is not None]
    assert levels == (["background"] if lane.kind == PLAYS else [])


def test_client_without_its_parts_is_not_used(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("OPENAI_BASE_URL", lane.emulator.base_url)
    # LangChain makes clients of its own, whatever the application's is: the page says so.
    ChatOpenAI(model=MODEL, root_client=lane.client).invoke(QUESTION)
    assert len(lane.answered) == 1
    assert lane.reported == []
