from __future__ import annotations

import enum
import json
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

import openai
import pytest
from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass

from fastlane import BoundedOutput
from tests.call_peer import CallPeer
from tests.plays.bounded_output import answers as sse
from tests.plays.bounded_output.answers import MESSAGES, bounded, output_of, streamed, whole


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


class Plain(BaseModel):
    colour: Colour
    size: Literal["small", "large"]
    count: int = Field(ge=0, le=9)
    share: float = 0.5
    sure: bool = False
    note: str | None = Field(default=None, max_length=5)
    at: datetime | None = None
    price: Decimal | None = None
    tags: list[str] = Field(default_factory=list, max_length=2)


class Named(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    kind: str = Field(alias="type")
    by: str = Field(validation_alias=AliasChoices("by", "author"))


class Lower(BaseModel):
    size: Annotated[Literal["small", "large"], BeforeValidator(str.lower)]


class Stripped(BaseModel):
    word: Annotated[str, StringConstraints(strip_whitespace=True, max_length=3)]


class Wrapped(BaseModel):
    count: int

    @model_validator(mode="before")
    @classmethod
    def unwrap(cls, value: Any) -> Any:
        return value.get("result", value) if isinstance(value, dict) else value


class Cat(BaseModel):
    pet: Literal["cat"]
    lives: int


class Dog(BaseModel):
    pet: Literal["dog"]
    name: str = Field(max_length=4)


class Owner(BaseModel):
    animal: Cat | Dog = Field(discriminator="pet")


@pydantic_dataclass
class Point:
    x: int
    y: int = 0


TAKEN: list[tuple[Any, str]] = [
    (Plain, '{"colour": "red", "size": "small", "count": "3", "sure": "yes", "share": "0.25"}'),
    (Plain, '{"size": "large", "colour": "blue", "count": 3.0, "at": 1700000000, "price": "1.50", "more": {"x": [1]}}'),
    (Named, '{"kind": "a", "author": "b"}'),
    (Lower, '{"size": "SMALL"}'),
    (Stripped, '{"word": "   abc     "}'),
    (Wrapped, '{"result": {"count": 3}}'),
    (Owner, '{"animal": {"pet": "cat", "lives": "9", "colour": "red"}}'),
    (Point, '{"x": "1", "z": 2}'),
]
REFUSED: list[tuple[Any, str, str]] = [
    (Plain, '{"colour": "green", "size": "small", "count": 3, "note": null}', "colour"),
    (Plain, '{"colour": "red", "size": "small", "count": 3, "note": "far too long to be read"}', "note"),
    (Plain, '{"colour": "red", "size": "small", "count": 99, "note": null}', "count"),
    (Plain, '{"colour": "red", "size": "small", "count": 1, "tags": ["a", "b", "c", "d"], "x": 1}', "tags"),
    (Owner, '{"animal": {"pet": "cow", "lives": 9}}', "animal"),
]


def parse(client: Any, kind: Any, **more: Any) -> Any:
    return client.chat.completions.parse(model="m", messages=MESSAGES, response_format=kind, **more)


@pytest.mark.parametrize(("kind", "text"), TAKEN)
def test_answer_accepted_by_class_is_returned_despite_schema(one_peer: CallPeer, kind: Any, text: str) -> None:
    with openai.OpenAI(api_key="sk-test", base_url=f"{one_peer.url}/v1") as stock:
        one_peer.replies = [whole(text)]
        expected = parse(stock, kind).choices[0].message
    with bounded(one_peer) as client:
        one_peer.replies = [streamed(sse.streamed_text(text))] * 2
        message = parse(client, kind).choices[0].message
        raw = client.chat.completions.with_raw_response.parse(model="m", messages=MESSAGES, response_format=kind)

        assert (message.parsed, message.content) == (expected.parsed, expected.content)
        assert raw.parse().choices[0].message.parsed == expected.parsed
        # The class has not parsed an answer that is taken undecoded.
        assert output_of(client).verdict in ("valid", None)


@pytest.mark.parametrize(("kind", "text", "where"), REFUSED)
def test_answer_refused_by_its_class_raises_validation_error(
    one_peer: CallPeer, kind: Any, text: str, where: str
) -> None:
    with bounded(one_peer) as client:
        one_peer.replies = [streamed(sse.streamed_text(text, size=3))]
        with pytest.raises(ValidationError, match=where):
            parse(client, kind)
        assert output_of(client).verdict == "invalid"
        assert (output_of(client).problem or "").startswith(where)


def test_arguments_that_a_class_takes_are_handed_out(one_peer: CallPeer) -> None:
    tool = openai.pydantic_function_tool(Plain, name="file")
    arguments = '{"colour": "red", "size": "small", "count": "3", "more": 1}'
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "file", "arguments": ""}}
    pieces = [arguments[at : at + 7] for at in range(0, len(arguments), 7)]
    events = [sse.chunk(role="assistant", content=None, tool_calls=[call])]
    events += [sse.chunk(tool_calls=[{"index": 0, "function": {"arguments": piece}}]) for piece in pieces]
    events += [sse.chunk(finish="tool_calls"), sse.usage_chunk()]
    with bounded(one_peer) as client:
        one_peer.replies = [streamed(events)]
        answer = client.chat.completions.parse(model="m", messages=MESSAGES, tools=[tool])

    calls = answer.choices[0].message.tool_calls
    assert calls[0].function.parsed_arguments == Plain(colour=Colour.RED, size="small", count=3)


def test_streaming_helper_is_not_stopped_before_its_class_parses(one_peer: CallPeer) -> None:
    with bounded(one_peer) as client:
        one_peer.replies = [streamed(sse.streamed_text('{"size": "SMALL"}'))]
        with client.chat.completions.stream(model="m", messages=MESSAGES, response_format=Lower) as stream:
            answer = stream.get_final_completion()
        assert answer.choices[0].message.parsed == Lower(size="small")
        assert output_of(client).verdict is None


def test_pydantic_dataclass_answer_is_requested_again(one_peer: CallPeer) -> None:
    with bounded(one_peer, BoundedOutput(reasks=1)) as client:
        one_peer.replies = [streamed(sse.streamed_text('{"x": []}')), streamed(sse.streamed_text('{"x": 1}'))]
        assert parse(client, Point).choices[0].message.parsed == Point(1)
    assert "messages" in json.loads(one_peer.take()[1].body)
