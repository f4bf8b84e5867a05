"""The chat and responses resources of our clients: openai's own, stamped, and building their bodies quickly.

Each is imported when it is first used, as in openai: the two together take tens of milliseconds.
"""

from __future__ import annotations

import os
from functools import cache, cached_property
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

from .stamping import stamping

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
        stamped = stamping(getattr(completions, name), asynchronous=asynchronous)

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

        return stamping(responses.AsyncResponses if asynchronous else responses.Responses, asynchronous=asynchronous)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_importing.acquire, after_in_parent=_importing.release, after_in_child=_importing.release
    )
