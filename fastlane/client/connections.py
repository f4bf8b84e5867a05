"""Open connections before the first call of a client, and close pools that no client uses any more."""

from __future__ import annotations

from typing import Any

import openai

from ..compat.clients import http_client_of, pool_settings_of, transport_for
from .preparation import prepare


def warm(client: Any) -> bool:
    """Open a connection to the client's base URL. Returns False without fastlane's transport. Raises openai errors."""
    wanted = _wanted(client)
    if wanted is None:
        return False
    transport, request = wanted
    try:
        return bool(transport.warm(request))
    except Exception as error:
        raise _as_openai_error(error, request) from error


async def awarm(client: Any) -> bool:
    """Open a connection on this event loop; see `warm`."""
    wanted = _wanted(client)
    if wanted is None:
        return False
    transport, request = wanted
    try:
        return bool(await transport.warm(request))
    except Exception as error:
        raise _as_openai_error(error, request) from error


def close(http_client: Any) -> None:
    """Close the shared pool of a closed HTTP client, unless another client uses it."""
    settings = pool_settings_of(http_client)
    if settings is not None:
        from ..transport.drivers.transports import close_if_unused

        close_if_unused(settings)


async def aclose(http_client: Any) -> None:
    """Close this event loop's connections in the pool of a closed HTTP client, unless another client uses it."""
    settings = pool_settings_of(http_client)
    if settings is not None:
        from ..transport.drivers.transports import aclose_if_unused

        await aclose_if_unused(settings)


def _wanted(client: Any) -> tuple[Any, Any] | None:
    """Return the transport and a sample request for the connection; None without fastlane's transport."""
    if client._fastlane is None:
        return None
    prepare(client)
    http_client = http_client_of(client)
    # Made by the HTTP client, so that its library and base URL apply. The request is never sent: only its URL and
    # timeouts are used.
    request = http_client.build_request("GET", client.base_url, timeout=client.timeout)
    transport = transport_for(http_client, request.url)
    if not callable(getattr(transport, "warm", None)):
        return None
    if http_client.is_closed:
        closed = RuntimeError("Cannot connect, as the client has been closed.")
        raise openai.APIConnectionError(request=request) from closed
    return transport, request


def _as_openai_error(error: Exception, request: Any) -> Exception:
    if "Timeout" in type(error).__name__:
        return openai.APITimeoutError(request=request)
    return openai.APIConnectionError(request=request)
