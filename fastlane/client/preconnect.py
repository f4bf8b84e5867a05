"""Open connections before the first call of a client, and close pools that no client uses any more."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from typing import Any

import openai

from ..compat.clients import http_client_of, pool_settings_of, transport_for


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


# An event loop holds only weak references to its tasks.
_connecting: set[asyncio.Task[None]] = set()


def preconnect(client: Any, *, asynchronous: bool) -> None:
    """Begin to connect in a background thread or task. Errors are ignored: the first call raises them."""
    wanted = _wanted(client)
    if wanted is None:
        return
    transport, request = wanted
    # Only the HTTP client: the thread must not keep the client alive.
    http_client = http_client_of(client)
    if not asynchronous:

        def connect() -> None:
            with contextlib.suppress(Exception):
                if not http_client.is_closed:
                    transport.warm(request)
                if http_client.is_closed:
                    _let_go(transport)

        with contextlib.suppress(RuntimeError):  # no thread can be started: the first call connects
            threading.Thread(target=connect, name="fastlane preconnect", daemon=True).start()
        return

    async def aconnect() -> None:
        with contextlib.suppress(Exception):
            if not http_client.is_closed:
                await transport.warm(request)
            if http_client.is_closed:
                await aclose(http_client)

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    for task in list(_connecting):
        if task.get_loop().is_closed():  # it will never be done
            _connecting.discard(task)
    task = loop.create_task(aconnect(), context=contextvars.Context())
    _connecting.add(task)
    task.add_done_callback(_connecting.discard)


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


def _let_go(transport: Any) -> None:
    """Close a connection that was opened for a client which has been closed meanwhile."""
    settings = getattr(transport, "settings", None)
    if settings is not None:
        from ..transport.drivers.transports import close_if_left

        close_if_left(transport)


def _as_openai_error(error: Exception, request: Any) -> Exception:
    if "Timeout" in type(error).__name__:
        return openai.APITimeoutError(request=request)
    return openai.APIConnectionError(request=request)
