"""What a call asks of the model that is to answer it."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from functools import cache
from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import given, settings, strategies as st

from fastlane import Call
from fastlane.catalog import Catalog, CatalogModel, Route, Task
from fastlane.knowledge.sightings import Sighting, Upstream
from fastlane.plays.routing.adapting import ModelRules
from fastlane.plays.routing.knowledge import RoutingKnowledge
from fastlane.plays.routing.router import RouteQuery
from fastlane.providers import Fact, ProviderFacts
from fastlane.providers.facts import Cache

SECOND_NS = 10**9
CHAT, RESPONSES, COMPLETIONS = "/chat/completions", "/responses", "/completions"
ENDPOINTS = (CHAT, RESPONSES, COMPLETIONS)
IDS = map(str, itertools.count())


def model(name: str, host: str | None = None, **fields: Any) -> CatalogModel:
    place = {} if host is None else {"base_url": f"https://{host}.example.com/v1", "api_key_env": f"{host.upper()}_KEY"}
    return CatalogModel(
        name=name, first_token_s=((1_000, 0.3),), tokens_per_s=100.0, endpoints=ENDPOINTS, **{**place, **fields}
    )


OWN, FIRST, SECOND, NEIGHBOUR = (
    model("own"), model("first", "one"), model("second", "two"), model("neighbour", "one")
)  # fmt: skip
CATALOG = Catalog(
    models=(OWN, FIRST, SECOND, NEIGHBOUR),
    tasks={"triage": Task(min_quality=45.0, min_pass_rate=0.8, output_tokens=30.0)},
)
AT = {one.name: Upstream(one.model, CATALOG.origin_of(one)) for one in CATALOG.models}


def fact(value: Any) -> Any:
    return Fact(value=value, evidence="measured", source="https://docs.example.com", checked=date(2026, 11, 1))


def keeping(automatic: bool | None, least: int = 1_024, lifetime_s: float | None = 300.0) -> ProviderFacts:
    cache = Cache(
        automatic=None if automatic is None else fact(automatic),
        minimum_tokens=fact(least),
        lifetime_s=None if lifetime_s is None else fact(lifetime_s),
    )
    return ProviderFacts(slug="keeps", cache=cache)


KEEPS = keeping(True)


def call(body: Mapping[str, Any], endpoint: str = CHAT, **fields: Any) -> Call:
    return Call(
        call_id=next(IDS), endpoint=endpoint, origin="https://own.example.com:443", body=body, stream=False, **fields
    )


def knowledge(catalog: Catalog = CATALOG) -> RoutingKnowledge:
    return RoutingKnowledge(catalog, exploration=0.0)


def ask(
    known: RoutingKnowledge,
    given: Call,
    route: Route | None = None,
    *,
    facts: Callable[[CatalogModel], ProviderFacts] = lambda _: KEEPS,
    now_ns: int = SECOND_NS,
    **more: Any,
) -> RouteQuery:
    known.rules_of = lambda model, own: ModelRules(model, facts(model))  # type: ignore[method-assign]
    given = replace(given, issued_ns=now_ns)
    return known.query(given, route or Route(), facts=KEEPS, **more)


@cache
def long_text(seed: int) -> str:
    random = Random(seed)
    return " ".join("".join(random.choices("etaoinshrdlu", k=5)) for _ in range(34_000))


def text(characters: int, seed: int = 0) -> str:
    return long_text(seed)[:characters]


def chat(*contents: Any, **more: Any) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": content} for content in contents],
        "model": "fastlane/auto",
        **more,
    }


def sighting(upstream: Upstream = AT["first"], **numbers: Any) -> Sighting:
    return Sighting(model=upstream.model, origin=upstream.origin, **numbers)


# Sizes


def test_a_body_is_as_long_as_its_json() -> None:
    bodies = (
        chat("Hello"),
        chat(text(5_000), tools=[{"type": "function", "function": {"name": "f"}}], temperature=0.5, seed=None),
        chat("Grüße 東京", response_format={"type": "json_object"}),
    )
    for body in bodies:
        assert ask(knowledge(), call(body)).body_bytes == len(orjson.dumps(body))
    written = json.dumps(bodies[0]).encode()
    assert ask(knowledge(), call(bodies[0], encoded=(bodies[0], written))).body_bytes == len(written)


def test_what_was_counted_for_a_task_is_the_tasks_own() -> None:
    known = knowledge()
    known.note(sighting(task="logs", body_bytes=40_000, input_tokens=20_000), 0)
    for _ in range(9):
        known.note(sighting(task="prose", body_bytes=40_000, input_tokens=8_000), 0)
    body = chat(text(40_000))
    sizes = [ask(known, call(body), Route(task=task)).input_tokens for task in ("logs", "prose", "never seen")]
    assert sizes == pytest.approx([20_000, 8_000, 8_000], rel=0.01)


@pytest.mark.parametrize(("body_bytes", "input_tokens"), [(0, 10), (900_000, 700), (300, 200), (9_000, 0)])
def test_a_count_that_is_not_of_text_teaches_nothing(body_bytes: int, input_tokens: int) -> None:
    known = knowledge()
    before = ask(known, call(chat(text(9_000)))).input_tokens
    known.note(sighting(body_bytes=body_bytes, input_tokens=input_tokens), 0)
    assert ask(known, call(chat(text(9_000)))).input_tokens == before


def picture(size: int, seed: int = 0) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + Random(seed).randbytes(size).hex()}}


def test_a_picture_counts_as_what_it_is_to_the_model_and_not_as_its_bytes() -> None:
    asked = ask(knowledge(), call(chat([{"type": "text", "text": "What is this?"}, picture(200_000)])))
    assert asked.body_bytes > 400_000
    assert 500 < asked.input_tokens < 1_500
    assert "vision" in asked.needs


def test_a_picture_that_is_looked_at_roughly_counts_less() -> None:
    fine = picture(200_000)
    rough = {**fine, "image_url": {**fine["image_url"], "detail": "low"}}
    first, second = (ask(knowledge(), call(chat([one]))).input_tokens for one in (rough, fine))
    assert first < second / 2


# Output


def test_lengths_are_learned_by_task_and_else_by_the_name_of_the_schema() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "label", "schema": {"type": "object"}}}
    assert ask(knowledge(), call(chat("Hello", response_format=form))).kind == "label"
    assert ask(knowledge(), call(chat("Hello", response_format=form)), Route(task="triage")).kind == "triage"
    assert ask(knowledge(), call(chat("Hello"))).kind is None


# What was asked for


def test_what_the_route_says_counts_before_what_its_task_says() -> None:
    asked = ask(knowledge(), call(chat("Hello")), Route(task="triage"))
    assert (asked.min_quality, asked.min_pass_rate, asked.quantile) == (45.0, 0.8, 0.5)
    asked = ask(knowledge(), call(chat("Hello")), Route(task="triage", min_quality=50, min_pass_rate=0.9, quantile=0.9))
    assert (asked.min_quality, asked.min_pass_rate, asked.quantile) == (50.0, 0.9, 0.9)


# Caches


def answered(
    known: RoutingKnowledge, body: Mapping[str, Any], name: str, *, facts: ProviderFacts = KEEPS, at_s: int = 1
) -> None:
    query = ask(known, call(body), facts=lambda _: facts, now_ns=at_s * SECOND_NS)
    known.note_read(query, CATALOG.named(name), facts, at_s * SECOND_NS)


def test_the_model_that_has_read_the_conversation_should_have_it_in_its_cache() -> None:
    known = knowledge()
    long = text(40_000)
    answered(known, chat(long), "first")
    asked = ask(known, call(chat(long, "And then?")))
    assert set(asked.cached_tokens) == {"first"}
    assert 0.8 * asked.input_tokens < asked.cached_tokens["first"] < asked.input_tokens


def test_other_tools_are_another_beginning() -> None:
    known = knowledge()
    tool = {"type": "function", "function": {"name": "f", "description": text(3_000)}}
    answered(known, chat(text(40_000), tools=[tool]), "first")
    assert ask(known, call(chat(text(40_000), tools=[tool]))).cached_tokens
    assert not ask(known, call(chat(text(40_000)))).cached_tokens


def test_another_form_of_the_answer_is_another_beginning() -> None:
    known = knowledge()
    kinds = [{"type": "json_schema", "name": "answer", "schema": {"description": text(3_000, seed)}} for seed in (0, 1)]
    bodies = [{"input": text(40_000), "text": {"format": kind}} for kind in kinds]
    query = ask(known, call(bodies[0], RESPONSES))
    known.note_read(query, FIRST, KEEPS, SECOND_NS)
    assert ask(known, call(bodies[0], RESPONSES)).cached_tokens
    assert not ask(known, call(bodies[1], RESPONSES)).cached_tokens


@pytest.mark.parametrize(
    ("facts", "least", "most"),
    [(keeping(True), 0.85, 0.95), (keeping(None), 0.4, 0.6), (keeping(False), 0.0, 0.1)],
)
def test_how_much_is_expected_at_first_is_what_is_known_of_the_provider(
    facts: ProviderFacts, least: float, most: float
) -> None:
    known = knowledge()
    answered(known, chat(text(100_000)), "first", facts=facts)
    asked = ask(known, call(chat(text(100_000), "And then?")), facts=lambda _: facts)
    assert least <= asked.cached_tokens["first"] / asked.input_tokens <= most


def test_too_short_a_prompt_is_not_kept() -> None:
    known = knowledge()
    answered(known, chat(text(8_000)), "first", facts=keeping(True, least=4_096))
    assert not ask(known, call(chat(text(8_000))), facts=lambda _: keeping(True, least=4_096)).cached_tokens


# What goes on from another answer


def test_a_call_goes_on_where_its_response_was_made() -> None:
    known = knowledge()
    known.note_response("resp_1", AT["first"])
    body = {"input": "And then?", "previous_response_id": "resp_1", "model": "fastlane/auto"}
    # The same key at the same place: what is kept there can be seen from there.
    assert set(ask(known, call(body, RESPONSES)).unfit) == {"own", "second"}


def test_what_nobody_has_seen_made_is_the_applications_own() -> None:
    known = knowledge()
    for field in ({"previous_response_id": "resp_9"}, {"conversation": "conv_9"}, {"conversation": {"id": "conv_9"}}):
        asked = ask(known, call({"input": "And then?", **field}, RESPONSES))
        assert set(asked.unfit) == {"first", "second", "neighbour"}
    known.note_response("conv_9", AT["second"])
    asked = ask(known, call({"input": "And then?", "conversation": {"id": "conv_9"}}, RESPONSES))
    assert "second" not in asked.unfit


def test_a_response_and_a_conversation_at_two_places_can_be_gone_on_from_nowhere() -> None:
    known = knowledge()
    known.note_response("resp_1", AT["first"])
    body = {"input": "And then?", "previous_response_id": "resp_1", "conversation": "conv_of_the_applications"}
    assert set(ask(known, call(body, RESPONSES)).unfit) == set(AT)


# Laws


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
parts = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image_url", "input_image", "input_audio", "input_file", "file", 1, None])},
    optional={"text": values, "image_url": values, "input_audio": values, "file": values, "detail": values},
)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "system", "tool"])},
    optional={"content": values | st.lists(parts | values, max_size=3), "tool_calls": values, "output": values},
)
bodies = st.fixed_dictionaries(
    {},
    optional={
        "messages": st.lists(messages | values, max_size=4) | values,
        "input": st.lists(messages | values, max_size=4) | values,
        "prompt": values,
        "tools": values,
        "tool_choice": values,
        "parallel_tool_calls": values,
        "functions": values,
        "response_format": st.fixed_dictionaries({"type": st.just("json_schema"), "json_schema": values}) | values,
        "text": values | st.fixed_dictionaries({"format": values}),
        "instructions": values,
        "max_tokens": values,
        "max_output_tokens": values,
        "previous_response_id": values,
        "conversation": values,
    },
)


@settings(max_examples=150, deadline=None)
@given(bodies, st.sampled_from(ENDPOINTS))
def test_whatever_is_in_a_body_it_is_asked_about_and_left_as_it_is(body: dict[str, Any], endpoint: str) -> None:
    before = copy.deepcopy(body)
    given_call = call(body, endpoint)
    fields = {name: getattr(given_call, name) for name in Call.__dataclass_fields__}
    asked = ask(knowledge(), given_call)
    assert repr(body) == repr(before)
    assert all(getattr(given_call, name) is value for name, value in fields.items())
    assert asked.body_bytes >= 0
    assert asked.input_tokens >= 0
