"""Plain arguments are not walked through, if openai's own methods are as expected and not replaced."""

from __future__ import annotations

import inspect
import logging
import sys
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Annotated, Any

import openai
import pytest
from openai._utils import PropertyInfo, _transform
from openai._utils._transform import transform
from openai.resources.chat.completions import AsyncCompletions, Completions, completions
from openai.resources.responses import AsyncResponses, Responses
from openai.types.chat import completion_create_params
from openai.types.chat.chat_completion_message import ChatCompletionMessage
from pydantic import BaseModel
from typing_extensions import TypedDict, get_type_hints

import fastlane
from fastlane import Call, Play
from fastlane.compat.resources import quick
from fastlane.decode import probes as _seams
from tests.passing import Passing
from tests.session_play import SessionPlay

MESSAGES: Any = [{"role": "user", "content": [{"type": "text", "text": "Is water wet?"}]}]
RESOURCES = (Completions, AsyncCompletions, Responses, AsyncResponses)


class Ticket(BaseModel):
    name: str


@pytest.fixture
def unwalked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have openai's walk fail."""

    def walk(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError(f"walked through {args}")

    for resource in RESOURCES:
        for name in ("create", "parse"):
            assert quick(resource, name) is not None  # whose check compares the two
    monkeypatch.setattr(_transform, "_transform_typeddict", walk)
    monkeypatch.setattr(_transform, "_async_transform_typeddict", walk)


@pytest.mark.usefixtures("unwalked")
def test_plain_arguments_are_not_walked_through(arguments: dict[str, Any]) -> None:
    answer = ChatCompletionMessage.model_validate({"role": "assistant", "content": "Yes."})
    tools = [openai.pydantic_function_tool(Ticket)]
    with openai.OpenAI(**arguments) as stock, pytest.raises(AssertionError, match="walked"):
        stock.chat.completions.create(model="m", messages=MESSAGES)
    with fastlane.OpenAI(**arguments) as client:
        client.chat.completions.create(model="m", messages=MESSAGES, temperature=0.5)
        client.chat.completions.create(model="m", messages=[*MESSAGES, answer, *MESSAGES], tools=tools)  # type: ignore[list-item]
        client.chat.completions.parse(model="m", messages=MESSAGES, response_format=Ticket, tools=tools)
        with client.chat.completions.stream(model="m", messages=MESSAGES, response_format=Ticket) as events:
            events.until_done()
        response = client.responses.create(model="m", input=MESSAGES)
        client.responses.parse(model="m", input=[*MESSAGES, *response.output], text_format=Ticket)  # type: ignore[list-item]
        with client.responses.stream(model="m", input=MESSAGES, text_format=Ticket) as response_events:
            response_events.until_done()

        assert len(client.calls) == 7


def keeping(bodies: list[Any]) -> Play:
    @dataclass(frozen=True, slots=True)
    class Keep(SessionPlay):
        def plan(self, call: Call) -> Call:
            bodies.append(call.body)
            return call

    return Keep()


@pytest.mark.parametrize("messages", [tuple(MESSAGES), iter(MESSAGES), MESSAGES], ids=["tuple", "iterator", "list"])
def test_plays_see_the_body_that_openais_walk_would_have_made(arguments: dict[str, Any], messages: Any) -> None:
    bodies: list[Any] = []
    with fastlane.OpenAI(**arguments, only_plays=[keeping(bodies)]) as client:
        client.chat.completions.create(model="m", messages=messages, stop=("a",), top_p=openai.omit)

    made = transform(
        {"messages": MESSAGES, "model": "m", "stop": ("a",)}, completion_create_params.CompletionCreateParams
    )
    assert repr(sorted(bodies[0].items())) == repr(sorted(made.items()))


def test_temporarily_patched_method_is_called(arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    stock = Completions.create
    with fastlane.OpenAI(**arguments) as client:
        for model in ("before", "between", "after"):
            with monkeypatch.context() as patch:
                if model == "between":
                    patch.setattr(
                        Completions,
                        "create",
                        lambda self, **kwargs: seen.append(kwargs["model"]) or stock(self, **kwargs),  # type: ignore[func-returns-value]
                    )
                client.chat.completions.create(model=model, messages=MESSAGES)

    assert seen == ["between"]


@pytest.mark.parametrize("made_first", [True, False])
def test_object_that_passes_for_openais_method_is_called(
    arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch, made_first: bool
) -> None:
    seen: list[str] = []
    passing: Any = Passing(Completions.create, lambda _, **options: seen.append(options["model"]))
    assert isinstance(passing, FunctionType)
    if not made_first:
        monkeypatch.setattr(Completions, "create", passing)
    with fastlane.OpenAI(**arguments) as client:
        if made_first:
            client.chat.completions.create(model="before", messages=MESSAGES)
            monkeypatch.setattr(Completions, "create", passing)
        client.chat.completions.create(model="m", messages=MESSAGES)

    assert seen == ["m"]


def test_patched_openai_helper_is_called(arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    with fastlane.OpenAI(**arguments) as client:
        client.chat.completions.create(model="m", messages=MESSAGES)
        monkeypatch.setattr(completions, "validate_response_format", seen.append)
        client.chat.completions.create(model="m", messages=MESSAGES, response_format={"type": "text"})

    assert seen == [{"type": "text"}]


def test_types_that_ask_for_another_name_have_openai_walk(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Renamed = TypedDict("Renamed", {"a": Annotated[str, PropertyInfo(alias="b")]})  # noqa: UP013
    Renamed.__module__ = "openai.types.chat.renamed_param"
    module = ModuleType(Renamed.__module__)
    vars(module).update(PropertyInfo=PropertyInfo, Renamed=Renamed)
    monkeypatch.setitem(sys.modules, Renamed.__module__, module)
    monkeypatch.setattr(_seams, "_found", {})

    with caplog.at_level(logging.WARNING, "fastlane"):
        assert [quick(Completions, "create") for _ in range(3)] == [None] * 3

    assert [record.getMessage().split(" is not ")[0] for record in caplog.records] == ["openai's Completions.create()"]


def test_unexpected_create_method_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "def create(self, *, messages, model):\n    return self._post('/', body=maybe_transform([messages], None))"
    made: dict[str, Any] = {}
    exec(source, vars(completions), made)
    monkeypatch.setattr(Completions, "create", made["create"])
    monkeypatch.setattr(_seams, "_found", {})

    assert quick(Completions, "create") is None


def test_wrapped_create_keeps_signature_and_docstring(arguments: dict[str, Any]) -> None:
    with fastlane.OpenAI(**arguments) as client:
        created = client.chat.completions.create

    assert inspect.signature(created) == inspect.signature(Completions(client).create)
    assert created.__doc__ == Completions.create.__doc__
    assert get_type_hints(created)["return"] == get_type_hints(Completions.create)["return"]
