"""Opt in for apps that call `openai.chat.completions.create(...)` on the module itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import openai

from .._environment import is_disabled
from ..engine.pipeline import Hook
from ..errors import FastlaneError
from ..plays import Play
from .clients import OpenAI
from .configuration import make_pipeline, settings_of, stock_http_client_class

_NAMES = ("_ModuleClient", "_AzureModuleClient")
_stock: dict[str, Any] = {}


def install(
    *,
    plays: Iterable[Play] | None = None,
    only_plays: Iterable[Play] | None = None,
    hooks: Iterable[Hook] | None = None,
    strict: bool = False,
) -> None:
    """Make openai's module-level client one of ours, until `uninstall()`.

    `plays` adds to the default plays, `only_plays` replaces them, as for `OpenAI`.
    The classes `openai.OpenAI` and `openai.AsyncOpenAI` stay as they are: import those from fastlane. A second call
    takes the place of the first. Raises ConfigurationError for arguments that cannot work, and FastlaneError where the
    installed openai has no module-level client.
    """
    # Complain here, and not at the first call.
    is_disabled()
    pipeline = make_pipeline(plays, only_plays, hooks, strict)
    settings = {"only_plays": pipeline.plays, "hooks": pipeline.hooks, "strict": strict}
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
    _forget_own_http_client()
    openai._reset_client()


def uninstall() -> None:
    """Give openai its own module-level client back; nothing happens if `install()` was not called."""
    for name, stock in _stock.items():
        setattr(openai, name, stock)
    if _stock:
        _forget_own_http_client()
        _stock.clear()
        openai._reset_client()


def _forget_own_http_client() -> None:
    """Take out of the module what a module-level client left there: the HTTP client that it had made for itself."""
    left = openai.http_client
    if settings_of(left) is not None or type(left) is stock_http_client_class(asynchronous=False):
        openai.http_client = None


def _module_client(stock: Any, settings: dict[str, Any]) -> type[Any]:
    class ModuleClient(OpenAI, stock):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            super().__init__(**{**settings, **options})

    ModuleClient.__name__ = stock.__name__
    return ModuleClient
