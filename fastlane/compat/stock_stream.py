"""Whether a stream can be read by the fast way, and openai's own iterator for what cannot."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import Any

import openai

from ..decode import event_decoder
from ..decode.probes import holds
from ..engine.body import AsyncObservedBody, SyncObservedBody
from ..engine.observation import Observation
from .fast_stream import FastWay

# What the fast way does in the place of, by who has it.
_OF_CLIENTS = ("_make_sse_decoder", "_process_response_data")
_OF_STREAMS = ("__init__", "__stream__", "_iter_events")
_OF_DECODERS = ("__init__", "decode", "iter_bytes", "aiter_bytes")
_OF_RESPONSES = ("iter_bytes", "iter_raw", "close", "aiter_bytes", "aiter_raw", "aclose")

# An instance of its own may have others, and a response may have been given a content or a decoder.
_CLIENTS_OWN = frozenset(_OF_CLIENTS)
_RESPONSES_OWN = frozenset({*_OF_RESPONSES, "_content", "_decoder"})


def fast_way(stream: Any, stream_cls: Any, observation: Observation) -> FastWay | None:
    """How to read this stream without openai's code; None where only that will do.

    `stream_cls` is what `stream` is the observing form of. Asked by the stream's own constructor, for its iterator.
    """
    origin = getattr(stream_cls, "__origin__", None)
    if origin is not openai.Stream and origin is not openai.AsyncStream:
        return None  # a class of the application's own may do anything
    if origin is openai.AsyncStream and not _is_in_asyncio():
        return None
    client, response, options = stream._client, stream.response, stream._options
    if (
        client._strict_response_validation is not False
        or not _is_legacy(options)
        or not _CLIENTS_OWN.isdisjoint(client.__dict__)
        or not _has_own(type(client), _OF_CLIENTS, "openai")
        or not _is_plain(response, observation, asynchronous=origin is openai.AsyncStream)
        or not _has_own(origin, _OF_STREAMS, "openai")
        or type(stream._decoder) is not _stock_decoder()
        or not _has_own(type(stream._decoder), _OF_DECODERS, "openai")
        or not holds(f"openai.{origin.__name__}", partial(_probed, origin))
    ):
        return None
    decode = event_decoder(stream._cast_to)
    if decode is None:
        return None
    make = partial(stream_cls, cast_to=stream._cast_to, response=response, client=client, options=options)
    return FastWay(decode=decode, begin=lambda: make()._iterator, resume=lambda rest: _resumed(make(), rest))


def _is_in_asyncio() -> bool:
    """Whether asyncio runs here: trio complains of generators that are gone before it looks, as ours would be."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _is_legacy(options: Any) -> bool:
    """Whether an event's data is all that becomes of it; of the newest openai's two modes, one."""
    if options is None:
        return True
    return not options.synthesize_event_and_data and getattr(options, "stream_mode", "legacy") == "legacy"


def _has_own(holder: Any, names: tuple[str, ...], package: str) -> bool:
    """Whether a class has these methods from its package, and not from a subclass, an instrumentation or a patch.

    Asked for each stream: a class may be patched at any time.
    """
    for name in names:
        method = getattr(holder, name, None)
        if type(method) is not FunctionType or method.__module__.partition(".")[0] != package:
            return False
        if method.__globals__.get("__name__") != method.__module__:
            return False  # a wrapper goes by the name of what it wraps
    return True


def _is_plain(response: Any, observation: Observation, *, asynchronous: bool) -> bool:
    """Whether a response is its library's own, with an unread body that is not encoded, and that we watch."""
    body = response.stream
    library = type(response).__module__.partition(".")[0]
    return (
        isinstance(body, AsyncObservedBody if asynchronous else SyncObservedBody)
        and body.is_watched_by(observation)
        and library in ("httpx2", "httpx")
        and type(response) is getattr(sys.modules.get(library), "Response", None)
        and _RESPONSES_OWN.isdisjoint(response.__dict__)
        and "_num_bytes_downloaded" in response.__dict__
        and response.is_stream_consumed is response.is_closed is False
        and response.headers.get("content-encoding", "identity") == "identity"
        and _has_own(type(response), _OF_RESPONSES, library)
    )


def _stock_decoder() -> Any:
    return getattr(sys.modules.get("openai._streaming"), "SSEDecoder", None)


class _Resuming:
    """openai's decoder, given other bytes than those of the response that was opened for it."""

    def __init__(self, decoder: Any, rest: Any) -> None:
        self._decoder = decoder
        self._rest = rest

    def iter_bytes(self, iterator: object) -> Any:
        return self._decoder.iter_bytes(self._rest)

    def aiter_bytes(self, iterator: object) -> Any:
        return self._decoder.aiter_bytes(self._rest)


def _resumed(stock: Any, rest: Any) -> Any:
    # Its iterator has not begun yet: it asks for its decoder's events when it does.
    stock._decoder = _Resuming(stock._decoder, rest)
    return stock._iterator


# What openai makes of the plainest forms is taken for granted by the fast way. Asked once, of openai's own code.

_PROBE = (
    b'data: {"n": 1}\n\n: a\n\nevent: name\nda',
    b'ta:{"n": 2}\n\n: b\n: c\n\ndata: {"n": 3}\n\n',
    b"data: [DONE]\n\ndata: none\n\n",
)
_PROBED = [{"n": 1}, {"n": 2}, {"n": 3}]


class _ProbeResponse:
    """An answer without a network, as far as a stream looks at it."""

    http_version = "HTTP/2"
    request = None

    def __init__(self) -> None:
        self.is_closed = False

    def iter_bytes(self) -> Iterator[bytes]:
        yield b"data: these bytes are not asked for\n\n"

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        yield b"data: these bytes are not asked for\n\n"

    def close(self) -> None:
        self.is_closed = True

    async def aclose(self) -> None:
        self.is_closed = True


def _as_it_is(*, data: Any, **_others: Any) -> Any:
    return data


def _probed(origin: Any) -> bool:
    client = SimpleNamespace(_make_sse_decoder=_stock_decoder(), _process_response_data=_as_it_is)
    response = _ProbeResponse()
    stock = origin(cast_to=dict, response=response, client=client, options=None)
    if origin is openai.Stream:
        found = list(_resumed(stock, iter(_PROBE)))
    else:
        # What openai leaves unread there is nothing for the application's event loop to close, or to complain about.
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(None, None)
        try:
            found = list(_without_waiting(_resumed(stock, _one_by_one())))
        finally:
            sys.set_asyncgen_hooks(*hooks)
    return found == _PROBED and response.is_closed


async def _one_by_one() -> AsyncIterator[bytes]:
    for piece in _PROBE:
        yield piece


def _without_waiting(items: Any) -> Iterator[Any]:
    """The items of an asynchronous iterator that never has to wait."""
    while True:
        step = items.__anext__()
        try:
            step.send(None)
        except StopIteration as item:
            yield item.value
        except StopAsyncIteration:
            return
        else:
            raise RuntimeError("openai's stream waits for more than its bytes")
