"""The chat and responses resources of our clients: openai's own, which build bodies quickly and stamp their calls.

A call is stamped at the moment at which the application issues it: openai's resources walk through all messages before
they come to `request()`, which takes many milliseconds with a long history. Each resource is imported when it is first
used, as in openai: the two together take tens of milliseconds.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache, cached_property
from threading import RLock
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, TypeVar

from .._clock import now_ns
from ..records import listeners
from .context import Issued, issued, restore
from .quick_build import Quick, quick

if TYPE_CHECKING:
    from openai.resources.chat import AsyncChat, Chat
    from openai.resources.responses import AsyncResponses, Responses

_Made = TypeVar("_Made")

# Held while they are imported, and by every fork: a child whose parent was in the middle of it would wait for ever for
# the thread that went on with it, which it does not have.
_importing = RLock()


class made_once(cached_property[_Made]):  # noqa: N801 - used as a decorator
    """A `cached_property` without the lock that it has before Python 3.12, with which a fork's child hangs likewise."""

    if not TYPE_CHECKING:  # it gives what its base gives

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            """What was made, or is made now: by two threads at once, two of which one is kept."""
            if instance is None:
                return self
            # What stands in the instance is found before this, which is no data descriptor.
            return instance.__dict__.setdefault(self.attrname, self.func(instance))


def chat_of(client: Any) -> Chat:
    """`client.chat` of a synchronous client."""
    return _chat_class(asynchronous=False)(client)  # type: ignore[no-any-return]


def async_chat_of(client: Any) -> AsyncChat:
    """`client.chat` of an asynchronous client."""
    return _chat_class(asynchronous=True)(client)  # type: ignore[no-any-return]


def responses_of(client: Any) -> Responses:
    """`client.responses` of a synchronous client."""
    return _responses_class(asynchronous=False)(client)  # type: ignore[no-any-return]


def async_responses_of(client: Any) -> AsyncResponses:
    """`client.responses` of an asynchronous client."""
    return _responses_class(asynchronous=True)(client)  # type: ignore[no-any-return]


@cache
def _chat_class(*, asynchronous: bool) -> type[Any]:
    with _importing:
        from openai.resources import chat
        from openai.resources.chat import completions

        # openai imports what is asked for by name then.
        base: Any = chat.AsyncChat if asynchronous else chat.Chat
        name = "AsyncCompletions" if asynchronous else "Completions"
        stamped = _stamping(getattr(completions, name), asynchronous=asynchronous)

    class StampedChat(base):  # type: ignore[misc]
        @made_once
        def completions(self) -> Any:
            return stamped(self._client)

    StampedChat.__name__ = base.__name__
    return StampedChat


@cache
def _responses_class(*, asynchronous: bool) -> type[Any]:
    with _importing:
        from openai.resources import responses

        return _stamping(responses.AsyncResponses if asynchronous else responses.Responses, asynchronous=asynchronous)


_log = logging.getLogger("fastlane")

# The methods that issue a call, with a body that can be built quickly.
_ISSUING = ("create", "parse")

OWN_POSTS: set[Any] = set()
"""`post()` of our own clients, which register theirs."""


class _Method:
    """What a call of a resource's method is to run: a quick copy of openai's, or what has taken the place of openai's.

    Other instrumentations replace methods of openai's own classes, also after our clients were made.
    """

    __slots__ = ("_beneath", "_choice", "_name", "_resource", "is_replaced")

    def __init__(self, resource: type[Any], name: str) -> None:
        self._resource = resource
        self._name = name
        self._choice: tuple[Any, Quick | None] = (None, None)
        self._beneath: tuple[Any, Callable[..., Any] | None, Quick | None] = (None, None, None)
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
        return _fitting(copied, args, kwargs)

    def beneath(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any] | None:
        """The same, as if the official instrumentation were not there; None where somebody else's code is as well."""
        found = self._resource.__dict__.get(self._name)
        seen, stock, copied = self._beneath
        if found is not seen:
            stock = listeners.listener.beneath_official(found)
            copied = None
            if self._name in _ISSUING:
                place = {"__module__": self._resource.__module__, self._name: stock}
                copied = quick(type(self._resource.__name__, (), place), self._name)
            self._beneath = (found, stock, copied)
        return stock if copied is None else _fitting(copied, args, kwargs)


def _fitting(copied: Quick, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
    return copied.inner if not args and kwargs.keys() >= copied.needed else copied.whole


def _posts_directly(resource: Any) -> bool:
    """Whether a resource hands what it has built to our client's own `post()`.

    An application's class may have another one, and so may the resource: what was built is theirs to change then.
    """
    post = resource._post
    return type(post) is MethodType and post.__func__ in OWN_POSTS


def _among_others(
    method: _Method, run: Callable[..., Any], resource: Any, call: Issued, args: Any, kwargs: Any
) -> tuple[Callable[..., Any], Any]:
    """Return what to run where an instrumentation may have replaced a method, and the context to run it in."""
    try:
        around, is_ours = listeners.listener.around_replaced(resource._client, call)
        beneath = method.beneath(args, kwargs) if is_ours else None
    except Exception as error:  # noqa: BLE001 - telemetry must not break a call
        _went_wrong(error)
        return run, nullcontext()
    # Silenced, the official one would still look at every chunk of a stream.
    return (run, around) if beneath is None else (beneath, nullcontext())


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
            if method.is_replaced and listeners.listener.is_active():
                run, around = _among_others(method, run, self, call, args, kwargs)
                with around:
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
            if method.is_replaced and listeners.listener.is_active():
                run, around = _among_others(method, run, self, call, args, kwargs)
                with around:
                    return await run(self, *args, **kwargs)
            return await run(self, *args, **kwargs)
        finally:
            restore(issued, token)

    return stamped


def _preparing(resource: type[Any], name: str) -> Any:
    method = _Method(resource, name)

    @functools.wraps(getattr(resource, name))
    def preparing(self: Any, *args: Any, **kwargs: Any) -> Any:
        run = getattr(resource, name)
        if type(resource.__dict__.get(name)) is not FunctionType and listeners.listener.is_active():
            # The official instrumentation makes the call's span of what this returns, and ours is made in `create()`.
            run, _ = _among_others(method, run, self, Issued(0, is_direct=False), args, kwargs)
        return run(self, *args, **kwargs)

    return preparing


def _stamping(resource: type[Any], *, asynchronous: bool) -> type[Any]:
    """A subclass of a resource whose calls are stamped. It calls what its base class has at that time.

    `stream()` is not stamped: it only prepares a call, which its context manager issues by `create()`.
    """
    stamped = _async_stamped if asynchronous else _stamped
    methods = {name: stamped(resource, name) for name in _ISSUING if hasattr(resource, name)}
    if hasattr(resource, "stream"):
        methods["stream"] = _preparing(resource, "stream")
    return type(resource.__name__, (resource,), methods)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_importing.acquire, after_in_parent=_importing.release, after_in_child=_importing.release
    )
