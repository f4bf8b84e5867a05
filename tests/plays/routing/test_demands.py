"""What a call cannot do without, and which upstream is not asked for it."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types import chat, responses

from fastlane.plays.routing.adapting import COMMON, FIELDS, HOSTED, PRIVATE, TASTES, demands_of
from fastlane.providers import ProviderFacts, facts_named
from tests.plays.facts import fact
from tests.plays.routing.adapting_models import (
    CHAT,
    MESSAGES,
    NOTHING,
    OTHER,
    OWN,
    RESPONSES,
    body,
    facts,
    model,
    unfit,
)

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
JUST_JSON = {"type": "json_object"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


def form(schema: Any = SCHEMA, *, strict: bool = True) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": strict}}


def part(kind: str, **fields: Any) -> dict[str, Any]:
    return body(messages=[*MESSAGES, {"role": "user", "content": [{"type": kind, **fields}]}])


@pytest.mark.parametrize(
    ("asked", "needs"),
    [
        (body(), set()),
        (body(tools=[TOOL]), {"tools"}),
        (body(tools=[]), set()),
        (body(functions=[{"name": "f"}]), {"tools"}),
        (body(response_format={"type": "json_object"}), {"json"}),
        (body(response_format=form()), {"json_strict"}),
        (body(response_format=form(strict=False)), {"json"}),
        (part("image_url", image_url={"url": "data:,"}), {"vision"}),
        (part("input_audio", input_audio={"data": ""}), {"audio"}),
        (part("text", text="image_url"), set()),
        (body(tools=[{"type": "custom", "custom": {"name": "f"}}]), {"tools"}),
        (body(modalities=["text", "audio"], audio={"voice": "v"}), {"audio"}),
        (body(modalities=["text"]), set()),
        (body(reasoning_effort="high"), set()),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}]}, {"vision"}),
        (
            {"input": "x", "text": {"format": {"type": "json_schema", "schema": SCHEMA, "strict": True}}},
            {"json_strict"},
        ),
        ({"input": "x", "text": {"format": {"type": "json_object"}}}, {"json"}),
        ({"input": "x", "reasoning": {"effort": "low"}}, set()),
        ({"input": "x", "reasoning": {"summary": "auto"}}, {"reasoning"}),
        ({"input": "x", "reasoning": {"generate_summary": "concise"}}, {"reasoning"}),
        ({"input": [{"type": "computer_call_output", "output": {"image_url": "data:,"}}]}, {"vision"}),
        ({"input": "x", "include": ["reasoning.encrypted_content"]}, {"reasoning"}),
    ],
)
def test_needs_follow_from_the_body(asked: dict[str, Any], needs: set[str]) -> None:
    assert demands_of(asked, RESPONSES if "input" in asked else CHAT).needs == needs


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 2},
        {"logprobs": True},
        {"top_logprobs": 3},
        {"stop": ["END"]},
        {"stop": "END"},
        {"logit_bias": {"5": 1}},
        {"tools": [TOOL]},
        {"tool_choice": "required"},
        {"response_format": {"type": "json_object"}},
        {"max_tool_calls": 1},
        {"best_of": 2},
        {"echo": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("verdict", [False, "ignored"])
def test_refused_or_ignored_field_does_not_fit(fields: dict[str, Any], verdict: Any) -> None:
    (name,) = fields
    refusing = facts(**{name: verdict})
    assert unfit(body(**fields), CHAT, OTHER, refusing) == f"takes no {name}"
    assert unfit(body(**fields), CHAT, OWN, refusing) == f"takes no {name}"
    assert unfit(body(), CHAT, OTHER, refusing) is None
    assert unfit(body(**fields), CHAT, OTHER, NOTHING) is None


ELSEWHERE = {"input": "x", "tools": [{"type": "web_search"}, {"type": "function", "name": "f"}]}
CALLERS = {"input": "x", "tools": [{"type": "custom", "name": "f"}, {"type": "function", "name": "f"}]}
UNKNOWN = {"input": "x", "tools": [{"type": "an unknown kind"}]}
IGNORING = facts(parallel_tool_calls="ignored")
LIMITLESS = facts(max_tokens=False, max_completion_tokens="ignored")
UNBOUND = ProviderFacts.model_validate({"slug": "x", "structured": {"strict": fact(False)}})


@pytest.mark.parametrize(
    ("asked", "one", "known", "why"),
    [
        (body(n=1), OTHER, facts_named("groq"), None),
        (body(n=2), OTHER, facts_named("groq"), "does not take this n"),
        (body(parallel_tool_calls=False), OTHER, IGNORING, None),
        (body(tools=[TOOL]), OTHER, IGNORING, None),
        (body(tools=[TOOL], parallel_tool_calls=False), OTHER, IGNORING, "takes no parallel_tool_calls"),
        (body(response_format=form()), OTHER, facts_named("openai"), None),
        (body(response_format=form()), OTHER, UNBOUND, "binds no answer to a schema"),
        (body(response_format=form(strict=False)), OTHER, UNBOUND, None),
        (body(response_format=form(strict=False)), OTHER, facts_named("deepseek"), "takes no json_schema"),
        (body(response_format=JUST_JSON), OTHER, facts_named("deepseek"), None),
        (body(response_format=JUST_JSON), OTHER, facts_named("gemini"), "takes no json_object"),
        (body(response_format=JUST_JSON), OTHER, facts_named("anthropic"), "takes no response_format"),
        (body(max_tokens=5), OTHER, LIMITLESS, "takes no limit of the answer's length"),
        (body(), OTHER, LIMITLESS, None),
        (body(max_completion_tokens=5), OTHER, facts(max_completion_tokens=False), None),
        (CALLERS, OTHER, NOTHING, None),
        (ELSEWHERE, OWN, NOTHING, None),
        (ELSEWHERE, OTHER, NOTHING, "is not known to take tools.web_search"),
        (ELSEWHERE, model(parameters={"tools.web_search": True}), NOTHING, None),
        (UNKNOWN, OTHER, NOTHING, "is not known to take tools of a kind of its own"),
        (body(web_search_options={}), OTHER, NOTHING, "is not known to take web_search_options"),
    ],
)
def test_body_fits_a_model_by_what_is_known_of_it(asked: Any, one: Any, known: ProviderFacts, why: str | None) -> None:
    assert unfit(asked, RESPONSES if "input" in asked else CHAT, one, known) == why


@pytest.mark.parametrize(
    ("asked", "endpoint"),
    [
        (body(store=True), CHAT),
        ({"input": "x", "background": True}, RESPONSES),
        ({"prompt": {"id": "pmpt_1"}}, RESPONSES),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, RESPONSES),
        ({"input": [{"type": "reasoning", "id": "rs_1", "encrypted_content": "…"}]}, RESPONSES),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "file-1"}]}]}, RESPONSES),
        ({"input": [{"type": "computer_call_output", "output": {"file_id": "file-1"}}]}, RESPONSES),
        (part("file", file={"file_id": "file-1"}), CHAT),
        (body(messages=[{"role": "assistant", "audio": {"id": "audio_1"}}, *MESSAGES]), CHAT),
    ],
)
def test_stored_reference_fits_only_the_own_provider(asked: dict[str, Any], endpoint: str) -> None:
    assert unfit(asked, endpoint, OWN, NOTHING) is None
    assert unfit(asked, endpoint, OTHER, NOTHING) == "what the call refers to is kept elsewhere"


@pytest.mark.parametrize("field", ["moderation", "access_programs", "context_management"])
def test_side_effect_field_fits_only_where_known(field: str) -> None:
    asked = {"input": "x", field: {"policy": "block"}}
    assert unfit(asked, RESPONSES, OWN, NOTHING) is None
    assert unfit(asked, RESPONSES, OTHER, NOTHING) == f"is not known to take {field}"
    assert unfit(asked, RESPONSES, model(parameters={field: True}), NOTHING) is None


def test_every_api_field_is_classified() -> None:
    # A new version of openai has new ones: does the answer come back as something else without them?
    thought_about = {*FIELDS, *HOSTED, "audio", *TASTES, *PRIVATE, *COMMON}
    for params in (chat.completion_create_params, responses.response_create_params):
        base: Any = next(getattr(params, name) for name in dir(params) if name.endswith("CreateParamsBase"))
        assert set(base.__annotations__) <= thought_about
