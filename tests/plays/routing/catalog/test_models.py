"""A catalog is data that cannot be changed, and what cannot be is refused with what was expected instead."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

import fastlane
from fastlane import CallRefusedError, ConfigurationError, Routing
from fastlane.catalog import Catalog, CatalogModel, ModelPrice, Route, Score, Task
from fastlane.providers import facts_of
from tests.call_peer import ANSWER
from tests.prepared_server import LIBRARY

SPEED: dict[str, Any] = {"first_token_s": ((1_000, 0.5),), "tokens_per_s": 100}
KEY = "sk-proj-" + "Ab1" * 12


def test_catalog_model_is_immutable_and_hashable() -> None:
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": " "}, "name: expected '\\\\S', got ' '"),
        ({"capabilities": ["json", "fly"]}, "capabilities.1: expected 'tools', .* or 'audio', got 'fly'$"),
        ({"endpoints": ["/embeddings"]}, "endpoints.0: expected one of .*'/responses', got '/embeddings'"),
        ({"endpoints": []}, "endpoints: .* at least 1 item"),
        ({"base_url": "api.example.com"}, "base_url: expected an address such as .*, got something else"),
        ({"facts": "Our Gateway"}, "facts: "),
        ({"first_token_s": [[1_000]]}, "first_token_s.0.1: expected this key, got none"),
        ({"first_token_s": [[1_000, 0]]}, r"first_token_s.0.1: expected greater than 0, got 0"),
        ({"first_token_s": [[1, 0.5], [1, 0.6]]}, "first_token_s: expected one pair for each number of tokens"),
        ({"tokens_per_s": float("inf")}, "tokens_per_s: expected a finite number, got inf"),
        ({"parameters": {"temperature": 0.5}}, "parameters.temperature.*: expected a valid boolean, got 0.5"),
        ({"scores": {"triage": {"passed": 3, "count": 2}}}, "scores.triage: .* got 3 and 2"),
        ({"scores": {"triage": 0.9}}, "scores.triage: expected a table such as { passed = 41, count = 60 }, got 0.9"),
        ({"price": {"input": 1}}, "price.output: expected this key, got none"),
        ({"checked": "2026"}, "checked: expected a valid date, got '2026'"),
        ({"sandwich": 1}, "sandwich: unknown key, got 1"),
    ],
)
def test_invalid_catalog_value_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
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
def test_possible_key_in_a_catalog_is_refused_and_not_quoted(changes: dict[str, Any]) -> None:
    written = {"name": "small", "base_url": "https://api.example.com/v1", **SPEED, **changes}

    for make in (lambda: CatalogModel(**written), lambda: Catalog(models=[written])):  # type: ignore[list-item]
        with pytest.raises(ConfigurationError) as caught:
            make()
        shown = f"{caught.value!r} {caught.value} {caught.value.__context__!r} {caught.value.__cause__!r}"
        assert "Ab1Ab1" not in shown
        assert "0123456789" not in shown


@pytest.mark.parametrize("name", ["EXAMPLE_API_KEY", "KEY", "_KEY_2", "key", "my_key_2", "AZURE_OPENAI_API_KEY_EU1"])
def test_name_of_a_variable_is_no_key(name: str) -> None:
    model = CatalogModel(name="small", base_url="https://api.example.com/v1", api_key_env=name, **SPEED)

    assert model.api_key_env == name


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
def test_model_origin_comes_from_its_base_url(base_url: str | None, origin: str) -> None:
    catalog = Catalog(models=(CatalogModel(name="small", base_url=base_url, **SPEED),))

    assert catalog.origin_of(catalog.models[0]) == origin


def test_models_are_found_by_name() -> None:
    small, large = CatalogModel(name="small", **SPEED), CatalogModel(name="large", **SPEED)
    catalog = Catalog(models=(small, large))

    assert catalog.named("large") is large
    with pytest.raises(ConfigurationError, match=r"expected the name of a model \(small, large\), got 'medium'"):
        catalog.named("medium")


def test_digest_differs_where_anything_does() -> None:
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
    of_many = CatalogModel(name="small", capabilities=frozenset({"json", "tools", "vision"}), **SPEED)
    assert Catalog(models=(of_many,)).digest == "34851115", "sets are in another order in each process"
    assert repr(catalog) == str(catalog) == f"Catalog(1 models, digest='{catalog.digest}')"


def test_pickles_and_copies_are_the_same_catalog() -> None:
    catalog = Catalog.example()

    assert pickle.loads(pickle.dumps(catalog)) == catalog
    assert copy.deepcopy(catalog) == catalog
    assert hash(copy.deepcopy(catalog)) == hash(catalog)


def test_cached_tokens_cost_their_own_price() -> None:
    price = ModelPrice(input=2, cached_input=0.5, output=8)

    assert price.of(1_000_000, 100_000, 400_000) == pytest.approx(0.6 * 2 + 0.4 * 0.5 + 0.1 * 8)


def test_scores_need_a_task_of_the_catalog_if_it_has_tasks() -> None:
    small = CatalogModel(name="small", scores={"invioce": Score(1, 2)}, **SPEED)

    with pytest.raises(
        ConfigurationError, match=r'models\[0\] \("small"\): scores: .*\(\'invoice\'\), got \'invioce\''
    ):
        Catalog(models=(small,), tasks={"invoice": Task()})
    assert Catalog(models=(small,)).named("small").scores == {"invioce": Score(1, 2)}


# A file of models is read as a whole, or refused: which file, model and key, what was expected, what came


ROOT = Path(__file__).parents[4]
GOOD = 'name = "small"\nfirst_token_s = [[1_000, 0.5]]\ntokens_per_s = 100\n'


def load(tmp_path: Path, text: str) -> Catalog:
    path = tmp_path / "catalog.toml"
    path.write_text(text)
    return Catalog.load(path)


def test_file_in_the_documentation_can_be_used(tmp_path: Path) -> None:
    page = (ROOT / "docs/catalog.md").read_text()
    [written] = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)

    catalog = load(tmp_path, written)

    small = catalog.named("small")
    assert small.scores == {"triage": Score(57, 60)}
    assert small.checked == date(2026, 11, 22)
    assert small.price is not None
    assert small.price.cached_input == 0.02
    assert catalog.named("large").base_url is None
    assert catalog.tasks == {"triage": Task(min_quality=45, min_pass_rate=0.9, output_tokens=120)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "models: expected this key, got none"),
        ("models = []", "models: expected at least one model, got none"),
        ("[[models]]\ntokens_per_s = 1", "models.0.name: expected this key, got none"),
        (f'[[models]]\n{GOOD}api_key_env = "KEY"', "models.0: expected a base_url beside api_key_env"),
        (f"[[models]]\n{GOOD}[[models]]\n{GOOD}", "models: expected each model to have a name of its own"),
        (f"[[models]]\n{GOOD}[tasks.triage]\nbar = 45", "tasks.triage.bar: unknown key, got 45"),
        (f"[[models]]\n{GOOD}[tasks.triage]\nmin_pass_rate = 90", "tasks.triage.min_pass_rate: expected less than"),
        (f'snapshot = "June"\n[[models]]\n{GOOD}', "snapshot: expected a valid date"),
        ("= 3", "expected TOML, got something else"),
        (f'[[models]]\n{GOOD}base_url = "https://x.example"\napi_key_env = "csk-secret"', 'such as "EXAMPLE_API_KEY"'),
        (f'[[models]]\n{GOOD}base_url = "https://x.example"\napi_key = "secret"', "models.0.api_key: "),
    ],
)
def test_invalid_catalog_file_is_refused_with_reason(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        load(tmp_path, text)

    assert str(caught.value).startswith(str(tmp_path / "catalog.toml"))
    assert "secret" not in str(caught.value)


def test_catalog_errors_are_reported_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, '[[models]]\nname = "a"\nquality = "b"\n[[models]]\nname = "c"\nprovider = 1\nfacts = 2')

    lines = str(caught.value).splitlines()
    assert len(lines) == 6
    assert all(line.startswith(str(tmp_path)) for line in lines)
    assert lines[-1].endswith("2 more")


@pytest.mark.parametrize(
    ("path", "message"),
    [("missing.toml", "No such file"), (".", "Is a directory"), ("a\0b", "expected a TOML file with a catalog")],
)
def test_missing_catalog_file_is_refused(path: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Catalog.load(tmp_path / path)


def test_example_models_have_a_source_and_documented_figures() -> None:
    page = (ROOT / "docs/catalog.md").read_text()
    catalog = Catalog.example()

    for model in catalog.models:
        assert "https://" in model.source
        assert model.checked is not None
        assert facts_of(catalog.origin_of(model)).slug != "unknown"
        row = f"| {model.name} | {model.quality:g} | {model.first_token_s[0][1]:g} | {model.tokens_per_s:,.0f} |"
        assert row in page


def test_deeply_nested_or_huge_catalog_file_is_refused(tmp_path: Path) -> None:
    for written in (f"models = {'[' * 5_000}", f"models.{'a.' * 3_000}b = 1", f"currency = {'9' * 4_400}"):
        with pytest.raises(ConfigurationError, match=r"catalog\.toml: "):
            load(tmp_path, written)


# What evaluations say of a model


HTTP = LIBRARY.Client(transport=LIBRARY.MockTransport(lambda _: LIBRARY.Response(200, json=ANSWER)))
ASK: Any = {"model": "fastlane/auto", "messages": [{"role": "user", "content": "Name a river."}]}


def why_refused(quality: float | None, bar: float | None, rate: float | None, measured: Score) -> str | None:
    """Why a call is not sent to a model of this quality and these scores; None if it is."""
    model = CatalogModel(name="m", quality=quality, scores={"triage": measured}, **SPEED)
    routing = Routing(Catalog(models=(model,)), task="triage", min_quality=bar, min_pass_rate=rate)
    client = fastlane.OpenAI(api_key="k", base_url="http://server/v1", http_client=HTTP, only_plays=[routing])
    try:
        client.chat.completions.create(**ASK)
    except CallRefusedError as error:
        return str(error)
    return None


@pytest.mark.parametrize(("passed", "count"), [(3, 2), (-1, 2), (True, 1), (1.0, 2)])
def test_score_that_cannot_be_is_refused(passed: int, count: int) -> None:
    with pytest.raises(ConfigurationError, match="passed is not the larger"):
        Score(passed, count)


@pytest.mark.parametrize(
    ("quality", "bar", "rate", "measured", "why"),
    [
        (33.3, 45, None, Score(), "quality 33.3 is below 45"),
        (45, 45, None, Score(), None),
        (None, 45, None, Score(), "its quality is not known, and 45 is required"),
        (None, None, None, Score(), None),
        (50, 45, None, Score(0, 100), None),
        (50, 45, 0.8, Score(), None),
        (33, 45, 0.8, Score(58, 60), None),
        (50, 45, 0.8, Score(41, 60), "passed 41 of 60, below 0.8"),
        (50, 45, 0.8, Score(0, 19), None),
        (50, 45, 0.8, Score(16, 20), None),
        (50, 45, 0.8, Score(15, 20), "passed 15 of 20, below 0.8"),
        (40, 45, 0.8, Score(15, 19), "quality 40 is below 45"),
        (None, None, 0.8, Score(15, 19), None),
    ],
)
def test_model_clears_quality_and_pass_rate_bars(
    quality: float | None, bar: float | None, rate: float | None, measured: Score, why: str | None
) -> None:
    found = why_refused(quality, bar, rate, measured)

    assert (why in found) if found is not None and why is not None else found is why


@pytest.mark.parametrize("rate", [0.5, 0.8, 0.9, 0.95, 0.99, 1.0])
def test_model_that_has_never_failed_never_fails(rate: float) -> None:
    counts = (0, 7, 14, 19, 20, 21, 49, 700, 1_995)

    assert {why_refused(50, 45, rate, Score(count, count)) for count in counts} == {None}


# The route in place of a model's name is a text with all requirements


ASKED = st.fixed_dictionaries(
    {},
    optional={
        "min_quality": st.floats(allow_nan=False, allow_infinity=False),
        "task": st.text(min_size=1).filter(lambda text: text.encode(errors="ignore").decode() == text),
        "min_pass_rate": st.floats(0, 1),
        "quantile": st.floats(0.01, 0.999),
    },
)


def test_route_is_its_model_string() -> None:
    route = Route(task="triage", min_quality=45)

    assert route == "fastlane/auto?min_quality=45&task=triage"
    assert json.dumps({"model": route}) == '{"model": "fastlane/auto?min_quality=45&task=triage"}'
    assert repr(route) == "Route(min_quality=45.0, task='triage')"
    assert Route() == "fastlane/auto"


@given(ASKED)
def test_route_round_trips_through_text_pickle_and_copy(asked: dict[str, Any]) -> None:
    route = Route(**asked)

    assert hash(route) == hash(str(route))
    for again in (Route.parse(str(route)), pickle.loads(pickle.dumps(route)), copy.deepcopy(route), copy.copy(route)):
        assert type(again) is Route
        assert again == route
        assert vars(again) == vars(route)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fastlane/auto?quality=45", "'quality' is not known .*min_quality, task, min_pass_rate and quantile"),
        ("fastlane/auto?min_quality", "expected .*name=value"),
        ("fastlane/auto?min_quality=high", "min_quality .* must be a number, got 'high'"),
        ("fastlane/auto?min_quality=nan", "min_quality must be a number in the units"),
        ("fastlane/auto?task=", "task must be a text that is not empty"),
        ("fastlane/auto?task=a&task=b", "'task' stands twice"),
        ("fastlane/auto?min_pass_rate=2", "min_pass_rate must be a number from 0 to 1, got 2.0"),
        ("fastlane/auto?quantile=1", "quantile must be a number from 0.01 to 0.999"),
        ("fastlane/auto?task=%ff", "expected .*name=value"),
    ],
)
def test_invalid_route_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Route.parse(text)


def test_route_is_immutable() -> None:
    route = Route(task="triage")

    with pytest.raises(AttributeError, match="make another one"):
        route.task = "summary"
    with pytest.raises(AttributeError, match="make another one"):
        del route.task
