"""`install()` for applications that call `openai.chat.completions.create(...)` on the module."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import openai

from .._environment import is_disabled
from ..compat.clients import module_client_classes, set_module_client_classes
from ..engine.pipeline import OnCallEnd
from ..errors import FastlaneError
from ..plays import Play
from .clients import OpenAI
from .configuration import make_pipeline

_stock: dict[str, Any] = {}


def install(
    *,
    plays: Iterable[Play] | None = None,
    only_plays: Iterable[Play] | None = None,
    on_call_end: OnCallEnd | Iterable[OnCallEnd] | None = None,
    raise_play_errors: bool = False,
) -> None:
    """Replace openai's module-level client by fastlane's, until `uninstall()`.

    `plays` adds to the default plays, `only_plays` replaces them, as for `OpenAI`. The classes `openai.OpenAI` and
    `openai.AsyncOpenAI` are not changed: import those from fastlane. A second call replaces the settings of the first.
    Raises ConfigurationError for invalid arguments, and FastlaneError if the installed openai has no module-level
    client.
    """
    # Raise ConfigurationError here, not at the first call.
    is_disabled()
    pipeline = make_pipeline(plays, only_plays, on_call_end, raise_play_errors, asynchronous=False)
    settings = {
        "only_plays": pipeline.plays,
        "on_call_end": pipeline.on_call_end,
        "raise_play_errors": raise_play_errors,
    }
    uninstall()
    classes = module_client_classes()
    if not classes:
        raise FastlaneError(
            f"fastlane.install() does not know the module-level client of openai {openai.__version__}; "
            "use fastlane.OpenAI() instead"
        )
    _stock.update(classes)
    set_module_client_classes({name: _module_client(stock, settings) for name, stock in classes.items()})


def uninstall() -> None:
    """Restore openai's own module-level client. Does nothing if `install()` was not called."""
    if _stock:
        set_module_client_classes(_stock)
        _stock.clear()


def _module_client(stock: Any, settings: dict[str, Any]) -> type[Any]:
    class ModuleClient(OpenAI, stock):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            super().__init__(**{**settings, **options})

    ModuleClient.__name__ = stock.__name__
    return ModuleClient
