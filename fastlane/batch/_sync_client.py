"""The client that a worker calls through: a synchronous one is taken as it is, an asynchronous one gets a twin."""

from __future__ import annotations

from typing import Any

import openai

from ..compat.clients import azure_options_of, given_headers, given_query, http_client_of, key_provider_of
from ..errors import ConfigurationError


def synchronous(client: Any) -> openai.OpenAI:
    """Return a synchronous client with the settings of `client`: itself, where it is one.

    A worker runs in a thread of its own, and no event loop is to wait for it. Raises ConfigurationError for what is no
    client, and for an asynchronous one whose key or HTTP client only an event loop can use.
    """
    if isinstance(client, openai.OpenAI):
        return client
    if not isinstance(client, openai.AsyncOpenAI):
        raise ConfigurationError(
            f"expected a client such as fastlane.OpenAI() or openai.AsyncOpenAI(), got a {type(client).__name__}"
        )
    return _twin(client)


def _twin(client: openai.AsyncOpenAI) -> openai.OpenAI:
    given: dict[str, Any] = {
        "api_key": client.api_key,
        "base_url": client.base_url,
        "timeout": client.timeout,
        "max_retries": client.max_retries,
        "default_headers": given_headers(client),
        "default_query": given_query(client),
        "organization": client.organization,
        "project": client.project,
    }
    if key_provider_of(client) is not None:
        raise ConfigurationError(
            "the client asks for its key anew with every call, on an event loop: give the queue a synchronous client, "
            "such as fastlane.OpenAI(api_key=...)"
        )
    made: type[openai.OpenAI]
    if isinstance(client, openai.AsyncAzureOpenAI):
        made = openai.AzureOpenAI
        given |= azure_options_of(client)
    else:
        made = openai.OpenAI
    shell = getattr(client, "_fastlane", None)
    if shell is None:
        if type(http_client_of(client)).__module__.partition(".")[0] != "openai":
            _refuse_http_client()
        return made(**given)
    if shell.transport == "caller":
        _refuse_http_client()
    from ..client import clients as _client

    given |= {"only_plays": shell.pipeline.plays, "hooks": shell.pipeline.hooks, "strict": shell.pipeline.strict}
    ours = _client.AzureOpenAI if made is openai.AzureOpenAI else _client.OpenAI
    return ours(**given)


def _refuse_http_client() -> None:
    raise ConfigurationError(
        "the client has an asynchronous HTTP client of its own, which a worker's thread cannot use: give the queue a "
        "synchronous client, such as fastlane.OpenAI(http_client=...)"
    )
