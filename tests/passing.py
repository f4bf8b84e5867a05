"""What instrumentations replace a method with: an object with the attributes of the function inside it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class Passing:
    """Passes for the function that it wraps, even with `isinstance`, and shows every call to `see` first."""

    def __init__(self, wrapped: Callable[..., Any], see: Callable[..., object]) -> None:
        self.wrapped, self.see, self.__module__ = wrapped, see, wrapped.__module__

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self.wrapped.__class__

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)

    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.see(*args, **kwargs)
        return self.wrapped(*args, **kwargs)
