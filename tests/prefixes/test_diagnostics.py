from __future__ import annotations

from types import SimpleNamespace
from typing import Any, get_args

import pytest
from openai.types.responses import Response, ResponseCompletedEvent
from openai.types.responses.response import PromptCacheDiagnosticsCacheMiss

import fastlane
from fastlane.plays.prompt_cache.prefixes._diagnostics import meaning
from fastlane.protocol.cache_reasons import cache_miss_reason
from fastlane.records.prompt import DriftKind

REASONS = get_args(PromptCacheDiagnosticsCacheMiss.model_fields["reason"].annotation)


def response(diagnostics: Any) -> dict[str, Any]:
    return {
        "id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": [], "tools": [],
        "tool_choice": "auto", "parallel_tool_calls": True, "prompt_cache_diagnostics": diagnostics,
    }  # fmt: skip


def missed(reason: str) -> dict[str, Any]:
    return {"type": "cache_miss", "reason": reason, "cache_missed_tokens": 900}


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_that_openai_knows_is_read_and_understood(reason: str) -> None:
    answer = Response.model_validate(response(missed(reason)))

    assert cache_miss_reason(answer) == reason
    said = meaning(reason)
    assert said is not None
    assert said.kind in get_args(DriftKind)


def test_a_reason_is_read_from_a_mapping_and_from_what_a_stream_ends_with() -> None:
    plain = response(missed("tools_changed"))
    event = ResponseCompletedEvent.model_validate(
        {"type": "response.completed", "sequence_number": 3, "response": plain}
    )

    assert cache_miss_reason(plain) == "tools_changed"
    assert cache_miss_reason(event) == "tools_changed"
    assert cache_miss_reason({"type": "response.completed", "response": plain}) == "tools_changed"


@pytest.mark.parametrize(
    "answer",
    [
        {"diagnostics": {"cache_miss_reason": {"type": "system_changed", "cache_missed_input_tokens": 7}}},
        {"diagnostics": {"cache_miss_reason": "system_changed"}},
        {"cache_miss_reason": {"type": "system_changed"}},
        SimpleNamespace(diagnostics=SimpleNamespace(cache_miss_reason=SimpleNamespace(type="system_changed"))),
    ],
)
def test_the_other_form_of_a_reason_is_read_too(answer: Any) -> None:
    assert cache_miss_reason(answer) == "system_changed"
    assert meaning("system_changed") is not None


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {},
        "text",
        17,
        response(None),
        response({"type": "cache_hit"}),
        response({"type": "unavailable"}),
        response({"type": "comparison_response_not_found"}),
        response({"type": "cache_miss"}),
        response(missed("a whole sentence, perhaps of the prompt")),
        response(missed("x" * 65)),
        {"diagnostics": {"cache_miss_reason": {"type": "previous_message_not_found"}}},
        {"diagnostics": {"cache_miss_reason": 3}},
        {"diagnostics": []},
        {"response": {"response": response(missed("tools_changed"))}},
    ],
)
def test_what_gives_no_reason_is_no_reason(answer: Any) -> None:
    assert cache_miss_reason(answer) is None


def test_an_answer_that_cannot_be_read_is_no_error() -> None:
    class Broken:
        @property
        def prompt_cache_diagnostics(self) -> Any:
            raise RuntimeError

    assert cache_miss_reason(Broken()) is None


def test_a_word_that_nobody_knows_is_passed_on_but_means_nothing() -> None:
    assert cache_miss_reason(response(missed("moon_phase_changed"))) == "moon_phase_changed"
    assert meaning("moon_phase_changed") is None
    assert meaning(None) is None


# Over the wire


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.asyncio
async def test_a_response_says_by_itself_why_it_read_nothing(
    arguments: dict[str, Any], stream: bool, asynchronous: bool
) -> None:
    # No other test's prompt, which the provider may remember.
    policy = f"{stream} {asynchronous}. " + "Two bags of up to 23 kg are free of charge. " * 150
    asked: dict[str, Any] = {"model": "m", "instructions": policy, "input": "Two bags?"}
    again = {**asked, "reasoning": {"effort": "high"}, "stream": stream}
    play = fastlane.PromptCache(key=False)
    if asynchronous:
        async with fastlane.AsyncOpenAI(**arguments, only_plays=[play], strict=True) as client:
            earlier = await client.responses.create(**asked)
            answer = await client.responses.create(**again, extra_body=compared_with(earlier))
            if stream:
                async for _ in answer:
                    pass
            seen = client.calls[-1].prompt_cache
    else:
        with fastlane.OpenAI(**arguments, only_plays=[play], strict=True) as other:
            earlier = other.responses.create(**asked)
            answer = other.responses.create(**again, extra_body=compared_with(earlier))
            if stream:
                for _ in answer:
                    pass
            seen = other.calls[-1].prompt_cache

    assert seen is not None
    assert seen.cached_tokens == 0
    assert seen.drift is not None
    assert seen.drift.provider_reason == "reasoning_effort_changed"
    assert (seen.drift.kind, seen.drift.path) == ("changed_parameter", "reasoning.effort")


def compared_with(response: Any) -> dict[str, Any]:
    return {"prompt_cache_options": {"comparison_response_id": response.id}}
