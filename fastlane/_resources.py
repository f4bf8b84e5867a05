"""The chat and responses resources of our clients: openai's own, stamped, and building their bodies quickly.

Each is imported when it is first used, as in openai: the two together take tens of milliseconds.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from ._stamping import stamping

if TYPE_CHECKING:
    from openai.resources.chat import AsyncChat, Chat
    from openai.resources.responses import AsyncResponses, Responses


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
    from openai.resources import chat
    from openai.resources.chat import completions

    name = "AsyncCompletions" if asynchronous else "Completions"
    stamped = stamping(getattr(completions, name), asynchronous=asynchronous)
    base: Any = chat.AsyncChat if asynchronous else chat.Chat

    class StampedChat(base):  # type: ignore[misc]
        @cached_property
        def completions(self) -> Any:
            return stamped(self._client)

    StampedChat.__name__ = base.__name__
    return StampedChat


@cache
def _responses_class(*, asynchronous: bool) -> type[Any]:
    from openai.resources import responses

    return stamping(responses.AsyncResponses if asynchronous else responses.Responses, asynchronous=asynchronous)
