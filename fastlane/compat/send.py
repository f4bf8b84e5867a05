"""Send a request without the layers of its HTTP client that do nothing for it."""

from __future__ import annotations

import functools
import inspect
import logging
from datetime import timedelta
from operator import attrgetter, is_
from typing import Any

from .._clock import now_ns
from ..transport import PoolSettings
from ..transport.drivers.requests import is_library_method

_METHODS = (
    "send", "_send_handling_auth", "_send_handling_redirects", "_send_single_request", "_build_request_auth",
    "_build_redirect_request", "_transport_for_url", "_set_timeout",
)  # fmt: skip

_read_methods: Any = attrgetter(*_METHODS)

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SET_COOKIE = (b"set-cookie", b"set-cookie2")


class _Layers:
    """One class of HTTP clients, and its methods between a caller and the transport."""

    def __init__(self, client: type[Any]) -> None:
        library: Any = next(base for base in client.__mro__ if base.__module__.partition(".")[0] in ("httpx", "httpx2"))
        self.methods = _read_methods(client)
        self.are_own = all(_is_own_method(client, name) for name in _METHODS)
        module = library.send.__globals__
        self._bound: Any = module["BoundAsyncStream" if library.__name__.startswith("Async") else "BoundSyncStream"]
        self._wants_response = "response" in inspect.signature(self._bound).parameters
        self.log: logging.Logger = module["logger"]
        self.closed, self.opened = module["ClientState"].CLOSED, module["ClientState"].OPENED

    def bind(self, response: Any, started_s: float) -> None:
        """Have the body record the elapsed time, as the library does."""
        if self._wants_response:
            response.stream = self._bound(response.stream, response=response, start=started_s)
        else:
            response.stream = self._bound(response.stream, start=started_s)


def _is_own_method(client: type[Any], name: str) -> bool:
    return is_library_method(next(base for base in client.__mro__ if name in base.__dict__), name)


@functools.lru_cache(maxsize=64)  # an application's classes come and go
def _layers(client: type[Any]) -> _Layers | None:
    try:
        return _Layers(client)
    except (AttributeError, KeyError, StopIteration, TypeError, ValueError):
        return None  # another version of the library


def layers_to_bypass(client: Any, http: Any, request: Any, options: dict[str, Any]) -> _Layers | None:
    """Return the layers to bypass for a request of a client without hooks, mounts or credentials of its own.

    None if a layer may have something to do: then `http.send` has to be called.
    """
    if options or getattr(client, "_provider_runtime", None) or getattr(client, "_workload_identity_auth", None):
        return None
    kind: Any = type(http)
    layers = _layers(kind)
    # An instrumentation or a mock may have replaced a method at any time.
    if layers is None or not layers.are_own or not all(map(is_, _read_methods(kind), layers.methods)):
        return None
    try:
        if not isinstance(http._transport.settings, PoolSettings):
            return None
        hooks = http._event_hooks
        plain = not (hooks["request"] or hooks["response"] or http._mounts or http._auth) and http.follow_redirects
        if (
            not plain
            or request.url.userinfo
            or (state := http._state) is layers.closed
            or not http.__dict__.keys().isdisjoint(_METHODS)
        ):
            return None
        if state is not layers.opened:  # only if needed: another thread may be closing it
            http._state = layers.opened
    except (AttributeError, KeyError):
        return None
    return layers


_WHOLE = object()
"""The body is to be read now, and needs no decoding."""


def _received(layers: _Layers, http: Any, request: Any, response: Any, started_s: float, *, stream: bool) -> Any:
    """Handle the head of a response as the library does. Returns the redirected request, `_WHOLE`, or None."""
    response.request = request
    plain, cookies = True, False
    for _, name, _ in response.headers._list:
        if name == b"content-encoding":
            plain = False
        elif name in _SET_COOKIE:
            cookies = True
    if cookies:
        http._cookies.extract_cookies(response)
    response.default_encoding = http._default_encoding
    if layers.log.isEnabledFor(logging.INFO):
        layers.log.info(
            'HTTP Request: %s %s "%s %d %s"',
            request.method,
            request.url,
            response.http_version,
            response.status_code,
            response.reason_phrase,
        )
    is_redirect = response.status_code in _REDIRECTS and response.has_redirect_location
    if plain and not stream and not is_redirect:
        return _WHOLE
    layers.bind(response, started_s)
    return http._build_redirect_request(request, response) if is_redirect else None


def _take(response: Any, pieces: list[bytes], started_s: float) -> None:
    response.elapsed = timedelta(seconds=now_ns() / 1e9 - started_s)
    response._content = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    response.is_stream_consumed = True
    response._num_bytes_downloaded = len(response._content)
    response.is_closed = True


def send(layers: _Layers, http: Any, request: Any, *, stream: bool) -> Any:
    """Send a request. Returns the response, with its body unless `stream`. Raises the library's errors."""
    started_s = now_ns() / 1e9
    response = http._transport.handle_request(request)
    try:
        following = _received(layers, http, request, response, started_s, stream=stream)
        if following is _WHOLE:
            pieces = list(response.stream)
            response.stream.close()
            _take(response, pieces, started_s)
            return response
        if following is not None:
            response.read()
            response = http._send_handling_redirects(following, follow_redirects=True, history=[response])
        if not stream:
            response.read()
    except BaseException:
        response.close()
        raise
    return response


async def async_send(layers: _Layers, http: Any, request: Any, *, stream: bool) -> Any:
    """See `send`."""
    started_s = now_ns() / 1e9
    response = await http._transport.handle_async_request(request)
    try:
        following = _received(layers, http, request, response, started_s, stream=stream)
        if following is _WHOLE:
            pieces = [piece async for piece in response.stream]
            await response.stream.aclose()
            _take(response, pieces, started_s)
            return response
        if following is not None:
            await response.aread()
            response = await http._send_handling_redirects(following, follow_redirects=True, history=[response])
        if not stream:
            await response.aread()
    except BaseException:
        await response.aclose()
        raise
    return response
