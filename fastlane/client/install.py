"""`install()`: openai's own classes and its module-level client make fastlane's clients."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import openai

from .._environment import is_disabled
from ..compat.clients import module_client_classes, replace_classes, set_module_client_classes
from ..engine.pipeline import OnCallEnd
from ..errors import FastlaneError
from ..plays import Play
from .clients import AsyncAzureOpenAI, AsyncOpenAI, AzureOpenAI, OpenAI
from .configuration import make_pipeline

_stock: dict[str, Any] = {}


def install(
    *,
    plays: Iterable[Play] | None = None,
    only_plays: Iterable[Play] | None = None,
    on_call_end: OnCallEnd | Iterable[OnCallEnd] | None = None,
    raise_play_errors: bool = False,
) -> None:
    """Have openai's classes make fastlane's clients until `uninstall()`, also where they were imported before.

    These are `openai.OpenAI`, `AsyncOpenAI`, `AzureOpenAI` and `AsyncAzureOpenAI`, and the module-level client. Clients
    that exist stay as they are, and subclasses of openai's classes make what they made.

    `plays` adds to the default plays, `only_plays` replaces them, as for `OpenAI`. A second call replaces the settings
    of the first. Raises ConfigurationError for invalid arguments, and FastlaneError if the installed openai has no
    module-level client.
    """
    # Raise ConfigurationError here, not at the first call.
    is_disabled()
    pipeline = make_pipeline(plays, only_plays, on_call_end, raise_play_errors, asynchronous=False)
    settings: dict[str, Any] = {"on_call_end": pipeline.on_call_end, "raise_play_errors": raise_play_errors}
    if plays is not None or only_plays is not None:
        settings["only_plays"] = pipeline.plays
    uninstall()
    classes = module_client_classes()
    if not classes:
        raise FastlaneError(
            f"fastlane.install() does not know the module-level client of openai {openai.__version__}; "
            "use fastlane.OpenAI() instead"
        )
    _stock.update(classes)
    set_module_client_classes({name: _installed(OpenAI, stock, settings) for name, stock in classes.items()})
    kinds = {
        openai.OpenAI: OpenAI,
        openai.AsyncOpenAI: AsyncOpenAI,
        openai.AzureOpenAI: AzureOpenAI,
        openai.AsyncAzureOpenAI: AsyncAzureOpenAI,
    }
    replace_classes({stock: _installed(kind, stock, settings) for stock, kind in kinds.items()})


def uninstall() -> None:
    """Have openai's classes and its module make openai's own clients again. Clients that exist stay as they are."""
    replace_classes({})
    if _stock:
        set_module_client_classes(_stock)
        _stock.clear()


def _installed(kind: type[Any], stock: type[Any], settings: dict[str, Any]) -> type[Any]:
    """Make a class of fastlane's clients with these settings that is a subclass of the stock one too."""

    @functools.wraps(kind.__init__)
    def construct(self: Any, *args: Any, **options: Any) -> None:
        kind.__init__(self, *args, **{**settings, **options})

    return type(stock.__name__, (kind, stock), {"__init__": construct})
