"""Connect a client before its first call, keep it so, and let go of what nobody uses any more."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from typing import Any

import openai

from ._configuration import settings_of


def warm(client: Any) -> bool:
    """Open a connection to the client's base URL; False where its connections are not ours."""
    transport = _transport_of(client)
    if transport is None:
        return False
    request = _request(client)
    try:
        return bool(transport.warm(request))
    except Exception as error:
        raise _as_openai_error(error, request) from error


async def awarm(client: Any) -> bool:
    """Open a connection to the client's base URL on this event loop; False where its connections are not ours."""
    transport = _transport_of(client)
    if transport is None:
        return False
    request = _request(client)
    try:
        return bool(await transport.warm(request))
    except Exception as error:
        raise _as_openai_error(error, request) from error


# A loop keeps no task alive.
_connecting: set[asyncio.Task[None]] = set()


def preconnect(client: Any, *, asynchronous: bool) -> None:
    """Begin to connect, in the background; if that fails, the first call says why."""
    transport = _transport_of(client)
    if transport is None:
        return
    request = _request(client)
    if not asynchronous:

        def connect() -> None:
            with contextlib.suppress(Exception):
                transport.warm(request)

        threading.Thread(target=connect, name="fastlane preconnect", daemon=True).start()
        return

    async def aconnect() -> None:
        with contextlib.suppress(Exception):
            await transport.warm(request)

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    task = loop.create_task(aconnect(), context=contextvars.Context())
    _connecting.add(task)
    task.add_done_callback(_connecting.discard)


def close(http_client: Any) -> None:
    """Close the shared pool of a client that has left, unless another client uses it."""
    settings = settings_of(http_client)
    if settings is not None:
        from .transport._shared import close_if_unused

        close_if_unused(settings)


async def aclose(http_client: Any) -> None:
    """Close what this event loop has in the shared pool of a client that has left, unless another client uses it."""
    settings = settings_of(http_client)
    if settings is not None:
        from .transport._shared import aclose_if_unused

        await aclose_if_unused(settings)


def _transport_of(client: Any) -> Any:
    """The transport of a client, where it is one of ours."""
    if client._fastlane is None:
        return None
    transport = getattr(client._client, "_transport", None)
    return transport if callable(getattr(transport, "warm", None)) else None


def _request(client: Any) -> Any:
    """What a call would be sent as: its address and time-outs count, and it is never sent."""
    # The HTTP client's own method, so that its base URL, mounts and library apply.
    return client._client.build_request("GET", client.base_url, timeout=client.timeout)


def _as_openai_error(error: Exception, request: Any) -> Exception:
    if "Timeout" in type(error).__name__:
        return openai.APITimeoutError(request=request)
    return openai.APIConnectionError(request=request)
