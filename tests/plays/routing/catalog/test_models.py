"""A catalog is data that cannot be changed, and what cannot be is refused with what was expected instead."""

from __future__ import annotations

import copy
import dataclasses
import os
import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError

from fastlane import ConfigurationError
from fastlane.catalog import CAPABILITIES, Catalog, CatalogModel, ModelPrice, Score, Task

SPEED: dict[str, Any] = {"first_token_s": ((1_000, 0.5),), "tokens_per_s": 100}
KEY = "sk-proj-" + "Ab1" * 12


def test_a_model_is_called_by_its_name_unless_the_provider_calls_it_otherwise() -> None:
    assert CatalogModel(name="small", **SPEED).model == "small"
    assert CatalogModel(name="small", model="small-20b", **SPEED).model == "small-20b"


def test_what_is_not_said_promises_nothing() -> None:
    model = CatalogModel(name="small", **SPEED)

    assert model.base_url is None
    assert model.quality is None
    assert model.capabilities == frozenset()
    assert model.endpoints == ("/chat/completions",)
    assert model.output_factor == 1.0
    assert (model.context_tokens, model.max_output_tokens, model.price) == (None, None, None)


def test_lists_and_tables_become_what_does_not_change() -> None:
    model = CatalogModel(
        name="small",
        first_token_s=[[10_000, 1.5], [1_000, 1]],  # type: ignore[arg-type]
        tokens_per_s=100,
        capabilities=["json", "tools"],  # type: ignore[arg-type]
        endpoints=["/responses"],  # type: ignore[arg-type]
        parameters={"temperature": False, "verbosity": ["low", "medium"]},  # type: ignore[dict-item]
        scores={"triage": {"passed": 1, "count": 2}},  # type: ignore[dict-item]
        price={"input": 1, "output": 2},  # type: ignore[arg-type]
    )

    assert model.first_token_s == ((1_000, 1.0), (10_000, 1.5))
    assert model.capabilities == {"json", "tools"}
    assert model.parameters == {"temperature": False, "verbosity": ("low", "medium")}
    assert model.scores == {"triage": Score(1, 2)}
    assert model.price == ModelPrice(input=1, output=2)
    assert isinstance(hash(model), int)
    with pytest.raises(ValidationError, match="frozen"):
        model.quality = 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.scores["triage"].passed = 2  # type: ignore[misc]


def test_every_ability_has_a_name() -> None:
    assert CatalogModel(name="all", capabilities=frozenset(CAPABILITIES), **SPEED).capabilities == set(CAPABILITIES)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": " "}, "name: expected '\\\\S', got ' '"),
        ({"capabilities": ["json", "fly"]}, "capabilities.1: expected 'tools', .* or 'audio', got 'fly'$"),
        ({"endpoints": ["/embeddings"]}, "endpoints.0: expected one of .*'/responses', got '/embeddings'"),
        ({"endpoints": []}, "endpoints: .* at least 1 item"),
        ({"base_url": "api.example.com"}, "base_url: expected an address such as .*, got something else"),
        ({"facts": "Our Gateway"}, "facts: "),
        ({"first_token_s": []}, "first_token_s: .* at least 1 item"),
        ({"first_token_s": [[1_000]]}, "first_token_s.0.1: expected this key, got none"),
        ({"first_token_s": [[1_000, 0]]}, r"first_token_s.0.1: expected greater than 0, got 0"),
        ({"first_token_s": [[1, 0.5], [1, 0.6]]}, "first_token_s: expected one pair for each number of tokens"),
        ({"tokens_per_s": float("inf")}, "tokens_per_s: expected a finite number, got inf"),
        ({"output_factor": 0}, "output_factor: expected greater than 0, got 0"),
        ({"context_tokens": 0}, "context_tokens: expected greater than or equal to 1, got 0"),
        ({"quality": float("nan")}, "quality: expected a finite number, got nan"),
        ({"parameters": {"temperature": 0.5}}, "parameters.temperature.*: expected a valid boolean, got 0.5"),
        ({"scores": {"triage": {"passed": 3, "count": 2}}}, "scores.triage: .* got 3 and 2"),
        ({"scores": {"triage": 0.9}}, "scores.triage: expected a table such as { passed = 41, count = 60 }, got 0.9"),
        ({"price": {"input": 1}}, "price.output: expected this key, got none"),
        ({"checked": "2026"}, "checked: expected a valid date, got '2026'"),
        ({"sandwich": 1}, "sandwich: unknown key, got 1"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        CatalogModel(**{"name": "small", **SPEED, **changes})

    assert str(caught.value).startswith("CatalogModel ")
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    "changes",
    [
        {"api_key_env": KEY},
        {"api_key_env": [KEY]},
        {"api_key": KEY},
        {"base_url": f"https://user:{KEY}@api.example.com/v1"},
        {"base_url": f"https://api.example.com/v1?key={KEY}"},
        {"base_url": KEY},
        {"tokens_per_s": None, "api_key_env": KEY},
        {"price": {"input": 1, "api_key": KEY}},
    ],
)
def test_what_may_be_a_key_is_refused_and_never_quoted(changes: dict[str, Any]) -> None:
    written = {"name": "small", "base_url": "https://api.example.com/v1", **SPEED, **changes}

    for make in (lambda: CatalogModel(**written), lambda: Catalog(models=[written])):  # type: ignore[list-item]
        with pytest.raises(ConfigurationError) as caught:
            make()
        shown = f"{caught.value!r} {caught.value} {caught.value.__context__!r} {caught.value.__cause__!r}"
        assert "Ab1Ab1" not in shown
        assert "0123456789" not in shown


