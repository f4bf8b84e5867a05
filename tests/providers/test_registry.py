"""Which facts hold where: registered ones first, then the package's, then those of unknown servers."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from fastlane import ConfigurationError
from fastlane.providers import (
    Fact,
    ProviderFacts,
    facts_named,
    facts_of,
    identified_facts,
    load,
    names,
    note_server,
    register,
    registered,
    registry,
)

UNKNOWN = facts_named("unknown")


def known(value: Any) -> Fact[Any]:
    return Fact(value=value, source="https://docs.example.com", checked=date(2026, 11, 22), evidence="measured")


def some(slug: str = "gateway", **tables: Any) -> ProviderFacts:
    return ProviderFacts(slug=slug, **{"http2": known(value=False), **tables})


@pytest.mark.parametrize(
    ("origin", "slug"),
    [
        ("https://api.openai.com:443", "openai"),
        ("https://my-resource.openai.azure.com:443", "azure_openai"),
        ("https://api.cerebras.ai", "cerebras"),
        ("https://openai.azure.com", "unknown"),
        ("https://api.openai.com.example.com", "unknown"),
        ("http://127.0.0.1:11434", "unknown"),
        ("nonsense", "unknown"),
    ],
)
def test_origin_has_the_facts_of_its_provider(origin: str, slug: str) -> None:
    assert facts_of(origin) is facts_named(slug)


def test_facts_apply_while_they_are_registered() -> None:
    assert facts_of("http://localhost:8000") is UNKNOWN
    with registered(some(), origins=["http://localhost:8000", "https://*.example.com"]) as facts:
        assert facts_of("http://localhost:8000") is facts
        assert facts_of("https://a.example.com:443") is facts
        assert facts_named("gateway") is facts
        assert "gateway" in names()

        assert facts_of("http://localhost:8001") is UNKNOWN
    assert facts_of("http://localhost:8000") is UNKNOWN
    assert "gateway" not in names()


def test_narrower_pattern_counts_and_then_the_later_one() -> None:
    narrow = registered(some("narrow"), origins=["https://a.example.com"])
    wide = registered(some("wide"), origins=["https://*.example.com"])
    later = registered(some("later"), origins=["https://*.example.com"])

    with narrow, wide, later:
        assert facts_of("https://a.example.com").slug == "narrow"
        assert facts_of("https://b.example.com").slug == "later"


def test_facts_with_a_package_slug_override_the_package() -> None:
    before = facts_named("openai")

    with registered(some("openai")):
        after = facts_of("https://api.openai.com:443")

    assert after.http2 == known(value=False)
    assert after.cache == before.cache
    assert after.name == before.name
    assert facts_of("https://api.openai.com:443") is before


def test_second_registration_of_a_name_replaces_the_first() -> None:
    with registered(some(), origins=["http://localhost:1"]) as first:
        with registered(some(http2=None, cache={"automatic": known(value=True)}), origins=["http://localhost:2"]):
            assert facts_of("http://localhost:1") is UNKNOWN
            assert facts_of("http://localhost:2").http2 is None

        assert facts_of("http://localhost:1") is first


@pytest.mark.parametrize("action", [register, load])
def test_facts_extending_an_unknown_slug_are_refused(action: Any, tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text('extends = "sandwich"')

    with pytest.raises(ConfigurationError, match=r"gateway: extends: .*got 'sandwich'"):
        action(file)


def test_file_is_registered_at_the_origins_that_it_names(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text('extends = "openai"\norigins = ["http://localhost:8000"]')

    with registered(str(file)) as facts:
        assert facts_of("http://localhost:8000/v1") is facts
        assert facts.cache == facts_named("openai").cache


def test_invalid_origin_is_refused_and_nothing_registered() -> None:
    with pytest.raises(ConfigurationError, match="got 'local host'"):
        register(some(), origins=["local host"])

    assert "gateway" not in names()


@pytest.mark.parametrize(
    ("headers", "owned_by", "slug"),
    [
        ({"Server": "llama.cpp"}, None, "llama_cpp"),
        ({"server": "nginx"}, "llamacpp", "llama_cpp"),
        ({"server": "not llama.cpp"}, None, None),
        ({}, "library", "ollama"),
        ({"X-LiteLLM-Version": "1.83"}, "openai", "litellm"),
        ({"x-litellm-call-id": "1", "openai-processing-ms": "12"}, None, "litellm"),
        ({"x-litellm-call-id": "1"}, "vllm", "litellm"),
        ({"openai-processing-ms": "12"}, None, "openai"),
        ({"openai-processing-ms": "12", "azureml-model-session": "x"}, None, "azure_openai"),
        ({}, "openai", None),
    ],
)
def test_server_is_identified_by_its_headers(headers: dict[str, str], owned_by: str | None, slug: str | None) -> None:
    found = identified_facts(headers, owned_by)

    assert (None if found is None else found.slug) == slug


def test_no_more_origins_are_remembered_than_one_application_has() -> None:
    with registered(some()):  # What is found from here on is forgotten at its end.
        for number in range(2_500):
            facts_of(f"https://tenant-{number}.openai.azure.com")
        remembered = len(registry._found)

    assert 0 < remembered <= 1_000


def test_unknown_server_is_identified_by_its_header() -> None:
    origin = "http://10.1.2.3:4000"
    assert facts_of(origin).slug == "unknown"

    note_server(origin, {"X-LiteLLM-Version": "1.109.1"})

    assert facts_of(origin).slug == "litellm"
    assert facts_of("http://10.1.2.3:4001").slug == "unknown"


def test_first_server_header_counts_below_known_origin() -> None:
    note_server("http://10.1.2.5:4000", {})
    note_server("http://10.1.2.5:4000", {"x-litellm-version": "1.109.1"})
    note_server("https://api.openai.com:443", {"x-litellm-version": "1.109.1"})

    assert facts_of("http://10.1.2.5:4000").slug == "unknown"
    assert facts_of("https://api.openai.com:443").slug == "openai"
    with registered(facts_named("openai"), origins=["http://10.1.2.4"]):
        note_server("http://10.1.2.4:80", {"x-litellm-version": "1.109.1"})
        assert facts_of("http://10.1.2.4:80").slug == "openai"
