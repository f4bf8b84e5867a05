"""Connect a client before its first call, keep it so, and let go of what nobody uses any more."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from typing import Any

import openai

from ..compat.clients import http_client_of, pool_settings_of, transport_for


def warm(client: Any) -> bool:
    """Open a connection to the client's base URL; False where its connections are not ours."""
    wanted = _wanted(client)
    if wanted is None:
        return False
    transport, request = wanted
    try:
        return bool(transport.warm(request))
    except Exception as error:
        raise _as_openai_error(error, request) from error


async def awarm(client: Any) -> bool:
    """Open a connection to the client's base URL on this event loop; False where its connections are not ours."""
    wanted = _wanted(client)
    if wanted is None:
        return False
    transport, request = wanted
    try:
        return bool(await transport.warm(request))
    except Exception as error:
        raise _as_openai_error(error, request) from error


# A loop keeps no task alive.
_connecting: set[asyncio.Task[None]] = set()


def preconnect(client: Any, *, asynchronous: bool) -> None:
    """Begin to connect, in the background; if that fails, the first call says why."""
    wanted = _wanted(client)
    if wanted is None:
        return
    transport, request = wanted
    # Not the client itself, which nothing but its application may keep alive.
    http_client = http_client_of(client)
    if not asynchronous:

        def connect() -> None:
            with contextlib.suppress(Exception):
                if not http_client.is_closed:
                    transport.warm(request)
                if http_client.is_closed:
                    _let_go(transport)

        with contextlib.suppress(RuntimeError):  # no further thread to be had: the first call connects
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
    """Close the shared pool of a client that has left, unless another client uses it."""
    settings = pool_settings_of(http_client)
    if settings is not None:
        from ..transport.drivers.transports import close_if_unused

        close_if_unused(settings)


async def aclose(http_client: Any) -> None:
    """Close what this event loop has in the shared pool of a client that has left, unless another client uses it."""
    settings = pool_settings_of(http_client)
    if settings is not None:
        from ..transport.drivers.transports import aclose_if_unused

        await aclose_if_unused(settings)


def _wanted(client: Any) -> tuple[Any, Any] | None:
    """The transport to connect, and what a call would be sent on it as; None where the transport is not ours."""
    if client._fastlane is None:
        return None
    http_client = http_client_of(client)
    # The HTTP client's own method, so that its base URL and library apply. The address and the time-outs count; it is
    # never sent.
    request = http_client.build_request("GET", client.base_url, timeout=client.timeout)
    transport = transport_for(http_client, request.url)
    if not callable(getattr(transport, "warm", None)):
        return None
    if http_client.is_closed:
        closed = RuntimeError("Cannot connect, as the client has been closed.")
        raise openai.APIConnectionError(request=request) from closed
    return transport, request


def _let_go(transport: Any) -> None:
    """Close what was opened for a client that has been closed in the meantime, unless another client uses it."""
    settings = getattr(transport, "settings", None)
    if settings is not None:
        from ..transport.drivers.transports import close_if_left

        close_if_left(transport)


def _as_openai_error(error: Exception, request: Any) -> Exception:
    if "Timeout" in type(error).__name__:
        return openai.APITimeoutError(request=request)
    return openai.APIConnectionError(request=request)
