"""What a call asks of the model that is to answer it."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from fastlane import Call
from fastlane.catalog import Catalog, CatalogModel, Route, Task
from fastlane.knowledge.sightings import Upstream
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
    address = (
        {} if host is None else {"base_url": f"https://{host}.example.com/v1", "api_key_env": f"{host.upper()}_KEY"}
    )
    return CatalogModel(
        name=name, first_token_s=((1_000, 0.3),), tokens_per_s=100.0, endpoints=ENDPOINTS, **{**address, **fields}
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


# Sizes


def picture(size: int, seed: int = 0) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + Random(seed).randbytes(size).hex()}}


def test_image_counts_as_model_tokens_not_bytes() -> None:
    asked = ask(knowledge(), call(chat([{"type": "text", "text": "What is this?"}, picture(200_000)])))
    assert asked.body_bytes > 400_000
    assert 500 < asked.input_tokens < 1_500
    assert "vision" in asked.needs


# Output


# What was requested


def test_route_values_override_task_values() -> None:
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


def test_conversation_counts_as_cached_where_it_was_read() -> None:
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


@pytest.mark.parametrize(
    ("facts", "least", "most"),
    [(keeping(True), 0.85, 0.95), (keeping(None), 0.4, 0.6), (keeping(False), 0.0, 0.1)],
)
def test_first_cache_estimate_follows_provider_facts(facts: ProviderFacts, least: float, most: float) -> None:
    known = knowledge()
    answered(known, chat(text(100_000)), "first", facts=facts)
    asked = ask(known, call(chat(text(100_000), "And then?")), facts=lambda _: facts)
    assert least <= asked.cached_tokens["first"] / asked.input_tokens <= most


# What goes on from another answer


def test_response_continues_at_its_provider() -> None:
    known = knowledge()
    known.note_response("resp_1", AT["first"])
    body = {"input": "And then?", "previous_response_id": "resp_1", "model": "fastlane/auto"}
    # The same key at the same address: what is kept there can be read from there.
    assert set(ask(known, call(body, RESPONSES)).unfit) == {"own", "second"}


def test_unknown_reference_fits_only_the_own_provider() -> None:
    known = knowledge()
    for field in ({"previous_response_id": "resp_9"}, {"conversation": "conv_9"}, {"conversation": {"id": "conv_9"}}):
        asked = ask(known, call({"input": "And then?", **field}, RESPONSES))
        assert set(asked.unfit) == {"first", "second", "neighbour"}
    known.note_response("conv_9", AT["second"])
    asked = ask(known, call({"input": "And then?", "conversation": {"id": "conv_9"}}, RESPONSES))
    assert "second" not in asked.unfit


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
def test_query_reads_any_body_without_changing_it(body: dict[str, Any], endpoint: str) -> None:
    before = copy.deepcopy(body)
    given_call = call(body, endpoint)
    fields = {name: getattr(given_call, name) for name in Call.__dataclass_fields__}
    asked = ask(knowledge(), given_call)
    assert repr(body) == repr(before)
    assert all(getattr(given_call, name) is value for name, value in fields.items())
    assert asked.body_bytes >= 0
    assert asked.input_tokens >= 0
