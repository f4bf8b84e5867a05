"""Connection pools whose connections carry one call at a time and are checked before they are used again.

The HTTP/2 connection underneath delivers the events of one stream only when no other stream is being read, does not
tell the server that a stream was closed early, and does not notice that an idle connection was closed. One call per
connection, a look at the socket before reuse, and closing what was left half-read keep all three from an application.
"""

from __future__ import annotations

import threading
from functools import cache
from types import ModuleType
from typing import Any

import anyio

from ._http2_socket import AsyncBackend, Goodbyes, SyncBackend

# Connections kept without a call, of all that may be open at once: the stock client's own limit.
_MOST_IDLE = 100

CONNECTION = "fastlane.connection"
"""Where an answer carries the connection that it comes over."""


class _OneCall:
    """The part of a connection that is the same in both forms."""

    def __init__(self, not_available: type[Exception], goodbyes: Goodbyes, **settings: Any) -> None:
        super().__init__(**settings)
        self._not_available = not_available
        self._goodbyes = goodbyes
        self._claim_lock = threading.Lock()
        self._claimed = False
        self._network_stream: Any = None

    def claim(self) -> None:
        """Take the connection for one call, or raise so that the pool looks for another one."""
        with self._claim_lock:
            if self._claimed:
                raise self._not_available()
            self._claimed = True
        # Calls follow one another, and a client's streams have the odd numbers (RFC 9113, 5.1.1).
        self._goodbyes.stream_id = 1 if self._goodbyes.stream_id == 0 else self._goodbyes.stream_id + 2

    def release(self) -> None:
        """The call is over, and the connection is clean or closed."""
        self._claimed = False

    def is_available(self) -> bool:
        return not self._claimed and not self._goodbyes.going_away and bool(super().is_available())  # type: ignore[misc]

    def can_multiplex(self) -> bool:
        return False

    def is_idle(self) -> bool:
        # Without multiplexing, some pools close what is idle to make room: a claimed connection is about to be used.
        return not self._claimed and bool(super().is_idle())  # type: ignore[misc]

    def has_expired(self) -> bool:
        if self._claimed:
            return False
        return self._goodbyes.going_away or bool(super().has_expired())  # type: ignore[misc]

    def _was_spoken_to(self) -> bool:
        """Whether the server sent anything while an HTTP/2 connection was idle; HTTP/1.1 is looked at underneath."""
        if self._network_stream is None:
            return False
        try:
            return bool(self._network_stream.get_extra_info("is_readable"))
        except Exception:  # noqa: BLE001 - a socket that cannot be asked cannot be used: the look will say so
            return True

    def _answered(self, response: Any) -> Any:
        extensions = response.extensions
        if self._network_stream is None and extensions.get("http_version") == b"HTTP/2":
            self._network_stream = extensions.get("network_stream")
        extensions[CONNECTION] = self
        return response


class _SyncConnection(_OneCall):
    def handle_request(self, request: Any) -> Any:
        self.claim()
        try:
            if self._was_spoken_to() and not self._network_stream.is_still_open():
                self.close()  # type: ignore[attr-defined]
                raise self._not_available()
            return self._answered(super().handle_request(request))  # type: ignore[misc]
        except BaseException as error:
            if not isinstance(error, self._not_available):
                self.close()  # type: ignore[attr-defined]
            self.release()
            raise


class _AsyncConnection(_OneCall):
    async def handle_async_request(self, request: Any) -> Any:
        self.claim()
        try:
            if self._was_spoken_to() and not await self._network_stream.is_still_open():
                await self.aclose()  # type: ignore[attr-defined]
                raise self._not_available()
            return self._answered(await super().handle_async_request(request))  # type: ignore[misc]
        except BaseException as error:
            if not isinstance(error, self._not_available):
                with anyio.CancelScope(shield=True):
                    await self.aclose()  # type: ignore[attr-defined]
            self.release()
            raise


@cache
def pool_class(core: ModuleType, *, asynchronous: bool) -> type[Any]:
    """The pool for a core library (httpcore2, or the httpcore that openai 2 brings), sync or async."""
    prefix = "Async" if asynchronous else ""
    connection_class = type(
        f"{prefix}OneCallConnection",
        (_AsyncConnection if asynchronous else _SyncConnection, getattr(core, f"{prefix}HTTPConnection")),
        {},
    )
    pool_base = getattr(core, f"{prefix}ConnectionPool")

    def __init__(self: Any, *, max_connections: int, **settings: Any) -> None:  # noqa: N807
        pool_base.__init__(self, max_connections=max_connections, max_keepalive_connections=_MOST_IDLE, **settings)
        self._connection_settings = settings

    backend_class = AsyncBackend if asynchronous else SyncBackend

    def create_connection(self: Any, origin: Any) -> Any:
        settings = dict(self._connection_settings)
        goodbyes = Goodbyes()
        if settings["http2"] and origin.scheme == b"https":
            settings["network_backend"] = backend_class(self._network_backend, goodbyes)
        return connection_class(not_available=core.ConnectionNotAvailable, goodbyes=goodbyes, origin=origin, **settings)

    return type(f"{prefix}OneCallPool", (pool_base,), {"__init__": __init__, "create_connection": create_connection})
