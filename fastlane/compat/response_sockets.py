"""Responses over WebSocket: openai's connections on our sockets; fast paths decode events and write turns."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import re
import socket
import sys
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any, ClassVar, cast

from openai._models import construct_type
from openai._utils import maybe_transform

from ..decode import event_decoder
from ..errors import MissingExtraError
from ..transport import PoolSettings
from .clients import given_headers, http_client_of, transport_for
from .context import is_asyncio
from .requests import simplify, stock_bytes

_CREATE = "response.create"


class WrittenCommand(str):
    """The text of a command, which knows its fields: they need not be read again."""

    __slots__ = ("event",)

    event: dict[str, Any]


def event_of(message: Any) -> Any:
    """Return the fields of a `response.create` that is about to be sent; None for any other message."""
    event = getattr(message, "event", None)
    if event is None and isinstance(message, str) and _CREATE in message:
        try:
            event = json.loads(message)
        except ValueError:
            return None
    return event if isinstance(event, dict) and event.get("type") == _CREATE else None


def write_command(event: Any) -> str | None:
    """Return a command as JSON; None if openai's code has to transform it. Equal to openai's as a JSON value."""
    if type(event) is not dict:
        return None
    written = stock_bytes(event)
    if written is None:
        # Items of an answer are openai's objects.
        lists = {name: event[name] for name in ("input", "tools") if type(event.get(name)) is list}
        event = event | {name: [simplify(one, maybe_transform) for one in given] for name, given in lists.items()}
        written = stock_bytes(event)
    if written is None:
        return None
    command = WrittenCommand(written.decode())
    command.event = event
    return command


class Events:
    """Decodes the events of one socket: each once, for its recorder and for the application."""

    __slots__ = ("_decode", "_last", "_union")

    def __init__(self) -> None:
        from openai.types.responses import ResponsesServerEvent

        self._union: Any = ResponsesServerEvent
        self._decode = event_decoder(ResponsesServerEvent)
        self._last: tuple[Any, Any] = (None, None)

    def received(self, data: Any) -> Any:
        """Return the event of a message that has come; None for invalid JSON."""
        event = self._decode(data) if self._decode is not None and type(data) is bytes else None
        if event is None:
            try:
                event = construct_type(value=json.loads(data), type_=self._union)
            except (ValueError, RecursionError):
                return None
        self._last = (data, event)
        return event

    def of(self, data: Any) -> Any:
        """Return the event of a message for the application; None for invalid JSON."""
        (last, event), self._last = self._last, (None, None)
        return event if last is data else self.received(data)


# The classes of connections: openai's, with these in front of them


def connecting(resource: type[Any], *, asynchronous: bool) -> dict[str, Any]:
    """Return the method `connect` for a subclass of the responses resource; empty if openai has none."""
    stock_connect = getattr(resource, "connect", None)
    if stock_connect is None:
        return {}

    @functools.wraps(stock_connect)
    def connect(self: Any, *arguments: Any, **options: Any) -> Any:
        manager = stock_connect(self, *arguments, **options)
        found = _manager_class(type(manager).__name__, asynchronous=asynchronous)
        if found is not None and type(manager) in found.__mro__ and found.kept in manager.__dict__:
            # openai makes the object: its arguments differ between versions.
            manager.__class__ = found
            manager._fastlane, manager._events, manager._sockets = self._client, Events(), deque(maxlen=1)
        return manager

    return {"connect": connect}


@functools.cache
def _manager_class(name: str, *, asynchronous: bool) -> Any:
    """Return our subclass of openai's manager of connections; None for another class."""
    from openai.resources.responses import responses

    if name != f"{'Async' if asynchronous else ''}ResponsesConnectionManager":
        return None
    stock, stock_connection = getattr(responses, name), getattr(responses, name.removesuffix("Manager"))
    manager, connection = (_AsyncManager, _AsyncConnection) if asynchronous else (_SyncManager, _SyncConnection)
    made = type(stock_connection.__name__, (connection, stock_connection), {})
    # Where it keeps the application's options for `websockets`.
    return type(name, (manager, stock), {"kept": f"_{name}__websocket_connection_options", "connection": made})


class _Manager:
    """What our managers of connections share."""

    kept: ClassVar[str]
    connection: ClassVar[Any]
    _fastlane: Any
    _events: Events
    _sockets: deque[Any]

    def _begin(self) -> tuple[Any, PoolSettings | None, str]:
        """Return the transport's handle of the client, its settings if ours carries the calls, and the URL."""
        client, manager = self._fastlane, cast("Any", self)
        handle = transport_for(http_client_of(client), client.base_url)
        settings = getattr(handle, "settings", None)
        is_usual = isinstance(settings, PoolSettings) and socket.socket.__module__ == "socket"  # no gevent
        url = re.sub("^http", "ws", str(client._prepare_url(str(manager._prepare_url()))))  # as openai does
        return handle, settings if is_usual else None, url

    def _opened(self, made: Any, handle: Any) -> Any:
        if not hasattr(made, "watcher"):  # of the application's `create_connection`
            return made
        made.is_up()
        getattr(handle, "websockets", set()).add(made)
        made.watcher = self._fastlane._watch_socket(made, self._events)
        self._sockets.append(made)
        return made

    def _entered(self, made: Any) -> Any:
        made.__class__ = self.connection
        # It keeps the client, which closes its sockets when it is dropped.
        made._fastlane, made._events = self._fastlane, self._events
        weakref.finalize(made, _abort, self._sockets).atexit = False
        return made

    @contextlib.contextmanager
    def _handing_over(self, tcp: Any, url: str) -> Iterator[None]:
        """Have openai's code give `websockets` what was opened for it."""
        given = self.__dict__[self.kept]
        self.__dict__[self.kept] = {**given, **tcp.arguments}
        try:
            yield
        except Exception as error:
            _explain(error, url)
            raise
        finally:
            tcp.close()
            self.__dict__[self.kept] = given


