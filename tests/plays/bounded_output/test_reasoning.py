"""How much is left for what a model thinks, which field bounds an output, and how far up it may go."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from fastlane.plays.bounded_output.reasoning import UNKNOWN_TOKENS, ReasoningTokens
from fastlane.providers import Fact, ProviderFacts, facts_named
from fastlane.providers.output_facts import (
    ceiling_fields,
    efforts_of,
    limit_in,
    most_tokens,
    reasons,
    verbosities_of,
)

ORIGIN = "https://api.example.com:443"


def known(value: Any) -> Fact[Any]:
    return Fact(value=value, source="https://docs.example.com", checked=date(2026, 11, 22), evidence="documented")


def some(**tables: Any) -> ProviderFacts:
    return ProviderFacts(slug="some", **tables)


THINKER = some(
    reasoning={"models": known(("deep-*",)), "never": known(("*-instruct",))},
    parameters={"reasoning_effort": known(("none", "low", "high"))},
)


def told(*answers: tuple[int, int, int | None], effort: str | None = None, model: str = "model") -> ReasoningTokens:
    reasoning = ReasoningTokens()
    for visible, output, thought in answers:
        reasoning.learn(ORIGIN, model, effort, visible_tokens=visible, output_tokens=output, reasoning_tokens=thought)
    return reasoning


def headroom(
    reasoning: ReasoningTokens, facts: ProviderFacts | None = None, *, model: str = "model", effort: str | None = None
) -> int:
    return reasoning.headroom(ORIGIN, model, effort, facts)


@pytest.mark.parametrize(
    ("model", "effort", "tokens"),
    [
        ("deep-1", None, UNKNOWN_TOKENS),
        ("deep-1", "high", UNKNOWN_TOKENS),
        ("deep-1", "none", 0),
        ("deep-1-instruct", None, 0),
        ("some-instruct", "high", 0),
        ("other", None, UNKNOWN_TOKENS),
    ],
)
def test_before_any_answer_facts_decide(model: str, effort: str | None, tokens: int) -> None:
    assert headroom(ReasoningTokens(), THINKER, model=model, effort=effort) == tokens


def test_where_nobody_knows_anything_much_is_left() -> None:
    assert headroom(ReasoningTokens()) == UNKNOWN_TOKENS
    assert ReasoningTokens().headroom(ORIGIN, None, None, THINKER) == UNKNOWN_TOKENS


@pytest.mark.parametrize("value", ["ignored", False, ("low", "high")])
def test_a_provider_that_does_not_act_on_none_still_thinks(value: Any) -> None:
    assert (
        headroom(ReasoningTokens(), some(parameters={"reasoning_effort": known(value)}), effort="none")
        == UNKNOWN_TOKENS
    )


def test_a_word_that_a_server_is_not_known_to_act_on_says_nothing() -> None:
    assert headroom(ReasoningTokens(), effort="none") == UNKNOWN_TOKENS


def test_what_a_model_takes_goes_before_what_its_provider_does() -> None:
    facts = some(
        parameters={"reasoning_effort": known(("none", "high"))}, reasoning={"efforts": {"deep-*": known(("high",))}}
    )

    assert headroom(ReasoningTokens(), facts, model="deep-1", effort="none") == UNKNOWN_TOKENS
    assert headroom(ReasoningTokens(), facts, model="other", effort="none") == 0


def test_a_limit_that_does_not_count_thoughts_needs_no_room_for_them() -> None:
    facts = some(reasoning={"models": known(("deep-*",)), "counted": known(value=False)})

    assert headroom(told((10, 9_000, 8_990), model="deep-1"), facts, model="deep-1") == 0


def test_three_answers_without_a_thought_show_that_a_model_does_not_think() -> None:
    assert headroom(told((40, 40, 0), (50, 52, 0))) == UNKNOWN_TOKENS
    assert headroom(told((40, 40, 0), (50, 52, 0), (30, 44, None))) == 0


def test_a_model_that_is_said_to_think_may_have_had_no_reason_to() -> None:
    reasoning = told(*[(40, 40, 0)] * 9, model="deep-1")

    assert headroom(reasoning, THINKER, model="deep-1") == 4_096
    assert headroom(reasoning, model="deep-1") == 0


def test_several_times_the_longest_thought_is_left() -> None:
    assert headroom(told((40, 900, 860), (40, 5_040, 5_000), (40, 50, 0))) == 20_000
    assert headroom(told((40, 90, 50), (40, 140, 100), (40, 50, 0))) == 4_096


def test_few_answers_do_not_lower_what_is_left() -> None:
    assert headroom(told((40, 90, 50))) == UNKNOWN_TOKENS
    assert headroom(told((40, 30_040, 30_000))) == 120_000


def test_thoughts_that_the_provider_does_not_speak_of_are_noticed() -> None:
    assert headroom(told(*[(100, 5_100, None)] * 3)) == 20_000
    assert headroom(told(*[(100, 5_100, 0)] * 3)) == 20_000


def test_an_estimate_that_is_a_little_wrong_is_no_thought() -> None:
    assert headroom(told(*[(100, 160, None), (1_000, 1_900, 0), (0, 60, None)])) == 0


def test_efforts_and_models_and_origins_are_told_apart() -> None:
    reasoning = told(*[(40, 5_040, 5_000)] * 3, effort="high")

    assert headroom(reasoning, effort="high") == 20_000
    assert headroom(reasoning, effort="low") == UNKNOWN_TOKENS
    assert headroom(reasoning, effort="high", model="other") == UNKNOWN_TOKENS
    assert reasoning.headroom("https://other.example.com:443", "model", "high", None) == UNKNOWN_TOKENS


def test_what_was_learnt_of_many_models_does_not_grow_without_end() -> None:
    reasoning = ReasoningTokens()
    for number in range(1_500):
        reasoning.learn(ORIGIN, f"model-{number}", None, visible_tokens=9, output_tokens=9, reasoning_tokens=0)

    assert len(reasoning._seen) == 1_024


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 99_999)), min_size=3, max_size=8),
    st.booleans(),
)
def test_what_was_once_enough_for_an_answer_is_enough_ever_after(
    answers: list[tuple[int, int]],
    says: bool,
) -> None:
    reasoning = told(*[(visible, visible + thought, thought if says else None) for visible, thought in answers])

    # An unsaid thought may pass for an estimate's mistake.
    assert all(headroom(reasoning) >= thought or thought <= max(64, seen) for seen, thought in answers)


@pytest.mark.parametrize(
    ("model", "does"),
    [("deep-1", True), ("deep-1-instruct", False), ("x-instruct", False), ("other", None), (None, None)],
)
def test_the_longest_pattern_says_whether_a_model_thinks(model: str | None, does: bool | None) -> None:
    assert reasons(THINKER, model) is does


@pytest.mark.parametrize(
    ("slug", "model", "fields"),
    [
        ("openai", "gpt-4o", ("max_completion_tokens",)),
        ("openai", "o3", ("max_completion_tokens",)),
        ("azure_openai", "my-deployment", ("max_completion_tokens",)),
        ("ollama", "qwen3", ("max_tokens",)),
        ("mistral", "mistral-large-latest", ("max_tokens",)),
        ("deepseek", "deepseek-v4-flash", ("max_tokens",)),
        ("gemini", "gemini-2.5-flash", ("max_tokens",)),
        ("vllm", "any", ("max_completion_tokens",)),
        ("litellm", "gpt-5", ("max_completion_tokens",)),
        ("unknown", "qwen3", ("max_tokens",)),
        ("unknown", "gpt-5-mini", ("max_completion_tokens",)),
        ("unknown", "openai/o3-pro", ("max_completion_tokens",)),
        ("unknown", None, ("max_tokens",)),
    ],
)
def test_chats_are_bounded_by_the_field_that_is_acted_on(slug: str, model: str | None, fields: tuple[str, ...]) -> None:
    assert ceiling_fields("/chat/completions", facts_named(slug), model) == fields


def test_other_endpoints_have_one_name_each() -> None:
    for facts in (None, facts_named("ollama"), facts_named("openai")):
        assert ceiling_fields("/responses", facts, "gpt-5") == ("max_output_tokens",)
        assert ceiling_fields("/completions", facts, "gpt-5") == ("max_tokens",)
    assert ceiling_fields("/chat/completions", None, "gpt-5") == ("max_tokens",)


@pytest.mark.parametrize(
    ("endpoint", "body", "limit"),
    [
        ("/chat/completions", {}, None),
        ("/chat/completions", {"max_tokens": 20}, 20),
        ("/chat/completions", {"max_completion_tokens": 30}, 30),
        ("/chat/completions", {"max_tokens": 20, "max_completion_tokens": 30}, 20),
        ("/chat/completions", {"max_output_tokens": 20}, None),
        ("/chat/completions", {"max_tokens": None}, None),
        ("/chat/completions", {"max_tokens": True, "max_completion_tokens": "9"}, None),
        ("/chat/completions", {"max_tokens": -1}, None),
        ("/completions", {"max_tokens": 20, "max_completion_tokens": 3}, 20),
        ("/responses", {"max_output_tokens": 20, "max_tokens": 3}, 20),
    ],
)
def test_the_callers_own_limit_is_found_under_any_of_its_names(
    endpoint: str, body: dict[str, Any], limit: int | None
) -> None:
    assert limit_in(body, endpoint) == limit


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("gpt-4o-mini", 16_384),
        ("gpt-4o-2024-05-13", 4_096),
        ("gpt-5.2", 128_000),
        ("gpt-5.2-chat-latest", 16_384),
        ("o1-mini", 65_536),
        ("ft:gpt-4o:acme", None),
        (None, None),
    ],
)
def test_a_model_takes_no_larger_limit_than_it_can_answer(model: str | None, tokens: int | None) -> None:
    assert most_tokens(facts_named("openai"), model) == tokens
    assert most_tokens(None, model) is None


@pytest.mark.parametrize(
    ("slug", "model", "efforts", "verbosities"),
    [
        ("openai", "gpt-4.1", (), None),
        ("openai", "gpt-4o", (), ("medium",)),
        ("openai", "gpt-5-2025-08-07", ("minimal", "low", "medium", "high"), ("low", "medium", "high")),
        ("openai", "gpt-5.1", ("none", "low", "medium", "high"), ("low", "medium", "high")),
        ("openai", "gpt-5.1-codex-mini", ("low", "medium", "high"), ("medium",)),
        ("openai", "gpt-5.3-codex", ("low", "medium", "high", "xhigh"), ("low", "medium", "high")),
        ("xai", "grok-4.20-reasoning", (), None),
        ("unknown", "anything", None, None),
    ],
)
def test_facts_say_which_efforts_and_verbosities_a_model_takes(
    slug: str, model: str, efforts: tuple[str, ...] | None, verbosities: tuple[str, ...] | None
) -> None:
    facts = facts_named(slug)

    assert efforts_of(facts, model) == efforts
    assert verbosities_of(facts, model) == verbosities
    assert efforts_of(None, model) is None
    assert verbosities_of(None, model) is None
