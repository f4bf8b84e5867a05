from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from fastlane.engine.call import Call
from fastlane.engine.collector import streamed as streamed_underneath
from fastlane.providers import facts_of
from tests.attempts.events import CHAT, COMPLETIONS, RESPONSES

MESSAGES = [{"role": "user", "content": "Name a river."}]
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": MESSAGES},
    COMPLETIONS: {"prompt": "Name a river."},
    RESPONSES: {"input": "Name a river."},
}


def call(endpoint: str = CHAT, *, of_call: dict[str, Any] | None = None, **body: Any) -> Call:
    return Call(
        call_id="c",
        endpoint=endpoint,
        origin="https://models.example:443",
        body=MappingProxyType({"model": "m", **BODIES.get(endpoint, {}), **body}),
        stream=False,
        optional=("seed",),
        changes=("something else",),
    ).replaced(**(of_call or {}))


def streamed(asked: Call, *, play: str) -> Call | None:
    underneath = streamed_underneath(asked.replaced(streams_for=play))
    return None if underneath.body is asked.body else underneath


@pytest.mark.parametrize("endpoint", [CHAT, COMPLETIONS])
def test_a_call_is_streamed_with_the_count_of_its_tokens_and_both_may_be_refused(endpoint: str) -> None:
    asked = call(endpoint)
    underneath = streamed(asked, play="Routing")
    assert underneath is not None
    assert underneath.body == {**asked.body, "stream": True, "stream_options": {"include_usage": True}}
    assert underneath.optional == ("seed", "stream", "stream_options")
    assert underneath.changes == ("something else", "Routing had the answer streamed underneath")
    assert "stream" not in asked.body


def test_a_response_tells_the_count_of_its_tokens_without_being_asked() -> None:
    underneath = streamed(call(RESPONSES), play="Hedging")
    assert underneath is not None
    assert underneath.body == {"model": "m", **BODIES[RESPONSES], "stream": True}
    assert underneath.optional == ("seed", "stream")
    assert underneath.changes[-1] == "Hedging had the answer streamed underneath"


@pytest.mark.parametrize(
    "asked",
    [
        call("/embeddings", input="Name a river."),
        call(of_call={"stream": True}),
        call(of_call={"unread": True}),
        call(stream=True),
        call(RESPONSES, background=True),
        call(RESPONSES, previous_response_id="resp_1"),
        call(RESPONSES, conversation="conv_1"),
        call(RESPONSES, store=True),
        call(store=True),
        call(modalities=["text", "audio"], audio={"voice": "alloy", "format": "wav"}),
        call(audio={"voice": "alloy", "format": "wav"}),
        call(COMPLETIONS, best_of=3),
    ],
)
def test_a_call_whose_answer_has_to_come_at_once_is_left_alone(asked: Call) -> None:
    assert streamed(asked, play="Routing") is None


@pytest.mark.parametrize(
    "asked",
    [
        call(stream=False),
        call(modalities=["text"]),
        call(store=False),
        call(RESPONSES, background=False),
        call(COMPLETIONS, best_of=1),
        call(n=2),
    ],
)
def test_any_other_is_streamed(asked: Call) -> None:
    underneath = streamed(asked, play="Routing")
    assert underneath is not None
    assert underneath.body["stream"] is True


def test_what_the_caller_says_of_the_stream_stays() -> None:
    underneath = streamed(call(stream_options={"include_obfuscation": False}), play="Routing")
    assert underneath is not None
    assert underneath.body["stream_options"] == {"include_obfuscation": False}
    assert underneath.optional == ("seed", "stream")


def test_what_a_provider_has_refused_is_not_asked_of_it_again() -> None:
    underneath = streamed(call().replaced(refused=frozenset({"stream_options"})), play="Routing")
    assert underneath is not None
    assert "stream_options" not in underneath.body
    assert streamed(call().replaced(refused=frozenset({"stream"})), play="Routing") is None


def test_a_provider_that_is_known_to_take_no_such_option_is_not_given_it() -> None:
    facts = facts_of("https://api.mistral.ai:443")
    assert facts.parameters["stream_options.include_usage"].value is False
    underneath = streamed(call(of_call={"facts": facts}), play="Routing")
    assert underneath is not None
    assert underneath.optional == ("seed", "stream")
