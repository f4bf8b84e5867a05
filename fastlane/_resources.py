"""The chat and responses resources, which stamp the moment at which the application issues a call.

The stock resources walk through all messages before they come to `request()`: with a long history that is many
milliseconds of the application's time, and they belong to the call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import cached_property
from typing import Any

from openai.resources.chat import AsyncChat, Chat
from openai.resources.chat.completions import AsyncCompletions, Completions
from openai.resources.responses import AsyncResponses, Responses

from ._clock import now_ns
from ._issued import issued_ns


def _stamped(method: Callable[..., Any]) -> Any:
    @functools.wraps(method)
    def stamped(self: Any, *args: Any, **kwargs: Any) -> Any:
        token = issued_ns.set(now_ns())
        try:
            return method(self, *args, **kwargs)
        finally:
            issued_ns.reset(token)

    return stamped


def _async_stamped(method: Callable[..., Any]) -> Any:
    @functools.wraps(method)
    async def stamped(self: Any, *args: Any, **kwargs: Any) -> Any:
        token = issued_ns.set(now_ns())
        try:
            return await method(self, *args, **kwargs)
        finally:
            issued_ns.reset(token)

    return stamped


def _stamping(resource: type[Any], stamp: Callable[[Callable[..., Any]], Any]) -> type[Any]:
    """A subclass of a resource whose calls are stamped. It calls what its base class has at that time.

    Other instrumentations replace methods of openai's own classes, also after our clients were made. `stream()` is
    not stamped: it only prepares a call, which its context manager issues.
    """

    def calling(name: str) -> Any:
        @functools.wraps(getattr(resource, name))
        def inherited(self: Any, *args: Any, **kwargs: Any) -> Any:
            return getattr(resource, name)(self, *args, **kwargs)

        return stamp(inherited)

    names = [name for name in ("create", "parse") if hasattr(resource, name)]
    return type(resource.__name__, (resource,), {name: calling(name) for name in names})


_Completions = _stamping(Completions, _stamped)
_AsyncCompletions = _stamping(AsyncCompletions, _async_stamped)
StampedResponses = _stamping(Responses, _stamped)
AsyncStampedResponses = _stamping(AsyncResponses, _async_stamped)


class StampedChat(Chat):
    """`client.chat`."""

    @cached_property
    def completions(self) -> Completions:
        return _Completions(self._client)  # type: ignore[no-any-return]


class AsyncStampedChat(AsyncChat):
    """`client.chat` of an asynchronous client."""

    @cached_property
    def completions(self) -> AsyncCompletions:
        return _AsyncCompletions(self._client)  # type: ignore[no-any-return]
