from __future__ import annotations

import ast
import inspect
import typing
from pathlib import Path
from typing import Any

import openai
import pytest

import fastlane

NAMES = ("OpenAI", "AsyncOpenAI", "AzureOpenAI", "AsyncAzureOpenAI")
METHODS = ("__init__", "copy", "with_options")
OWN = {"plays", "only_plays", "on_call_end", "raise_play_errors", "experiment", "proxy"}

# The options name what the newest openai takes; an older one takes fewer.
NEWEST = (3, 50)
INSTALLED = tuple(int(part) for part in openai.__version__.split(".")[:2])


def options_for_type_checkers(name: str) -> set[str]:
    """The keys of a TypedDict, read from its source: an older openai has not all the types that it is written with."""
    source = Path(fastlane.__path__[0], "client", "options.py").read_text()
    classes = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}

    def keys(node: ast.ClassDef) -> set[str]:
        own = {
            line.target.id
            for line in node.body
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
        }
        bases = [classes[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in classes]
        return own.union(*map(keys, bases))

    return keys(classes[name])


def parameters(client: str, method: str, module: Any) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(getattr(getattr(module, client), method)).parameters)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", NAMES)
def test_signature_is_the_stock_one_plus_fastlane_arguments(name: str, method: str) -> None:
    ours, stock = parameters(name, method, fastlane), parameters(name, method, openai)

    assert {each: ours[each] for each in stock} == stock
    assert ours.keys() - stock.keys() == OWN
    assert all(ours[each].kind is inspect.Parameter.KEYWORD_ONLY for each in OWN)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", NAMES)
def test_type_hints_include_those_of_openai(name: str, method: str) -> None:
    stock = typing.get_type_hints(getattr(getattr(openai, name), method))

    assert stock.keys() <= typing.get_type_hints(getattr(getattr(fastlane, name), method)).keys()


@pytest.mark.parametrize(
    ("options", "names", "method"),
    [*((f"{name}Options", (name,), "__init__") for name in NAMES), ("CopyOptions", NAMES, "copy")],
)
def test_options_for_type_checkers_match_openai(options: str, names: tuple[str, ...], method: str) -> None:
    named = options_for_type_checkers(options) - OWN
    taken = {each for name in names for each in parameters(name, method, openai)} - {"self", "_extra_kwargs"}

    assert taken <= named
    if INSTALLED >= NEWEST:
        assert named == taken


@pytest.mark.parametrize("name", NAMES)
def test_client_class_has_stock_name_and_is_a_subclass(name: str) -> None:
    ours, stock = getattr(fastlane, name), getattr(openai, name)

    assert ours.__name__ == ours.__qualname__ == name
    assert issubclass(ours, stock)


@pytest.mark.parametrize("name", NAMES)
def test_missing_key_is_the_stock_error(name: str) -> None:
    with pytest.raises(openai.OpenAIError) as stock:
        getattr(openai, name)()

    with pytest.raises(openai.OpenAIError) as ours:
        getattr(fastlane, name)()
    assert str(ours.value) == str(stock.value)
    assert type(ours.value) is type(stock.value)


@pytest.mark.parametrize("name", NAMES)
def test_keys_and_urls_come_from_the_same_variables(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    azure = "Azure" in name
    monkeypatch.setenv("AZURE_OPENAI_API_KEY" if azure else "OPENAI_API_KEY", "sk-of-the-environment")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT" if azure else "OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-the-environment")
    options = {"api_version": "2024-10-21"} if azure else {}
    stock = getattr(openai, name)(**options)

    ours = getattr(fastlane, name)(**options)
    assert ours.api_key == stock.api_key == "sk-of-the-environment"
    assert (ours.base_url, ours.organization) == (stock.base_url, stock.organization)
    assert (ours.timeout, ours.max_retries) == (stock.timeout, stock.max_retries)