@pytest.mark.parametrize("name", ["EXAMPLE_API_KEY", "KEY", "_KEY_2", "key", "my_key_2", "AZURE_OPENAI_API_KEY_EU1"])
def test_the_name_of_a_variable_is_no_key(name: str) -> None:
    model = CatalogModel(name="small", base_url="https://api.example.com/v1", api_key_env=name, **SPEED)

    assert model.api_key_env == name


def test_the_key_of_a_model_without_a_place_is_the_clients() -> None:
    with pytest.raises(ConfigurationError, match="expected a base_url beside api_key_env, got none"):
        CatalogModel(name="small", api_key_env="EXAMPLE_API_KEY", **SPEED)


@pytest.mark.parametrize(
    ("base_url", "origin"),
    [
        ("https://api.example.com/v1", "https://api.example.com:443"),
        ("https://API.Example.com/v1/", "https://api.example.com:443"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        (None, ""),
    ],
)
def test_a_model_is_somewhere(base_url: str | None, origin: str) -> None:
    catalog = Catalog(models=(CatalogModel(name="small", base_url=base_url, **SPEED),))

    assert catalog.origin_of(catalog.models[0]) == origin


def test_an_address_with_a_stroke_at_its_end_is_the_same() -> None:
    # By their addresses it is told whether two models are asked with the same account.
    with_stroke, without = (
        CatalogModel(name="small", base_url=f"https://api.example.com/v1{end}", **SPEED) for end in ("/", "")
    )

    assert with_stroke == without


def test_what_is_wrong_and_long_is_quoted_in_part() -> None:
    with pytest.raises(ConfigurationError, match=r"got '[a-z]{59}$"):
        CatalogModel(**{"name": "small", **SPEED, "tokens_per_s": "fast" * 1_000})


def test_models_are_found_by_name() -> None:
    small, large = CatalogModel(name="small", **SPEED), CatalogModel(name="large", **SPEED)
    catalog = Catalog(models=(small, large))

    assert catalog.named("large") is large
    with pytest.raises(ConfigurationError, match=r"expected the name of a model \(small, large\), got 'medium'"):
        catalog.named("medium")


def test_a_name_belongs_to_one_model() -> None:
    with pytest.raises(ConfigurationError, match="a name of its own, got more than one 'small'"):
        Catalog(models=(CatalogModel(name="small", **SPEED), CatalogModel(name="small", model="other", **SPEED)))


def test_a_catalog_without_models_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="Catalog: models: expected at least one model, got none"):
        Catalog(models=())


def test_the_digest_differs_where_anything_does() -> None:
    small = CatalogModel(name="small", **SPEED)
    catalog = Catalog(models=(small,))
    others = [
        Catalog(models=(CatalogModel(name="small", quality=1, **SPEED),)),
        Catalog(models=(CatalogModel(name="small", scores={"triage": Score(1, 2)}, **SPEED),)),
        Catalog(models=(CatalogModel(name="small", capabilities=frozenset({"json"}), **SPEED),)),
        Catalog(models=(small,), tasks={"triage": Task(min_quality=45)}),
        Catalog(models=(small,), currency="EUR"),
    ]

    assert len({catalog.digest, *(other.digest for other in others)}) == 6
    assert catalog.digest == Catalog(models=(CatalogModel(name="small", **SPEED),)).digest
    assert len(catalog.digest) == 8
    assert repr(catalog) == str(catalog) == f"Catalog(1 models, digest='{catalog.digest}')"


def test_pickles_and_copies_are_the_same_catalog() -> None:
    catalog = Catalog.example()

    assert pickle.loads(pickle.dumps(catalog)) == catalog
    assert copy.deepcopy(catalog) == catalog
    assert hash(copy.deepcopy(catalog)) == hash(catalog)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.floats(0, 1))
def test_a_call_costs_what_its_tokens_cost(input_tokens: int, output_tokens: int, cached: float) -> None:
    price = ModelPrice(input=2, cached_input=0.5, output=8)
    cached_tokens = int(input_tokens * cached)

    cost = price.of(input_tokens, output_tokens, cached_tokens)

    expected = 2 * (input_tokens - cached_tokens) + 0.5 * cached_tokens + 8 * output_tokens
    assert cost * 1_000_000 == pytest.approx(expected)
    assert price.of(input_tokens, output_tokens, cached_tokens) <= price.of(input_tokens, output_tokens)


def test_tokens_from_the_cache_cost_as_much_where_nobody_says_otherwise() -> None:
    assert ModelPrice(input=2, output=8).of(1_000_000, 0, 500_000) == 2.0
    assert ModelPrice(input=2, cached_input=0, output=8).of(1_000_000, 0, 500_000) == 1.0


def test_another_process_imports_no_catalog_before_it_asks_for_one_and_finds_the_same_digest() -> None:
    # Sets of texts are in another order there.
    code = """
import sys
import fastlane
assert "fastlane.plays.routing.catalog.models" not in sys.modules
from fastlane.plays.routing.catalog.models import Catalog
print(Catalog.example().digest)
"""
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True, text=True)

    assert done.stdout == f"{Catalog.example().digest}\n"


def test_scores_belong_to_the_tasks_of_the_catalog_where_it_has_some() -> None:
    small = CatalogModel(name="small", scores={"invioce": Score(1, 2)}, **SPEED)

    with pytest.raises(
        ConfigurationError, match=r'models\[0\] \("small"\): scores: .*\(\'invoice\'\), got \'invioce\''
    ):
        Catalog(models=(small,), tasks={"invoice": Task()})
    assert Catalog(models=(small,)).named("small").scores == {"invioce": Score(1, 2)}
