"""A call's body, as another model takes it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane.catalog import CatalogModel
from fastlane.plays.routing.adapting import FIELDS as THOSE_THAT_MATTER
from fastlane.providers import ProviderFacts, facts_named, names
from tests.plays.facts import fact
from tests.plays.routing.adapting_models import CHAT, NOTHING, OTHER, OWN, RESPONSES, adapt, body, facts, model, unfit

EFFORTS = ("low", "medium")
LONGEST = ProviderFacts.model_validate({"slug": "second", "output": {"most_tokens": {"m-*": fact(300)}}})
# By the slug of a provider: what asks for a limit, and which field it gets.
LIMITS = (
    ("max_tokens", "openai", "max_completion_tokens"),
    ("max_completion_tokens", "openai", "max_completion_tokens"),
    ("max_completion_tokens", "deepseek", "max_tokens"),
    ("max_completion_tokens", "ollama", "max_tokens"),
    ("max_completion_tokens", "mistral", "max_tokens"),
    ("max_tokens", "groq", "max_completion_tokens"),
    ("max_completion_tokens", "unknown", "max_tokens"),
)
STRICT = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
RULED = {"type": "object", "properties": {"a": {"not": {"const": 1}}}, "required": ["a"]}
THINKING: dict[str, Any] = {"thinking": {"type": "disabled"}}
TASTES: dict[str, Any] = {"reasoning_effort": "low", "verbosity": "low"}


def form(schema: dict[str, Any]) -> dict[str, Any]:
    named = {"name": "answer", "schema": schema, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


@pytest.mark.parametrize(
    ("asked", "one", "known", "sent"),
    [
        ({"temperature": 0.5, "max_tokens": 7}, OTHER, NOTHING, {"temperature": 0.5, "max_tokens": 7}),
        # The limit of an answer goes into the field that is heeded: of two the lower one.
        *(({given: 50}, OTHER, facts_named(slug), {becomes: 50}) for given, slug, becomes in LIMITS),
        ({"max_tokens": 50, "max_completion_tokens": 40}, OTHER, NOTHING, {"max_tokens": 40}),
        ({"max_completion_tokens": 5}, OWN, NOTHING, {"max_completion_tokens": 5}),
        ({"max_completion_tokens": 5}, OWN, facts(max_completion_tokens=False), {"max_tokens": 5}),
        ({"max_tokens": 5}, model(parameters={"max_tokens": False}), NOTHING, {"max_completion_tokens": 5}),
        (
            {"max_tokens": 5},
            model(parameters={"max_completion_tokens": True}),
            facts(max_tokens=True),
            {"max_completion_tokens": 5},
        ),
        # One beyond what the model can answer is lowered to that, and none is raised.
        ({"max_tokens": 50}, model(max_output_tokens=100), NOTHING, {"max_tokens": 50}),
        *(
            ({"max_tokens": 500}, model(max_output_tokens=stated), LONGEST, {"max_tokens": becomes})
            for stated, becomes in ((100, 100), (None, 300), (900, 300))
        ),
        # Effort and verbosity go to models that have them.
        ({"reasoning_effort": "medium"}, model("gpt-5"), facts_named("openai"), {"reasoning_effort": "medium"}),
        ({"reasoning_effort": "none"}, model("gpt-5"), facts_named("openai"), {}),
        ({"reasoning_effort": "a word of its own"}, model("gpt-5"), facts_named("openai"), {}),
        ({"reasoning_effort": "medium"}, model("deepseek-v4-flash"), facts_named("deepseek"), {}),
        (
            {"reasoning_effort": "none"},
            model("openai/gpt-oss-120b"),
            facts_named("cerebras"),
            {"reasoning_effort": "none"},
        ),
        *(
            ({"reasoning_effort": effort}, model("gpt-5", parameters={name: EFFORTS}), facts_named("openai"), becomes)
            for name in ("reasoning_effort", "reasoning.effort")
            for effort, becomes in (("high", {}), ("low", {"reasoning_effort": "low"}))
        ),
        ({"reasoning_effort": "high"}, model(parameters={"reasoning_effort": False}), facts_named("openai"), {}),
        ({"verbosity": "low"}, model("gpt-5.1"), facts_named("openai"), {"verbosity": "low"}),
        ({"verbosity": "low"}, OTHER, facts(verbosity=False), {}),
        (TASTES, OTHER, NOTHING, {}),
        (TASTES, OWN, NOTHING, {}),
        (TASTES, model(parameters={"reasoning_effort": True, "verbosity": True}), NOTHING, TASTES),
        (TASTES, model(parameters={"reasoning.effort": ["low"], "text.verbosity": ["low"]}), NOTHING, TASTES),
        (TASTES, OTHER, facts(reasoning_effort=True, verbosity=["low", "high"]), TASTES),
        # What is refused within a field is left out of it.
        ({"stream_options": {"include_usage": True}}, OTHER, facts_named("mistral"), {}),
        (
            {"stream_options": {"include_usage": True, "include_obfuscation": False}},
            OTHER,
            facts_named("mistral"),
            {"stream_options": {"include_obfuscation": False}},
        ),
        ({"store": False}, OTHER, facts_named("mistral"), {}),
        ({"service_tier": "flex"}, OTHER, facts_named("groq"), {"service_tier": "flex"}),
        ({"service_tier": "priority"}, OTHER, facts_named("groq"), {}),
        (
            {"messages": [{"role": "developer", "content": "Be brief."}]},
            OTHER,
            NOTHING,
            {"messages": [{"role": "system", "content": "Be brief."}]},
        ),
        *(
            ({"messages": [{"role": "developer", "content": "x"}]}, one, NOTHING, ...)
            for one in (OWN, *(model(parameters={"messages.role": stated}) for stated in (("developer", "user"), True)))
        ),
        # A strict schema is worded as the provider takes it, unless it would lose something.
        (form(STRICT), OTHER, facts_named("openai"), form({**STRICT, "additionalProperties": False})),
        (form(STRICT), OWN, facts_named("openai"), ...),
        (form(RULED), OTHER, facts_named("openai"), ...),
    ],
)
def test_field_is_sent_in_the_form_the_model_accepts(
    asked: dict[str, Any], one: CatalogModel, known: ProviderFacts, sent: Any
) -> None:
    before = copy.deepcopy(asked)
    made = adapt(body(**asked), CHAT, one, known)
    expected = {**body(model=one.model), **(asked if sent is ... else sent)}

    assert made.body == expected
    assert asked == before
    assert bool(made.changes) is (expected != {**body(**asked), "model": one.model})


@pytest.mark.parametrize(
    ("asked", "one", "known", "sent"),
    [
        ({"max_output_tokens": 500}, model(max_output_tokens=100), NOTHING, {"max_output_tokens": 100}),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, model("gpt-5"), facts_named("openai"), ...),
        (
            {"reasoning": {"effort": "none", "summary": "auto"}},
            model("gpt-5"),
            facts_named("openai"),
            {"reasoning": {"summary": "auto"}},
        ),
        ({"reasoning": {"effort": "none"}}, model("gpt-5"), facts_named("openai"), {}),
        (
            {"text": {"verbosity": "high", "format": {"type": "text"}}},
            model("gpt-4o"),
            facts_named("openai"),
            {"text": {"format": {"type": "text"}}},
        ),
        # At this endpoint everything is kept unless the request says otherwise.
        *(({"store": False}, one, facts_named(slug), ...) for slug in names() for one in (OTHER, OWN)),
    ],
)
def test_response_is_sent_in_the_form_the_model_accepts(
    asked: dict[str, Any], one: CatalogModel, known: ProviderFacts, sent: Any
) -> None:
    made = adapt({"input": "x", **asked}, RESPONSES, one, known)

    assert made.body == {"model": one.model, "input": "x", **(asked if sent is ... else sent)}
    assert "store" not in made.optional  # nor is it left out where a provider refuses it


@pytest.mark.parametrize(
    "fields",
    [
        *({name: value} for name, values in THOSE_THAT_MATTER.items() for value in values),
        {"parallel_tool_calls": False},
    ],
    ids=str,
)
def test_neutral_field_is_left_out_where_refused(fields: dict[str, Any]) -> None:
    refusing = facts(**dict.fromkeys(fields, False))
    for one in (OTHER, OWN):
        assert unfit(body(**fields), CHAT, one, refusing) is None
        assert adapt(body(**fields), CHAT, one, refusing).body == body(model="m-2")


@pytest.mark.parametrize(
    "fields",
    [{"user": "u"}, {"metadata": {"a": "b"}}, {"store": False}, {"prompt_cache_key": "k"}, {"service_tier": "flex"},
     {"safety_identifier": "s"}, {"prediction": {"type": "content", "content": "x"}}],
    ids=str,
)  # fmt: skip
def test_provider_specific_field_is_not_sent_to_others(fields: dict[str, Any]) -> None:
    (name,) = fields
    assert name not in adapt(body(**fields), CHAT, OTHER, NOTHING).body
    assert adapt(body(**fields), CHAT, OWN, NOTHING).body[name] == fields[name]
    assert adapt(body(**fields), CHAT, model(parameters={name: True}), NOTHING).body[name] == fields[name]


@pytest.mark.parametrize(
    ("asked", "one", "known", "sent"),
    [
        ({"top_k": 4, "cache_salt": "s"}, OWN, NOTHING, {"top_k", "cache_salt"}),
        (
            {"top_k": 4, "cache_salt": "s", "temperature": 0.1},
            OTHER,
            facts_named("vllm"),
            {"cache_salt", "temperature"},
        ),
        ({"top_k": 4}, model(parameters={"top_k": True}), NOTHING, {"top_k"}),
        (THINKING, OTHER, facts_named("deepseek"), {"thinking"}),
    ],
)
def test_extra_body_fields_are_sent_where_accepted(
    asked: dict[str, Any], one: CatalogModel, known: ProviderFacts, sent: set[str]
) -> None:
    made = adapt(body(**asked), CHAT, one, known, extra=frozenset(asked))

    assert made.body == {**body(model="m-2"), **{name: asked[name] for name in sent}}
    assert made.changes == tuple(
        f"left out {name}, which m-2 is not known to take" for name in asked if name not in sent
    )


def test_optional_fields_are_listed_for_retry_without_them() -> None:
    asked = body(temperature=0.1, seed=1, reasoning_effort="low", verbosity="low", n=2, parallel_tool_calls=True)
    for url in ("https://second.invalid/v1", None):
        one = model(parameters={"seed": True}, capabilities=("reasoning",), base_url=url)
        made = adapt(asked, CHAT, one, NOTHING)
        assert made.optional == ("temperature", "reasoning_effort", "verbosity", "parallel_tool_calls")
        assert made.changes == ()
    response = {"input": "x", "reasoning": {"effort": "low"}, "text": {"verbosity": "low"}}
    assert adapt(response, RESPONSES, one, NOTHING).optional == ("reasoning",)  # "text" is in every second error


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "max_tokens": st.integers(1, 10_000) | st.none(),
    "max_completion_tokens": st.integers(1, 10_000),
    "n": st.integers(1, 3),
    "stop": st.none() | st.lists(st.text(max_size=3), max_size=2),
    "reasoning_effort": st.sampled_from(["none", "minimal", "low", "medium", "high", "xhigh", "odd"]),
    "tools": st.just([{"type": "function", "function": {"name": "f"}}]) | st.just([]),
    "parallel_tool_calls": st.booleans(),
    "logprobs": st.booleans(),
}
BODIES = st.fixed_dictionaries({"model": st.just("fastlane/auto")}, optional=FIELDS)
MODELS = st.sampled_from([OWN, OTHER, model("gpt-5"), model("gpt-4o"), model(max_output_tokens=64)])
PROVIDERS = st.sampled_from([facts_named(name) for name in names()])


@given(BODIES, MODELS, PROVIDERS)
def test_adapted_body_keeps_fields_that_change_the_answer(asked: Any, one: Any, known: Any) -> None:
    if unfit(asked, CHAT, one, known) is not None:
        return
    made = adapt(asked, CHAT, one, known).body
    for name in ("n", "stop", "tools", "logprobs", "parallel_tool_calls"):
        if asked.get(name) not in (None, [], 1, True, False):
            assert made[name] == asked[name]
    if asked.get("logprobs"):
        assert made["logprobs"] is True
    limits = [asked[name] for name in ("max_tokens", "max_completion_tokens") if asked.get(name) is not None]
    if limits:
        sent = [made[name] for name in ("max_tokens", "max_completion_tokens") if made.get(name) is not None]
        assert sent
        assert min(sent) == min(*limits, one.max_output_tokens or 10_000)
