"""Whatever an application imports from openai, it can import from fastlane."""

from __future__ import annotations

import openai
import pytest

import fastlane

OURS = {"OpenAI", "AsyncOpenAI", "AzureOpenAI", "AsyncAzureOpenAI", "Client", "AsyncClient"}
# Classes of openai that fastlane has no form of: they are offered as they are.
STOCK = {"BedrockOpenAI", "AsyncBedrockOpenAI"}


@pytest.mark.parametrize(
    "name",
    sorted(
        {*openai.__all__, "BedrockOpenAI", "pydantic_function_tool", "AssistantEventHandler"}
        - OURS
        - {"__title__", "__version__"}
    ),
)
def test_what_openai_exports_is_found_in_fastlane_and_is_openais_own(name: str) -> None:
    assert getattr(fastlane, name) is getattr(openai, name)


def test_no_name_but_the_clients_means_something_else_here_than_in_openai() -> None:
    assert {name for name in fastlane.__all__ if hasattr(openai, name)} == OURS


@pytest.mark.parametrize("name", ["api_key", "base_url", "chat", "responses"])
def test_what_sets_up_the_module_level_client_is_not_offered(name: str) -> None:
    assert not hasattr(fastlane, name)


def test_no_client_is_the_stock_one_by_another_name() -> None:
    names = [name for name in dir(openai) if not name.startswith("_") and name not in STOCK]
    classes = {name: getattr(fastlane, name) for name in names if isinstance(vars(openai).get(name), type)}
    clients = {name for name, value in classes.items() if issubclass(value, openai.OpenAI | openai.AsyncOpenAI)}

    assert clients == OURS


def test_a_name_that_neither_has_is_an_error_that_says_so() -> None:
    with pytest.raises(AttributeError, match="'fastlane' has no attribute 'OpenIA'"):
        getattr(fastlane, "OpenIA")  # noqa: B009 - spelled so that no checker objects
