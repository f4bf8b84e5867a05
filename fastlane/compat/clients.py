"""Private classes, constants and attributes of openai and its clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import openai
from openai._base_client import AsyncAPIClient, SyncAPIClient
from openai._constants import (
    OVERRIDE_CAST_TO_HEADER as OVERRIDE_CAST_TO_HEADER,
    RAW_RESPONSE_HEADER as RAW_RESPONSE_HEADER,
)
from openai._legacy_response import LegacyAPIResponse
from openai._models import FinalRequestOptions as FinalRequestOptions
from openai._response import BaseAPIResponse

from ..transport import PoolSettings

if TYPE_CHECKING:
    from openai._data_residency import DataResidency as DataResidency
    from openai._provider import _Provider

    Provider = _Provider

SYNC_CLIENTS = (openai.OpenAI, SyncAPIClient)
"""The classes that define the methods of a sync client."""

ASYNC_CLIENTS = (openai.AsyncOpenAI, AsyncAPIClient)

RAW_RESPONSES = (LegacyAPIResponse, BaseAPIResponse)
"""What `with_raw_response` and `with_streaming_response` return."""

_MODULE_CLIENTS = ("_ModuleClient", "_AzureModuleClient")

# Attributes of clients. Not every version of openai has all of them.


def http_client_of(client: Any) -> Any:
    """Return the HTTP client of a client; None if the client's constructor failed."""
    return getattr(client, "_client", None)


def stock_http_client_class(*, asynchronous: bool) -> Any:
    """Return the class of the HTTP client that openai makes, looked up at each call as openai's constructor does."""
    return getattr(openai._base_client, "AsyncHttpxClientWrapper" if asynchronous else "SyncHttpxClientWrapper")


def transport_of(http_client: Any) -> Any:
    """Return the transport of an HTTP client; None for another object."""
    return getattr(http_client, "_transport", None)


def pool_settings_of(http_client: Any) -> PoolSettings | None:
    """Return the settings of the shared pool that an HTTP client uses; None for any other client."""
    settings = getattr(transport_of(http_client), "settings", None)
    return settings if isinstance(settings, PoolSettings) else None


def transport_for(http_client: Any, url: Any) -> Any:
    """Return the transport that carries the requests to a URL, which may be a mounted one."""
    choose = getattr(http_client, "_transport_for_url", None)
    return choose(url) if callable(choose) else transport_of(http_client)


def transports_of(http_client: Any) -> list[Any]:
    """Return all transports of an HTTP client, mounted ones included."""
    transports = (transport_of(http_client), *getattr(http_client, "_mounts", {}).values())
    return [transport for transport in transports if transport is not None]


def request_of_error(error: BaseException | None) -> Any:
    """Return the request that an error of the HTTP library names; None if it names none."""
    return getattr(error, "_request", None)


def given_headers(client: Any) -> Mapping[str, Any]:
    """Return the `default_headers` that a client was made with, without openai's own."""
    headers: Mapping[str, Any] = client._custom_headers
    return headers


def given_query(client: Any) -> Mapping[str, object]:
    """Return the `default_query` that a client was made with."""
    query: Mapping[str, object] = client._custom_query
    return query


def forget_given(client: Any) -> None:
    """Remove the headers and query parameters that a client was made with or took from the environment."""
    client._custom_headers = {}
    client._custom_query = {}
    if hasattr(client, "_ambient_authorizations"):
        client._ambient_authorizations = frozenset()


def provider_of(client: Any) -> Any:
    """Return the `provider` that a client was made with."""
    return getattr(client, "_provider", None)


def key_provider_of(client: Any) -> Any:
    """Return the function that a client calls for its key before each call; None if the key is a string."""
    return getattr(client, "_api_key_provider", None) or getattr(client, "_azure_ad_token_provider", None)


def idempotency_header_of(client: Any) -> str | None:
    """Return the name of the idempotency header; None without one."""
    header: str | None = client._idempotency_header
    return header


def validates_strictly(client: Any) -> bool:
    """Whether a client validates responses against its types (`_strict_response_validation`)."""
    return bool(client._strict_response_validation)


def status_error_of(response: Any, client: Any = None) -> openai.APIStatusError:
    """Make openai's error for a response with an error status. Without a client, as `openai.OpenAI` makes it."""
    # Without `__init__`, which would need a key.
    made_by: Any = object.__new__(openai.OpenAI) if client is None else client
    error: openai.APIStatusError = made_by._make_status_error_from_response(response)
    return error


def underlying_stream(stream: Any) -> Any:
    """Return the stream that the helper of a `.stream()` method reads; any other object as it is."""
    return getattr(stream, "_raw_stream", stream)


def module_client_classes() -> dict[str, Any]:
    """Return the classes of openai's module-level clients by name; empty for an unknown version of openai."""
    if not all(hasattr(openai, name) for name in (*_MODULE_CLIENTS, "_reset_client")):
        return {}
    return {name: getattr(openai, name) for name in _MODULE_CLIENTS}


def set_module_client_classes(classes: Mapping[str, Any]) -> None:
    """Replace the classes of openai's module-level client, which is made again on its next use."""
    for name, made in classes.items():
        setattr(openai, name, made)
    # The module reuses the HTTP client of its last client.
    last = openai.http_client
    if pool_settings_of(last) is not None or type(last) is stock_http_client_class(asynchronous=False):
        openai.http_client = None
    openai._reset_client()


_replacements: dict[type[Any], type[Any]] = {}


def replace_classes(replacements: Mapping[type[Any], type[Any]]) -> None:
    """Have stock classes make objects of these subclasses of theirs, and all others what they make by themselves.

    The classes stay, and so do names that were imported before. Their other subclasses make what they made.
    """
    _replacements.clear()
    _replacements.update(replacements)
    # Azure's classes inherit from these. It is never deleted: CPython's `object.__new__` would then refuse arguments.
    for stock in (openai.OpenAI, openai.AsyncOpenAI):
        if replacements and "__new__" not in vars(stock):
            stock.__new__ = _maker(stock)  # type: ignore[method-assign]


def _maker(stock: type[Any]) -> Any:
    def make(cls: type[Any], *args: Any, **options: Any) -> Any:
        kind = _replacements.get(cls, cls)
        inherited = super(stock, kind).__new__
        return inherited(kind) if inherited is object.__new__ else inherited(kind, *args, **options)

    make.__wrapped__ = stock.__init__  # type: ignore[attr-defined]  # for `inspect.signature`
    return staticmethod(make)


def stock_client(stock: type[Any], **options: Any) -> Any:
    """Make a client of exactly a stock class, also while another one replaces it."""
    client = object.__new__(stock)
    client.__init__(**options)
    return client
