"""A call's body, as another model takes it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from fastlane.plays.routing.adapting import FIELDS as THOSE_THAT_MATTER, Adapted
from fastlane.providers import ProviderFacts, facts_named, names
from tests.plays.routing.adapting_models import (
    CHAT,
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    adapt,
    body,
    fact,
    facts,
    model,
    unfit,
)

OWN = model(base_url=None)
OTHER = model()
NOTHING = facts_named("unknown")


def test_the_model_is_named_as_its_provider_knows_it_and_nothing_else_changes() -> None:
    asked = body(temperature=0.5, stream=True, top_p=0.9, max_tokens=7)
    for one in (model(model="vendor/m-2"), model(model="vendor/m-2", base_url=None)):
        made = adapt(asked, CHAT, one, NOTHING)
        assert made.body == {**asked, "model": "vendor/m-2"}
        assert list(made.body) == list(asked)
        assert made.changes == ()


@pytest.mark.parametrize(
    ("given_field", "slug", "becomes"),
    [
        ("max_tokens", "openai", "max_completion_tokens"),
        ("max_completion_tokens", "openai", "max_completion_tokens"),
        ("max_completion_tokens", "deepseek", "max_tokens"),
        ("max_completion_tokens", "ollama", "max_tokens"),
        ("max_completion_tokens", "mistral", "max_tokens"),
        ("max_tokens", "groq", "max_completion_tokens"),
        ("max_completion_tokens", "unknown", "max_tokens"),
    ],
)
def test_the_limit_of_an_answer_goes_into_the_field_that_is_heeded(given_field: str, slug: str, becomes: str) -> None:
    made = adapt(body(**{given_field: 50}), CHAT, OTHER, facts_named(slug))
    assert made.body == {**body(model="m-2"), becomes: 50}
    assert bool(made.changes) is (given_field != becomes)


def test_of_two_limits_the_lower_one_counts() -> None:
    made = adapt(body(max_tokens=50, max_completion_tokens=40), CHAT, OTHER, NOTHING)
    assert made.body == {**body(model="m-2"), "max_tokens": 40}


def test_the_application_s_own_provider_gets_the_limit_as_it_was_written_unless_it_refuses_that() -> None:
    assert adapt(body(max_completion_tokens=5), CHAT, OWN, NOTHING).body["max_completion_tokens"] == 5
    refusing = facts(max_completion_tokens=False)
    assert adapt(body(max_completion_tokens=5), CHAT, OWN, refusing).body == {**body(model="m-2"), "max_tokens": 5}


def test_the_catalog_says_for_a_model_which_limit_it_takes() -> None:
    newer = model(parameters={"max_tokens": False})
    assert adapt(body(max_tokens=5), CHAT, newer, NOTHING).body["max_completion_tokens"] == 5
    newer = model(parameters={"max_completion_tokens": True})
    assert adapt(body(max_tokens=5), CHAT, newer, facts(max_tokens=True)).body["max_completion_tokens"] == 5


def test_a_limit_beyond_what_a_model_can_answer_is_lowered_to_that() -> None:
    short = model(max_output_tokens=100)
    assert adapt(body(max_tokens=500), CHAT, short, NOTHING).body["max_tokens"] == 100
    assert adapt(body(max_tokens=50), CHAT, short, NOTHING).body["max_tokens"] == 50
    response = {"model": "x", "input": "y", "max_output_tokens": 500}
    assert adapt(response, RESPONSES, short, NOTHING).body["max_output_tokens"] == 100
    assert adapt({"prompt": "x", "max_tokens": 500}, COMPLETIONS, short, NOTHING).body["max_tokens"] == 100


def test_of_what_the_catalog_and_the_facts_say_of_the_longest_answer_the_lower_one_counts() -> None:
    known = ProviderFacts.model_validate({"slug": "second", "output": {"most_tokens": {"m-*": fact(300)}}})
    for said, becomes in ((100, 100), (None, 300), (900, 300)):
        made = adapt(body(max_tokens=500), CHAT, model(max_output_tokens=said), known)
        assert made.body["max_tokens"] == becomes


@pytest.mark.parametrize(
    ("asked", "name", "slug", "goes"),
    [
        ("medium", "gpt-5", "openai", True),
        ("none", "gpt-5", "openai", False),
        ("xhigh", "gpt-5", "openai", False),
        ("medium", "deepseek-v4-flash", "deepseek", False),
        ("low", "gpt-4o", "openai", False),
        ("none", "openai/gpt-oss-120b", "cerebras", True),
        ("low", "anything", "unknown", False),
        ("a word of its own", "gpt-5", "openai", False),
    ],
)
def test_effort_is_left_out_unless_the_model_has_it(asked: str, name: str, slug: str, goes: bool) -> None:
    one = model(name)
    made = adapt(body(reasoning_effort=asked), CHAT, one, facts_named(slug))
    assert made.body.get("reasoning_effort") == (asked if goes else None)
    assert bool(made.changes) is not goes

    response = {"input": "x", "reasoning": {"effort": asked, "summary": "auto"}}
    made = adapt(response, RESPONSES, one, facts_named(slug))
    assert made.body["reasoning"] == (response["reasoning"] if goes else {"summary": "auto"})
    made = adapt({"input": "x", "reasoning": {"effort": asked}}, RESPONSES, one, facts_named(slug))
    assert ("reasoning" in made.body) is goes


def test_the_catalog_says_for_a_model_which_efforts_it_has() -> None:
    openai = facts_named("openai")
    for name in ("reasoning_effort", "reasoning.effort"):
        one = model("gpt-5", parameters={name: ("low", "medium")})
        assert "reasoning_effort" not in adapt(body(reasoning_effort="high"), CHAT, one, openai).body
        assert adapt(body(reasoning_effort="low"), CHAT, one, openai).body["reasoning_effort"] == "low"
    assert (
        "reasoning_effort"
        not in adapt(body(reasoning_effort="high"), CHAT, model(parameters={"reasoning_effort": False}), openai).body
    )


def test_verbosity_is_left_out_unless_the_model_has_it() -> None:
    openai = facts_named("openai")
    assert adapt(body(verbosity="low"), CHAT, model("gpt-5.1"), openai).body["verbosity"] == "low"
    assert "verbosity" not in adapt(body(verbosity="low"), CHAT, model("gpt-4o"), openai).body
    assert "verbosity" not in adapt(body(verbosity="low"), CHAT, OTHER, facts(verbosity=False)).body
    text = {"input": "x", "text": {"verbosity": "high", "format": {"type": "text"}}}
    made = adapt(text, RESPONSES, model("gpt-4o"), openai)
    assert made.body["text"] == {"format": {"type": "text"}}


def test_what_is_refused_is_left_out_and_said_without_its_value() -> None:
    asked = body(temperature=0.123, seed=987654, user="somebody", stop=[])
    made = adapt(asked, CHAT, model(parameters={"temperature": False, "seed": False, "stop": False}), NOTHING)
    assert made.body == body(model="m-2")
    assert made.changes == (
        "left out user, which m-2 is not known to take",
        "left out temperature, seed, stop, which m-2 does not take",
    )
    for value in ("0.123", "987654", "somebody"):
        assert value not in str(made.changes)


@pytest.mark.parametrize(
    "fields",
    [
        *({name: value} for name, values in THOSE_THAT_MATTER.items() for value in values),
        {"parallel_tool_calls": False},
    ],
    ids=str,
)
def test_what_asks_for_nothing_is_left_out_where_it_is_refused(fields: dict[str, Any]) -> None:
    (name,) = fields
    refusing = facts(**{name: False})
    for one in (OTHER, OWN):
        assert unfit(body(**fields), CHAT, one, refusing) is None
        assert adapt(body(**fields), CHAT, one, refusing).body == body(model="m-2")


def test_what_is_refused_within_a_field_is_left_out_of_it() -> None:
    streamed = body(stream=True, stream_options={"include_usage": True})
    assert "stream_options" not in adapt(streamed, CHAT, OTHER, facts_named("mistral")).body
    streamed = body(stream=True, stream_options={"include_usage": True, "include_obfuscation": False})
    made = adapt(streamed, CHAT, OTHER, facts_named("mistral"))
    assert made.body["stream_options"] == {"include_obfuscation": False}
    assert streamed["stream_options"] == {"include_usage": True, "include_obfuscation": False}
    assert made.changes == ("left out stream_options.include_usage, which m-2 does not take",)


@pytest.mark.parametrize(
    "fields",
    [{"user": "u"}, {"metadata": {"a": "b"}}, {"store": False}, {"prompt_cache_key": "k"}, {"service_tier": "flex"},
     {"safety_identifier": "s"}, {"prediction": {"type": "content", "content": "x"}}],
    ids=str,
)  # fmt: skip
def test_what_only_one_provider_understands_is_not_told_to_others(fields: dict[str, Any]) -> None:
    (name,) = fields
    assert name not in adapt(body(**fields), CHAT, OTHER, NOTHING).body
    assert adapt(body(**fields), CHAT, OWN, NOTHING).body[name] == fields[name]
    assert adapt(body(**fields), CHAT, model(parameters={name: True}), NOTHING).body[name] == fields[name]


def test_a_response_that_nobody_is_to_keep_is_kept_nowhere() -> None:
    # At this endpoint everything is kept unless the request says otherwise.
    asked = {"input": "x", "store": False}
    for slug in names():
        for one in (OTHER, OWN):
            made = adapt(asked, RESPONSES, one, facts_named(slug))
            assert made.body["store"] is False
            assert "store" not in made.optional  # nor is it left out where a provider refuses it
    # And of a chat, nothing is kept.
    assert "store" not in adapt(body(store=False), CHAT, OTHER, facts_named("mistral")).body


def test_a_grade_of_service_goes_along_where_it_has_the_same_name() -> None:
    groq = facts_named("groq")
    assert adapt(body(service_tier="flex"), CHAT, OTHER, groq).body["service_tier"] == "flex"
    assert "service_tier" not in adapt(body(service_tier="priority"), CHAT, OTHER, groq).body


def test_what_came_by_extra_body_goes_only_where_somebody_says_that_it_is_taken() -> None:
    asked = body(top_k=4, cache_salt="s", temperature=0.1)
    extra = frozenset({"top_k", "cache_salt", "temperature"})
    assert adapt(asked, CHAT, OWN, NOTHING, extra=extra).body == {**asked, "model": "m-2"}
    made = adapt(asked, CHAT, OTHER, facts_named("vllm"), extra=extra)
    assert made.body == body(model="m-2", cache_salt="s", temperature=0.1)
    assert made.changes == ("left out top_k, which m-2 is not known to take",)
    assert adapt(asked, CHAT, model(parameters={"top_k": True}), NOTHING, extra=extra).body["top_k"] == 4
    thinking = body(thinking={"type": "disabled"})
    made = adapt(thinking, CHAT, OTHER, facts_named("deepseek"), extra=frozenset({"thinking"}))
    assert made.body["thinking"] == {"type": "disabled"}


def test_developers_speak_as_the_system_elsewhere() -> None:
    asked = body(messages=[{"role": "developer", "content": "Be brief."}, *MESSAGES])
    made = adapt(asked, CHAT, OTHER, NOTHING)
    assert made.body["messages"] == [{"role": "system", "content": "Be brief."}, *MESSAGES]
    assert asked["messages"][0]["role"] == "developer"
    knowing = (model(parameters={"messages.role": said}) for said in (("developer", "user"), True))
    for one in (OWN, *knowing):
        assert adapt(asked, CHAT, one, NOTHING).body["messages"] is asked["messages"]
    assert adapt(body(), CHAT, OTHER, NOTHING).body["messages"] is MESSAGES
    response = {"input": [{"role": "developer", "content": "x"}]}
    assert adapt(response, RESPONSES, OTHER, NOTHING).body["input"] == [{"role": "system", "content": "x"}]


def test_a_strict_schema_is_worded_as_the_provider_takes_it_unless_it_would_lose_something() -> None:
    open_object = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": open_object, "strict": True}}
    made = adapt(body(response_format=form), CHAT, OTHER, facts_named("openai"))
    worded = made.body["response_format"]["json_schema"]
    assert worded == {"name": "answer", "schema": {**open_object, "additionalProperties": False}, "strict": True}
    assert "additionalProperties" not in open_object
    assert adapt(body(response_format=form), CHAT, OWN, facts_named("openai")).body["response_format"] is form

    ruled = {"type": "object", "properties": {"a": {"not": {"const": 1}}}, "required": ["a"]}
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": ruled, "strict": True}}
    assert adapt(body(response_format=form), CHAT, OTHER, facts_named("openai")).body["response_format"] is form


def test_what_a_model_may_refuse_and_the_call_can_do_without_is_named() -> None:
    asked = body(temperature=0.1, seed=1, reasoning_effort="low", verbosity="low", n=2, parallel_tool_calls=True)
    for url in ("https://second.invalid/v1", None):
        one = model(parameters={"seed": True}, capabilities=("reasoning",), base_url=url)
        made = adapt(asked, CHAT, one, NOTHING)
        assert made.optional == ("temperature", "reasoning_effort", "verbosity", "parallel_tool_calls")
        assert made.changes == ()
    response = {"input": "x", "reasoning": {"effort": "low"}, "text": {"verbosity": "low"}}
    assert adapt(response, RESPONSES, one, NOTHING).optional == ("reasoning",)  # "text" is in every second error
    response = {"input": "x", "reasoning": {"effort": "low", "summary": "auto"}, "text": {"format": {"type": "text"}}}
    assert adapt(response, RESPONSES, one, NOTHING).optional == ()


def test_a_model_that_nobody_says_thinks_is_told_no_effort_and_no_verbosity() -> None:
    asked = body(reasoning_effort="low", verbosity="low")
    for one in (model(), model(base_url=None)):
        made = adapt(asked, CHAT, one, NOTHING)
        assert made.body == {"model": one.model, "messages": MESSAGES}
        assert made.changes == ("left out reasoning_effort, verbosity, which m-2 does not take",)
    response = {"input": "x", "reasoning": {"effort": "low"}, "text": {"verbosity": "low", "format": {"type": "text"}}}
    made = adapt(response, RESPONSES, model(), NOTHING)
    assert made.body == {"model": "m-2", "input": "x", "text": {"format": {"type": "text"}}}
    for known in (
        adapt(asked, CHAT, model(parameters={"reasoning_effort": True, "verbosity": True}), NOTHING),
        adapt(asked, CHAT, model(parameters={"reasoning.effort": ["low"], "text.verbosity": ["low"]}), NOTHING),
        adapt(asked, CHAT, model(), facts(reasoning_effort=True, verbosity=["low", "high"])),
    ):
        assert known.body == {**asked, "model": "m-2"}


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "temperature": st.floats(0, 2),
    "max_tokens": st.integers(1, 10_000) | st.none(),
    "max_completion_tokens": st.integers(1, 10_000),
    "n": st.integers(1, 3),
    "stop": st.none() | st.lists(st.text(max_size=3), max_size=2),
    "reasoning_effort": st.sampled_from(["none", "minimal", "low", "medium", "high", "xhigh", "odd"]),
    "verbosity": st.sampled_from(["low", "medium", "high", 7]),
    "stream_options": st.dictionaries(st.sampled_from(["include_usage", "include_obfuscation"]), st.booleans()),
    "service_tier": st.sampled_from(["auto", "flex", "priority"]),
    "store": st.booleans(),
    "top_k": st.integers(1, 5),
    "tools": st.just([{"type": "function", "function": {"name": "f"}}]) | st.just([]),
    "parallel_tool_calls": st.booleans(),
    "logprobs": st.booleans(),
    "messages": st.just(MESSAGES) | st.just([{"role": "developer", "content": "x"}, *MESSAGES]),
}
BODIES = st.fixed_dictionaries({"model": st.just("fastlane/auto")}, optional=FIELDS)
MODELS = st.sampled_from([OWN, OTHER, model("gpt-5"), model("gpt-4o"), model(max_output_tokens=64)])
PROVIDERS = st.sampled_from([facts_named(name) for name in names()])


@settings(max_examples=40)
@given(BODIES, MODELS, PROVIDERS)
def test_adapting_changes_nothing_of_the_caller_s_and_nothing_when_done_again(asked: Any, one: Any, known: Any) -> None:
    before = copy.deepcopy(asked)
    made = adapt(asked, CHAT, one, known, extra=frozenset({"top_k"}))
    assert asked == before
    again = adapt(made.body, CHAT, one, known, extra=frozenset({"top_k"}))
    assert again == Adapted(made.body, (), made.optional)
    assert bool(made.changes) is (made.body != {**asked, "model": one.model})


@settings(max_examples=40)
@given(BODIES, MODELS, PROVIDERS)
def test_what_changes_the_answer_is_kept_wherever_the_call_fits(asked: Any, one: Any, known: Any) -> None:
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
