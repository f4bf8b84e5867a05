"""A pytest plugin that puts another module's clients in the place of openai's, before any test is imported.

FASTLANE_CONFORMANCE_MODULE names the module ("fastlane"), FASTLANE_CONFORMANCE_SCOPE is "core" (OpenAI and AsyncOpenAI)
or "all" (the Azure and Bedrock names too, where the module has them). `openai._client.OpenAI` stays the stock class:
openai's own super() calls and its module-level client are built on it.
"""

from __future__ import annotations

import importlib
import os

import openai
import pytest

_HOMES = {
    "OpenAI": "openai",
    "AsyncOpenAI": "openai",
    "AzureOpenAI": "openai.lib.azure",
    "AsyncAzureOpenAI": "openai.lib.azure",
    "BedrockOpenAI": "openai.lib.bedrock",
    "AsyncBedrockOpenAI": "openai.lib.bedrock",
}
_CORE = ("OpenAI", "AsyncOpenAI")


def _substitute(module: str, names: tuple[str, ...]) -> None:
    provider = importlib.import_module(module)
    for name in names:
        if name not in _CORE and not hasattr(provider, name):
            continue
        stock, ours = getattr(openai, name), getattr(provider, name)
        if not (isinstance(ours, type) and issubclass(ours, stock)):
            raise pytest.UsageError(f"{module}.{name} must be a subclass of openai.{name}")
        setattr(openai, name, ours)
        setattr(importlib.import_module(_HOMES[name]), name, ours)
    for alias in ("Client", "AsyncClient"):
        setattr(openai, alias, getattr(openai, alias.replace("Client", "OpenAI")))


if os.environ.get("FASTLANE_CONFORMANCE_MODULE"):
    _substitute(
        os.environ["FASTLANE_CONFORMANCE_MODULE"],
        tuple(_HOMES) if os.environ.get("FASTLANE_CONFORMANCE_SCOPE") == "all" else _CORE,
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which classes the suite really saw."""
    seen = ", ".join(f"{name} is {getattr(openai, name).__module__}.{name}" for name in _HOMES if hasattr(openai, name))
    terminalreporter.write_line(f"fastlane_conformance: openai {openai.__version__}; {seen}")
