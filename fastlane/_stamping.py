"""Stamp the moment at which the application issues a call, before its arguments are looked at.

The stock resources walk through all messages before they come to `request()`: with a long history that is many
milliseconds of the application's time, and they belong to the call.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from contextlib import nullcontext
from types import FunctionType, MethodType
from typing import Any

from ._async_calls import AsyncCalls
from ._calls import Calls
from ._clock import now_ns
from ._context import Issued, issued, restore
from ._quick_build import Quick, quick
from .telemetry._gate import active

_log = logging.getLogger("fastlane")


class _Method:
    """What a call of a resource's method is to run: a quick copy of openai's, or what has taken the place of openai's.

    Other instrumentations replace methods of openai's own classes, also after our clients were made.
    """

    __slots__ = ("_choice", "_name", "_resource", "is_replaced")

    def __init__(self, resource: type[Any], name: str) -> None:
        self._resource = resource
        self._name = name
        self._choice: tuple[Any, Quick | None] = (None, None)
        self.is_replaced = False
        """Somebody has put theirs in the place of openai's, as far as can be seen."""

    def now(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
        found = self._resource.__dict__.get(self._name)
        seen, copied = self._choice
        if found is not seen or found is None:
            copied = quick(self._resource, self._name)
            self._choice = (found, copied)
            self.is_replaced = copied is None
        if copied is None:
            return getattr(self._resource, self._name)  # type: ignore[no-any-return]
        if not args and kwargs.keys() >= copied.needed:
            return copied.inner
        return copied.whole


def _posts_directly(resource: Any) -> bool:
    """Whether a resource hands what it has built to our client's own `post()`.

    An application's class may have another one, and so may the resource: what was built is theirs to change then.
    """
    post = resource._post
    return type(post) is MethodType and (post.__func__ is Calls.post or post.__func__ is AsyncCalls.post)


def _entered(resource: Any, call: Issued) -> Any:
    """Around a method that another instrumentation may have replaced: see `telemetry._around`."""
    try:
        from .telemetry._around import entered

        return entered(resource._client, call)
    except Exception as error:  # noqa: BLE001 - telemetry must not break a call
        _went_wrong(error)
        return nullcontext()


def _went_wrong(error: Exception) -> None:
    _log.warning("telemetry did not find out who else instruments openai: %s", type(error).__name__)


def _stamped(resource: type[Any], name: str) -> Any:
    method = _Method(resource, name)

    @functools.wraps(getattr(resource, name))
    def stamped(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = Issued(now_ns(), is_direct=_posts_directly(self))
        token = issued.set(call)
        try:
            run = method.now(args, kwargs)
            if method.is_replaced and active():
                with _entered(self, call):
                    return run(self, *args, **kwargs)
            return run(self, *args, **kwargs)
        finally:
            restore(issued, token)

    return stamped


def _async_stamped(resource: type[Any], name: str) -> Any:
    method = _Method(resource, name)

    @functools.wraps(getattr(resource, name))
    async def stamped(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = Issued(now_ns(), is_direct=_posts_directly(self))
        token = issued.set(call)
        try:
            run = method.now(args, kwargs)
            if method.is_replaced and active():
                with _entered(self, call):
                    return await run(self, *args, **kwargs)
            return await run(self, *args, **kwargs)
        finally:
            restore(issued, token)

    return stamped


def _preparing(resource: type[Any], name: str) -> Any:
    @functools.wraps(getattr(resource, name))
    def preparing(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = resource.__dict__.get(name)
        if type(found) is not FunctionType and active():
            # An instrumentation would make the call's span here, of which we write our own in `create()`.
            return _beneath(resource, name)(self, *args, **kwargs)
        return getattr(resource, name)(self, *args, **kwargs)

    return preparing


def _beneath(resource: type[Any], name: str) -> Any:
    try:
        from .telemetry._around import beneath

        return beneath(resource, name)
    except Exception as error:  # noqa: BLE001 - telemetry must not break a call
        _went_wrong(error)
        return getattr(resource, name)


def stamping(resource: type[Any], *, asynchronous: bool) -> type[Any]:
    """A subclass of a resource whose calls are stamped. It calls what its base class has at that time.

    `stream()` is not stamped: it only prepares a call, which its context manager issues by `create()`.
    """
    stamped = _async_stamped if asynchronous else _stamped
    methods = {name: stamped(resource, name) for name in ("create", "parse") if hasattr(resource, name)}
    if hasattr(resource, "stream"):
        methods["stream"] = _preparing(resource, "stream")
    return type(resource.__name__, (resource,), methods)
