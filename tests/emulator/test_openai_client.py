from __future__ import annotations

import ssl
from enum import Enum
from typing import Any, Literal

import httpx2
import openai
import pydantic
import pytest

from fastlane.emulator import Emulator

TOOL = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


class Urgency(Enum):
    LOW = "low"
    HIGH = "high"


class Part(pydantic.BaseModel):
    name: str
    amount: int
    parts: list[Part] = []


class Ticket(pydantic.BaseModel):
    category: Literal["billing", "shipping"]
    confidence: float
    urgency: Urgency
    part: Part
    other: Part | None
    tags: list[str]
    reference: int | str


def test_parse_returns_the_requested_model(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(
        model="m", messages=[{"role": "user", "content": "x"}], response_format=Ticket
    )
    response = client.responses.parse(model="m", input="x", text_format=Ticket)

    assert isinstance(answer.choices[0].message.parsed, Ticket)
    assert isinstance(response.output_parsed, Ticket)


def test_chat_stream_accumulates_to_a_tool_call(client: openai.OpenAI) -> None:
    tools: Any = [{"type": "function", "function": {"name": "look_up", "parameters": TOOL, "strict": True}}]
    with client.chat.completions.stream(
        model="m", messages=[{"role": "user", "content": "x"}], tools=tools, tool_choice="required"
    ) as stream:
        final = stream.get_final_completion()

    calls = final.choices[0].message.tool_calls
    assert calls is not None
    assert isinstance(calls[0].function.parsed_arguments, dict)


def test_responses_stream_the_events_in_openais_order(client: openai.OpenAI) -> None:
    with client.responses.create(model="m", input="x", stream=True) as stream:
        events = list(stream)
    kinds = [event.type for event in events]

    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * 64,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))


@pytest.mark.parametrize("reasoning", [None, {"effort": "low"}])
@pytest.mark.parametrize("forced", [True, False])
def test_streamed_response_ends_as_the_whole_one(client: openai.OpenAI, reasoning: Any, forced: bool) -> None:
    asked: dict[str, Any] = {"model": "m", "input": "x", "reasoning": reasoning, "instructions": "Be brief."}
    if forced:
        asked |= {"tools": [{"type": "function", "name": "look_up", "parameters": TOOL, "strict": True}]}
        asked |= {"tool_choice": {"type": "function", "name": "look_up"}}
    with client.responses.stream(**asked) as stream:
        streamed = stream.get_final_response()
    whole = client.responses.create(**asked)

    assert [item.type for item in whole.output] == [
        *(["reasoning"] if reasoning else []),
        "function_call" if forced else "message",
    ]
    assert streamed.output_text == whole.output_text
    assert streamed.usage == whole.usage
    assert whole.usage is not None
    assert whole.usage.output_tokens_details.reasoning_tokens == (32 if reasoning else 0)


def test_response_cut_at_its_limit_is_incomplete(client: openai.OpenAI) -> None:
    with client.responses.create(model="m", input="x", stream=True, max_output_tokens=4) as stream:
        *_, last = stream
    whole = client.responses.create(model="m", input=[{"role": "user", "content": "x"}], max_output_tokens=4)

    assert last.type == "response.incomplete"
    assert whole.status == "incomplete"
    assert whole.incomplete_details is not None
    assert whole.incomplete_details.reason == "max_output_tokens"


def test_embeddings_are_unit_vectors_equal_in_both_encodings(client: openai.OpenAI) -> None:
    packed = client.embeddings.create(model="e", input=["a", "b"])
    plain = client.embeddings.create(model="e", input="a", encoding_format="float")

    assert packed.data[0].embedding == pytest.approx(plain.data[0].embedding)
    assert packed.data[0].embedding != packed.data[1].embedding
    assert sum(value * value for value in plain.data[0].embedding) == pytest.approx(1, rel=1e-3)
    assert len(client.embeddings.create(model="e", input="a", dimensions=8).data[0].embedding) == 8
    assert packed.usage.prompt_tokens == 2


def test_bad_embeddings_are_refused(client: openai.OpenAI) -> None:
    bad: tuple[Any, ...] = (
        {"input": []},
        {"input": [{}]},
        {"input": "a", "dimensions": -1},
        {"input": "a", "model": 3},
    )
    for arguments in bad:
        with pytest.raises(openai.BadRequestError):
            client.embeddings.create(**{"model": "e", **arguments})


def test_models_are_listed_and_found(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["instant"]
    assert client.models.retrieve("any/model").id == "any/model"


def test_azures_paths_answer_likewise(emulator: Emulator, trust: ssl.SSLContext) -> None:
    with openai.AzureOpenAI(
        azure_endpoint=emulator.base_url.removesuffix("/v1"),
        api_key="any",
        api_version="2024-10-21",
        http_client=httpx2.Client(http2=True, verify=trust),
    ) as client:
        answer = client.chat.completions.create(model="deployed", messages=[{"role": "user", "content": "x"}])
        response = client.responses.create(model="deployed", input="x")

    assert answer.model == response.model == "deployed"
    assert [record.path.partition("?")[0] for record in emulator.log()] == [
        "/openai/deployments/deployed/chat/completions",
        "/openai/responses",
    ]


def test_background_response_is_streamed_again_from_any_event(client: openai.OpenAI) -> None:
    wishes = {"x-emulator-output-tokens": "5", "x-emulator-fault": "reset;after=3;times=1", "x-emulator-tag": "again"}
    events: list[Any] = []
    with pytest.raises(openai.APIConnectionError):
        events.extend(
            client.responses.create(model="m", input="Hi.", background=True, stream=True, extra_headers=wishes)
        )
    response_id = events[0].response.id
    again = list(client.responses.retrieve(response_id, stream=True))

    assert [event.sequence_number for event in again] == list(range(len(again)))
    assert again[: len(events)] == events
    assert again[-1].type == "response.completed"
    for after in (0, 6, len(again) - 1):
        rest = list(client.responses.retrieve(response_id, stream=True, starting_after=after))
        assert rest == again[after + 1 :]
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve("resp_unknown", stream=True)
