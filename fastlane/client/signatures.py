"""Give our constructors and `copy()` the stock client's signature plus our arguments."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import openai


def adopt_signature(client: type[Any]) -> None:
    """Wrap the constructor and `copy()` of a client, so that they have the stock signatures."""
    stock = getattr(openai, client.__name__)
    for name in ("__init__", "copy"):
        ours = getattr(client, name)
        adopted = _adopted(ours, getattr(stock, name))
        setattr(client, name, adopted)
        if name == "copy":
            client.with_options = adopted


def _adopted(ours: Any, stock: Any) -> Any:
    # Keep `__wrapped__`: `typing.get_type_hints` finds the module of the stock annotations through it.
    unwrapped = getattr(ours, "__fastlane__", ours)

    @functools.wraps(stock)
    def adopted(*args: Any, **kwargs: Any) -> Any:
        return unwrapped(*args, **kwargs)

    adopted.__doc__ = unwrapped.__doc__ or stock.__doc__
    adopted.__fastlane__ = unwrapped  # type: ignore[attr-defined]
    own = [
        parameter
        for parameter in inspect.signature(unwrapped).parameters.values()
        if parameter.name in ("plays", "only_plays", "on_call_end", "raise_play_errors", "experiment", "proxy")
    ]
    signature = inspect.signature(stock)
    adopted.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), *own]
    )
    return adopted
