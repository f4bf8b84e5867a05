"""Facts made up by hypothesis, of every shape that a file can hold."""

from __future__ import annotations

from datetime import date
from typing import Any

from hypothesis import strategies as st

from fastlane.providers import Fact, ProviderFacts

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(str.strip)
COUNT = st.integers(1, 2**53)
SECONDS = st.floats(min_value=0, exclude_min=True, allow_nan=False, allow_infinity=False)
FORMS = st.lists(st.sampled_from(["json+gzip", "msgpack", "msgpack+gzip"]), unique=True).map(
    lambda more: ["json", *more]
)
ENDPOINT = st.sampled_from(["/chat/completions", "/completions", "/responses"])
MODEL = st.sampled_from(["gpt-5*", "gpt-5.1-2*", "a/b", "*:thinking"])
PATHS = st.dictionaries(st.sampled_from(["input", "cached", "output"]), TEXT)
LIMIT = st.fixed_dictionaries(
    {"counts": st.sampled_from(["requests", "input_tokens"])},
    optional={"window_s": SECONDS, "limit_header": st.just("x-limit"), "kind": st.sampled_from(["bucket", "window"])},
)
ACCEPTED = st.booleans() | st.just("ignored") | st.lists(TEXT | st.booleans() | st.integers(-9, 9), min_size=1)


def fact(value: st.SearchStrategy[Any]) -> st.SearchStrategy[Fact[Any]]:
    where = st.sampled_from(["https://docs.example.com/a", "http://127.0.0.1:8000"])
    when = st.dates(date(2026, 1, 1), date(2030, 1, 1))
    evidence = st.sampled_from(["documented", "source code", "reported", "measured"])
    found: st.SearchStrategy[Fact[Any]] = st.builds(
        Fact, value=value, source=where, checked=when, evidence=evidence, note=st.just("") | TEXT
    )
    missing: st.SearchStrategy[Fact[Any]] = st.builds(
        Fact, source=st.none() | where, checked=when, evidence=st.just("not found"), note=TEXT
    )
    return found | missing


def part(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={name: fact(value) for name, value in fields.items()})


def by_model(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    tables = {name: st.dictionaries(MODEL, fact(value), max_size=2) for name, value in fields.items()}
    return st.fixed_dictionaries({}, optional=tables)


def cache() -> st.SearchStrategy[dict[str, Any]]:
    single = part(
        automatic=st.booleans(),
        minimum_tokens=COUNT,
        lifetime_s=SECONDS,
        key_field=TEXT,
        breakpoint_value=st.dictionaries(TEXT, TEXT, max_size=2),
        explicit_models=st.lists(TEXT, max_size=2),
    )
    by_endpoint = st.fixed_dictionaries(
        {},
        optional={
            "retention_values": st.dictionaries(ENDPOINT, fact(st.lists(TEXT, max_size=2)), max_size=2),
        },
    )
    return st.builds(lambda one, other: {**one, **other}, single, by_endpoint)


def facts(slug: str) -> st.SearchStrategy[ProviderFacts]:
    tables = {
        "name": TEXT,
        "base_url": st.just("https://api.example.com/v1"),
        "origins": st.lists(st.sampled_from(["https://a.example.com", "https://*.example.com"])),
        "http2": fact(st.booleans()),
        "encodings": st.dictionaries(ENDPOINT, fact(FORMS)),
        "media_types": st.dictionaries(TEXT, fact(TEXT), max_size=2),
        "cache": cache(),
        "usage": st.dictionaries(ENDPOINT, fact(PATHS)),
        "parameters": st.dictionaries(TEXT, fact(ACCEPTED), max_size=3),
        "tiers": part(values=st.lists(TEXT, max_size=2), full_status=COUNT),
        "rate_limits": st.builds(
            lambda one, other: {**one, **other},
            part(headers=st.lists(TEXT, max_size=2), refunded=st.booleans()),
            st.fixed_dictionaries({}, optional={"limits": st.dictionaries(TEXT, fact(LIMIT), max_size=2)}),
        ),
        "structured": part(strict=st.booleans()),
        "output": by_model(most_tokens=COUNT),
        "reasoning": st.builds(
            lambda one, other: {**one, **other},
            part(models=st.lists(TEXT, max_size=2), counted=st.booleans()),
            by_model(efforts=st.lists(TEXT, max_size=2)),
        ),
        "batch": part(window_s=SECONDS),
    }
    return st.fixed_dictionaries({}, optional=tables).map(
        lambda chosen: ProviderFacts.model_validate({"slug": slug, **chosen})
    )
