"""Stamp the moment at which the application issues a call, before openai looks at its arguments.

The stock resources walk through all messages before they come to `request()`: with a long history that is many
milliseconds of the application's time, and they belong to the call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ._clock import now_ns
from ._context import issued_ns, restore


def _stamped(method: Callable[..., Any]) -> Any:
    @functools.wraps(method)
    def stamped(self: Any, *args: Any, **kwargs: Any) -> Any:
        token = issued_ns.set(now_ns())
        try:
            return method(self, *args, **kwargs)
        finally:
            restore(issued_ns, token)

    return stamped


def _async_stamped(method: Callable[..., Any]) -> Any:
    @functools.wraps(method)
    async def stamped(self: Any, *args: Any, **kwargs: Any) -> Any:
        token = issued_ns.set(now_ns())
        try:
            return await method(self, *args, **kwargs)
        finally:
            restore(issued_ns, token)

    return stamped


def stamping(resource: type[Any], *, asynchronous: bool) -> type[Any]:
    """A subclass of a resource whose calls are stamped. It calls what its base class has at that time.

    Other instrumentations replace methods of openai's own classes, also after our clients were made. `stream()` is
    not stamped: it only prepares a call, which its context manager issues.
    """

    def calling(name: str) -> Any:
        @functools.wraps(getattr(resource, name))
        def inherited(self: Any, *args: Any, **kwargs: Any) -> Any:
            return getattr(resource, name)(self, *args, **kwargs)

        return _async_stamped(inherited) if asynchronous else _stamped(inherited)

    names = [name for name in ("create", "parse") if hasattr(resource, name)]
    return type(resource.__name__, (resource,), {name: calling(name) for name in names})
