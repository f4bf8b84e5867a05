from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.emulator.requests import chat, content, events, stream


def post(client: httpx2.Client, body: dict[str, Any], **headers: str) -> dict[str, Any]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    answer: dict[str, Any] = client.post("/chat/completions", json=body, headers=sent).raise_for_status().json()
    return answer


def test_streamed_answer_equals_the_unstreamed_one(http: httpx2.Client) -> None:
    whole, streamed = post(http, chat()), stream(http, chat())
    first, *_, last = events(streamed)

    assert content(streamed) == whole["choices"][0]["message"]["content"]
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert last["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}


def test_usage_chunk_is_sent_last_if_requested(http: httpx2.Client) -> None:
    text = stream(http, chat(stream_options={"include_usage": True}), x_emulator_output_tokens="17")
    *chunks, last = events(text)

    assert text.endswith("data: [DONE]\n\n")
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 17
    assert all(chunk["usage"] is None for chunk in chunks)
    assert all("usage" not in chunk for chunk in events(stream(http, chat())))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(min_size=1))
def test_any_text_is_streamed_whole_and_counted(http: httpx2.Client, text: str) -> None:
    streamed = stream(http, chat(text, stream_options={"include_usage": True}), x_emulator_manner="echo,tools")
    pieces = [event for event in events(streamed) if event["choices"] and event["choices"][0]["delta"].get("content")]

    assert content(streamed) == text
    assert len(pieces) == events(streamed)[-1]["usage"]["completion_tokens"]


def test_inline_images_cost_few_tokens_and_stay_distinct(http: httpx2.Client) -> None:
    def answer(data: str) -> dict[str, Any]:
        part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
        return post(http, {"model": "m", "messages": [{"role": "user", "content": [part]}]})

    assert answer("A" * 100_000)["usage"]["prompt_tokens"] < 100
    assert answer("A")["choices"] != answer("B")["choices"]


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_limit_of_tokens_is_kept(http: httpx2.Client, name: str) -> None:
    answer = post(http, {**chat(), name: 5})

    assert answer["usage"]["completion_tokens"] == 5
    assert answer["choices"][0]["finish_reason"] == "length"


def test_stop_sequence_ends_the_text_before_it(http: httpx2.Client) -> None:
    whole = post(http, chat())["choices"][0]["message"]["content"]
    stopped = post(http, chat(stop=[whole[20:24]]))

    assert stopped["choices"][0]["message"]["content"] == whole[: whole.index(whole[20:24])]
    assert stopped["choices"][0]["finish_reason"] == "stop"


def test_n_choices_differ_and_are_all_counted(http: httpx2.Client) -> None:
    answer = post(http, chat(n=3))
    streamed = events(stream(http, chat(n=3)))

    assert len({choice["message"]["content"] for choice in answer["choices"]}) == 3
    assert answer["usage"]["completion_tokens"] == 3 * 64
    assert {choice["index"] for event in streamed for choice in event["choices"]} == {0, 1, 2}


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "look_up"}}])
def test_forced_tool_is_called_with_valid_arguments(http: httpx2.Client, choice: object) -> None:
    schema = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]}
    tools = [{"type": "function", "function": {"name": "look_up", "parameters": schema}}]
    answer = post(http, chat(tools=tools, tool_choice=choice))
    streamed = events(stream(http, chat(tools=tools, tool_choice=choice)))

    call = answer["choices"][0]["message"]["tool_calls"][0]
    deltas = [
        part for event in streamed for choice_ in event["choices"] for part in choice_["delta"].get("tool_calls", ())
    ]
    assert json.loads(call["function"]["arguments"])["city"] in ("Oslo", "Rome")
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    assert deltas[0]["function"]["name"] == "look_up"
    assert "".join(part["function"]["arguments"] for part in deltas) == call["function"]["arguments"]


def test_tools_are_called_only_if_forced_or_named_by_header(http: httpx2.Client) -> None:
    tools = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]

    assert post(http, chat(tools=tools))["choices"][0]["message"].get("tool_calls") is None
    assert post(http, chat(tools=tools), x_emulator_tool_call="look_up")["choices"][0]["message"]["tool_calls"]


@pytest.mark.parametrize(("separator", "interleaves"), [(",", False), ("&", True)])
def test_several_tools_are_called_in_one_answer(http: httpx2.Client, separator: str, interleaves: bool) -> None:
    city = {"enum": ["Oslo in Norway", "Rome in Italy"]}
    schema = {"type": "object", "properties": {"city": city}, "required": ["city"]}
    names = ["look_up", "book", "fly"]
    tools = [{"type": "function", "function": {"name": name, "parameters": schema}} for name in names]
    named = {"x_emulator_tool_call": separator.join(names)}
    calls = post(http, chat(tools=tools), **named)["choices"][0]["message"]["tool_calls"]
    deltas = [
        choice["delta"] for event in events(stream(http, chat(tools=tools), **named)) for choice in event["choices"]
    ]
    owners = [part["index"] for delta in deltas for part in delta.get("tool_calls", ())]

    assert [call["function"]["name"] for call in calls] == names
    assert len({call["id"] for call in calls}) == 3
    assert {json.loads(call["function"]["arguments"])["city"][:4] for call in calls} <= {"Oslo", "Rome"}
    assert (owners != sorted(owners)) == interleaves


def test_reasoning_comes_first_and_is_counted(http: httpx2.Client) -> None:
    body = chat(reasoning_effort="low", stream_options={"include_usage": True})
    chunks = events(stream(http, body))

    kinds = [next(iter(event["choices"][0]["delta"]), None) for event in chunks if event["choices"]]
    assert kinds == ["role", *["reasoning_content"] * 32, *["content"] * 64, None]
    assert chunks[-1]["usage"]["completion_tokens_details"]["reasoning_tokens"] == 32
    assert chunks[-1]["usage"]["completion_tokens"] == 96
    without = post(http, chat(reasoning_effort="none"))
    assert without["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0


def test_json_answer_is_padded_to_requested_tokens(http: httpx2.Client) -> None:
    answer = post(http, chat(response_format={"type": "json_object"}), x_emulator_output_tokens="50")

    assert answer["usage"]["completion_tokens"] == 50
    assert isinstance(json.loads(answer["choices"][0]["message"]["content"]), dict)


def test_legacy_completion_stream_matches_unstreamed_answer(http: httpx2.Client) -> None:
    body = {"model": "m", "prompt": "Once", "max_tokens": 6}
    whole = http.post("/completions", json=body).json()
    text = http.post("/completions", json={**body, "stream": True, "stream_options": {"include_usage": True}}).text

    streamed = "".join(choice["text"] for event in events(text) for choice in event["choices"])
    assert streamed == whole["choices"][0]["text"]
    assert events(text)[-1]["usage"] == whole["usage"]