class _SyncManager(_Manager):
    def __enter__(self) -> Any:
        self._sockets = deque(maxlen=1)  # of this connection: it may open another one
        return self._entered(super().__enter__())  # type: ignore[misc]

    enter = __enter__

    def _connect_ws(self, extra_query: Any, extra_headers: Any) -> Any:
        websocket, stock = websocket_module(), super()._connect_ws  # type: ignore[misc]
        if not websocket.connects():
            return stock(extra_query, extra_headers)
        handle, settings, url = self._begin()
        tcp = websocket.open_tcp(settings, url, self.__dict__[self.kept])
        with self._handing_over(tcp, url):
            return self._opened(stock(extra_query, extra_headers), handle)


class _AsyncManager(_Manager):
    async def __aenter__(self) -> Any:
        self._sockets = deque(maxlen=1)
        return self._entered(await super().__aenter__())  # type: ignore[misc]

    enter = __aenter__

    async def _connect_ws(self, extra_query: Any, extra_headers: Any) -> Any:
        websocket, stock = websocket_module(), super()._connect_ws  # type: ignore[misc]
        if not websocket.connects(_connect_class(websocket)):
            return await stock(extra_query, extra_headers)
        handle, settings, url = self._begin()
        given = self.__dict__[self.kept]
        tcp = await websocket.open_async_tcp(settings if is_asyncio() else None, url, given)
        with self._handing_over(tcp, url):
            try:
                made = await stock(extra_query, extra_headers)
            except ValueError as error:
                if not isinstance(error.__cause__, websocket.InvalidStatus):
                    raise
                made = await websocket.follow_redirect(tcp, error.__cause__, _connect_class(websocket), given)
            return self._opened(made, handle)


def _connect_class(websocket: Any) -> Any:
    """Return what connects in openai's async client: its own class, or that of `websockets` in older versions."""
    return getattr(sys.modules.get("openai.lib._websocket"), "_WebSocketConnect", websocket.asyncio_client.connect)


log = logging.getLogger("openai.resources.responses.responses")


class _SyncConnection:
    _fastlane: Any
    _events: Events
    _connection: Any
    _reconnect_attempt = 0

    def recv_bytes(self) -> Any:
        if self._reconnect_attempt:
            return super().recv_bytes()  # type: ignore[misc]
        # What openai's method does, without an import for each message.
        message = self._connection.recv(decode=False)
        log.debug("Received WebSocket message: %i bytes", len(message))
        return message

    def parse_event(self, data: Any) -> Any:
        event = self._events.of(data)
        if event is not None:
            return event
        try:
            return super().parse_event(data)  # type: ignore[misc]
        except ValueError as error:
            error.add_note(
                f"An event of {len(data)} bytes is not valid JSON. The connection is open, and what the event said is "
                "lost: close the connection, and send the turn again on another one."
            )
            raise

    def send(self, event: Any) -> None:
        command = write_command(event)
        super().send(event) if command is None else super().send_raw(command)  # type: ignore[misc]


class _AsyncConnection(_SyncConnection):
    async def recv_bytes(self) -> Any:
        stock: Any = super(_SyncConnection, self)
        return await stock.recv_bytes()

    async def send(self, event: Any) -> None:  # type: ignore[override]
        command = write_command(event)
        stock: Any = super(_SyncConnection, self)
        await (stock.send(event) if command is None else stock.send_raw(command))


def open_socket(client: Any, timeout_s: float | None) -> Any:
    """Return a socket as `client.responses.connect()` opens one, without records; async clients await it.

    Raises OSError, TimeoutError, errors of `websockets`, and AttributeError if openai or the client has no such method.
    """
    # HTTP limits no answer either. At the level DEBUG `websockets` would log keys and prompts.
    quiet = logging.getLogger("websockets.client.fastlane")
    quiet.setLevel(logging.INFO)
    options = {"open_timeout": timeout_s, "close_timeout": 1.0, "max_size": None, "logger": quiet}
    manager = client.responses.connect(websocket_connection_options=options)
    # Older versions of openai send none of the client's own headers there.
    headers = {name: value for name, value in given_headers(client).items() if isinstance(value, str)}
    opening = manager._connect_ws({}, headers)
    return _async_unwatched(opening) if client._asynchronous else _unwatched(opening)


def _unwatched(made: Any) -> Any:
    made.watcher = None
    return made


async def _async_unwatched(opening: Any) -> Any:
    return _unwatched(await opening)


def websocket_module() -> Any:
    """Import the transport's WebSockets. Raises MissingExtraError without `websockets`."""
    try:
        from ..transport.drivers import websocket
    except ImportError as error:
        raise MissingExtraError("realtime", "websockets") from error
    return websocket


def _abort(sockets: deque[Any]) -> None:
    for made in sockets:
        made.abort()
        made.watcher.abandoned()


def _explain(error: Exception, url: str) -> None:
    if type(error).__name__ == "InvalidStatus":
        status, address = cast("Any", error).response.status_code, url.partition("?")[0].rpartition("@")[2]
        error.add_note(
            f"{address} refused the upgrade to a WebSocket with status {status}. If the provider does "
            "not offer Responses over WebSocket, use client.responses.create() or .stream() over HTTP."
        )
