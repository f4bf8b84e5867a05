"""Opt in for apps that call `openai.chat.completions.create(...)` on the module itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import openai

from ._client import OpenAI
from ._exceptions import FastlaneError
from ._pipeline import Hook
from ._shell import make_pipeline, settings_of
from .plays import Play

_NAMES = ("_ModuleClient", "_AzureModuleClient")
_stock: dict[str, Any] = {}


def install(*, plays: Iterable[Play] | None = None, hooks: Iterable[Hook] | None = None, strict: bool = False) -> None:
    """Make openai's module-level client one of ours, until `uninstall()`.

    The classes `openai.OpenAI` and `openai.AsyncOpenAI` stay as they are: import those from fastlane. Call it once,
    before the first call; a second call takes the place of the first.
    """
    settings = {"plays": tuple(plays) if plays is not None else None, "hooks": tuple(hooks or ()), "strict": strict}
    make_pipeline(settings["plays"], settings["hooks"], strict)  # complain here, and not at the first call
    if not all(hasattr(openai, name) for name in (*_NAMES, "_reset_client")):
        raise FastlaneError(
            f"fastlane.install() does not know the module-level client of openai {openai.__version__}; "
            "use fastlane.OpenAI() instead"
        )
    uninstall()
    for name in _NAMES:
        stock = getattr(openai, name)
        _stock[name] = stock
        setattr(openai, name, _module_client(stock, settings))
    openai._reset_client()


def uninstall() -> None:
    """Give openai its own module-level client back; nothing happens if `install()` was not called."""
    for name, stock in _stock.items():
        setattr(openai, name, stock)
    if _stock:
        # The module-level client leaves the HTTP client that it was made with in the module.
        if settings_of(openai.http_client) is not None:
            openai.http_client = None
        _stock.clear()
        openai._reset_client()


def _module_client(stock: Any, settings: dict[str, Any]) -> type[Any]:
    class ModuleClient(OpenAI, stock):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            super().__init__(**{**settings, **options})

    ModuleClient.__name__ = stock.__name__
    return ModuleClient
