"""Streams of openai's classes that decode events directly from the bytes, and pass them to an observer.

openai's own code reads a stream of an unusual kind, and the rest of any other stream from the first unusual byte on.
"""

from __future__ import annotations

import sys
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any

import openai
from openai._models import construct_type
from openai._streaming import SSEDecoder

from .._clock import now_ns
from ..decode import event_decoder
from ..decode.probes import holds
from ..protocol.events import EventSplitter
from .bodies import OBSERVER, AsyncResponseBody, Observer, SyncResponseBody, name_request
from .context import is_asyncio
from .requests import OwnMethods

# The methods of openai and the HTTP library that this module replaces, by class.
_OF_CLIENTS = ("_make_sse_decoder", "_process_response_data")
_OF_STREAMS = ("__init__", "__stream__", "_iter_events")
_OF_DECODERS = ("__init__", "decode", "iter_bytes", "aiter_bytes")
_OF_RESPONSES = ("iter_bytes", "iter_raw", "close", "aiter_bytes", "aiter_raw", "aclose")

# Attributes that may have been set on a client or a response.
_GIVEN_TO_CLIENTS = frozenset(_OF_CLIENTS)
_GIVEN_TO_RESPONSES = frozenset({*_OF_RESPONSES, "_content", "_decoder"})

_LF = 10


@lru_cache(maxsize=256)  # an application's classes come and go
def observing(stream_cls: Any) -> Any:
    """Return a subclass of a stream class, such as `Stream[ChatCompletionChunk]`, that reports to an observer."""
    origin = getattr(stream_cls, "__origin__", stream_cls)
    read: Any = async_read_events if issubclass(origin, openai.AsyncStream) else read_events

    # `stream_cls` has to be the only base: openai reads the type of the events from `__orig_bases__`.
    class ObservedStream(stream_cls):  # type: ignore[misc]
        def __stream__(self) -> Any:
            observer = self.response.request.extensions.get(OBSERVER)
            if observer is None:
                return super().__stream__()
            reading = Reading(observer, self.response, self._cast_to)
            reading.decode = _decoder_for(self, stream_cls, observer)
            if reading.decode is None:
                reading.source = super().__stream__()
            else:
                given = {"cast_to": self._cast_to, "client": self._client, "options": self._options}
                reading.reopen = partial(stream_cls, response=self.response, **given)
            return read(reading)

    ObservedStream.__name__, ObservedStream.__qualname__ = origin.__name__, origin.__qualname__
    return ObservedStream


class Reading:
    """One stream while its events are read, by a sync or an async generator. Does no I/O.

    It does not refer to the stream, so that a dropped stream is freed at once.
    """

    __slots__ = (
        "_cast_to", "_phases", "_piece", "_pieces", "_splitter", "decode", "observer", "reopen", "response", "rest",
        "source", "was_closed",
    )  # fmt: skip

    def __init__(self, observer: Observer, response: Any, cast_to: Any) -> None:
        self.observer = observer
        self.response = response
        self.decode: Any = None
        """Decodes the data of an event; returns None for data that openai's code has to read. None: that reads all."""
        self.reopen: Any = None
        """Makes the stream again, as openai has it."""
        self.source: Any = None
        """openai's own iterator, once it is in use."""
        self.rest: list[bytes] | None = None
        """Received bytes that openai's code has to read, followed by the rest of the body; None: not needed."""
        self.was_closed = False
        """Whether the application closed the response while it was read, in another thread or task."""
        self._cast_to = cast_to
        self._splitter = EventSplitter()
        self._piece: bytes | None = None
        """The last piece, if it is one whole event."""

    def begin(self) -> tuple[Any, Callable[[Any], Iterable[Any]]]:
        """Return the first iterator to read, and the function that splits its items into events."""
        response = self.response
        if self.source is None and (response.is_closed or response.is_stream_consumed):
            self.source = self.reopen()._iterator  # raises the error that says so
        if self.source is not None:
            return self.source, _single
        response.is_stream_consumed = True
        response._num_bytes_downloaded = 0
        self._phases = response.stream.phases
        self._pieces = response.stream.bare()
        return self._pieces, self.split

    def split(self, piece: bytes) -> Sequence[bytes | None]:
        """Return the data of each event that a piece of the body completes; None for a comment.

        The caller decodes them one by one: a large piece has hundreds. It calls `stop_at` for the first one that
        `decode` does not take.
        """
        observer, splitter = self.observer, self._splitter
        observer.answer.arrived_ns = self._phases.chunk_ns or now_ns()
        size = len(piece)
        observer.received_bytes += size
        self.response._num_bytes_downloaded += size
        if (
            piece.find(b"\n") == size - 2
            and piece[:6] == b"data: "
            and piece[-1] == _LF
            and piece.find(b"\r") < 0
            and not splitter.is_open
        ):
            # The fast path: one whole event in one piece, as in nearly every stream.
            self._piece = piece
            return (piece[6:-2],)
        self._piece = None
        blocks = splitter.feed(piece)
        if splitter.stopped:
            self.rest = splitter.left(len(blocks))
        return blocks

    def stop_at(self, index: int) -> None:
        """Leave the events of the last piece from this one on, and all that follow, to openai's code."""
        self.rest = self._splitter.left(index) if self._piece is None else [self._piece]

    def follow(self, error: BaseException) -> tuple[Any, Callable[[Any], Iterable[Any]]]:
        """Return what to read after an iterator has ended; None after the last. Raises its error if it has failed."""
        is_end = isinstance(error, StopIteration | StopAsyncIteration)
        if self.source is not None:
            if not is_end:
                raise error
            if not self.observer.exhausted:
                self.observer.done()
            return None, _single
        self.rest = self._splitter.unended()
        self.was_closed = self.response.is_closed
        if is_end:
            return self.resume()
        self.observer.body_failed(error)
        if not isinstance(error, Exception):
            raise error
        return self.resume(error)  # openai's code converts the error

    def resume(self, failure: Exception | None = None) -> tuple[Any, Callable[[Any], Iterable[Any]]]:
        """Return openai's own iterator over the rest of the body, up to its failure if there is one."""
        rest, self.rest = self.rest or [], None
        stream = self.reopen()
        left = _async_remaining_bytes if isinstance(stream, openai.AsyncStream) else _remaining_bytes
        coming = self.response.stream.observed(self._pieces)
        # Replace the decoder before the iterator begins, which reads events from it.
        stream._decoder = _Resuming(stream._decoder, left(self.response, rest, coming, failure))
        self.source = stream._iterator
        return self.source, _single

    def join(self, stream: Any) -> Any:
        """Let the closing of this response close another one too, which continues it. Returns the other's events."""
        body = self.response.stream
        if isinstance(body, SyncResponseBody | AsyncResponseBody):
            body.observer, body.following = None, stream.response
            self.response.is_closed = False
        return stream._iterator

    def closing_events(self) -> list[Any]:
        """Return the events that end a stream which a play has stopped."""
        return self.observer.closing_events(lambda event: construct_type(value=event, type_=self._cast_to))


def _single(event: Any) -> tuple[Any]:
    return (event,)


# Generators, as in openai, because instrumentations check the type of a stream's iterator.


def read_events(reading: Reading) -> Generator[Any, None, None]:
    """Yield the events of a stream, after passing each to the observer."""
    observer, go_on = reading.observer, None
    observer.decoded = True
    see, watched, decode = observer.answer.event, bool(observer.watchers), reading.decode
    try:
        items, split = reading.begin()
        while items is not None:
            observer.pulling = True
            try:
                item = next(items)
            except BaseException as error:  # noqa: BLE001 - raised again, or given to openai's code
                items, split = reading.follow(error)
                continue
            # Until here, `pulling` defers what reading reports about the end of the call.
            observer.pulling = False
            for index, data in enumerate(split(item)):
                event = data
                if reading.source is None:
                    if data is None:
                        continue
                    event = decode(data)
                    if event is None:
                        reading.stop_at(index)
                        break
                see(event)
                if watched and observer.show(event):
                    yield event
                    yield from reading.closing_events()
                    return
                yield event
            if reading.rest is not None:
                items, split = reading.resume()
        if watched and not reading.was_closed:
            observer.check_whole(reading.response.request)
    except BaseException as error:
        go_on = None if reading.was_closed else observer.broken(error)
        if go_on is None:
            observer.failed(error)
            raise
    finally:
        observer.pulling = True
        try:
            (reading.response if reading.source is None else reading.source).close()
        finally:
            observer.pulling = False
            if go_on is None:
                observer.finish()
    continuation = None if go_on is None else go_on()
    if continuation is not None:
        stream, adapt = continuation
        events = reading.join(stream)
        try:
            for event in events:
                adapted = adapt(event)
                if adapted is not None:
                    yield adapted
        finally:
            events.close()
            reading.response.is_closed = True


async def async_read_events(reading: Reading) -> AsyncGenerator[Any, None]:
    """See `read_events`."""
    observer, dropped, go_on = reading.observer, False, None
    observer.decoded = True
    see, watched, decode = observer.answer.event, bool(observer.watchers), reading.decode
    try:
        items, split = reading.begin()
        while items is not None:
            observer.pulling = True
            try:
                item = await items.__anext__()
            except BaseException as error:  # noqa: BLE001 - raised again, or given to openai's code
                items, split = reading.follow(error)
                continue
            observer.pulling = False
            for index, data in enumerate(split(item)):
                event = data
                if reading.source is None:
                    if data is None:
                        continue
                    event = decode(data)
                    if event is None:
                        reading.stop_at(index)
                        break
                see(event)
                if watched and observer.show(event):
                    yield event
                    for closing in reading.closing_events():
                        yield closing
                    return
                yield event
            if reading.rest is not None:
                items, split = reading.resume()
        if watched and not reading.was_closed:
            observer.check_whole(reading.response.request)
    except BaseException as error:
        dropped = isinstance(error, GeneratorExit)
        go_on = None if reading.was_closed else observer.broken(error)
        if go_on is None:
            observer.failed(error)
            raise
    finally:
        observer.pulling = True
        try:
            # The event loop closes every generator of a dropped stream itself, openai's too, and no generator can be
            # closed twice at once. With the response closed first, none of them waits.
            await (reading.response if dropped or reading.source is None else reading.source).aclose()
        finally:
            observer.pulling = False
            if go_on is None:
                observer.finish()
    continuation = None if go_on is None else await go_on()
    if continuation is not None:
        stream, adapt = continuation
        events = reading.join(stream)
        try:
            async for event in events:
                adapted = adapt(event)
                if adapted is not None:
                    yield adapted
        finally:
            # Ends the other generator too, which the event loop may be closing by itself.
            await stream.response.aclose()
            reading.response.is_closed = True


def _remaining_bytes(
    response: Any, rest: Iterable[bytes], coming: Iterable[bytes], failure: Exception | None
) -> Iterator[bytes]:
    """Yield the rest of `response.iter_bytes()`: the received bytes, then those still to come."""
    yield from rest
    try:
        if failure is not None:
            raise failure
        for piece in coming:
            response._num_bytes_downloaded += len(piece)
            yield piece
    except Exception as error:
        name_request(error, response)
        raise
    finally:
        response.close()


async def _async_remaining_bytes(
    response: Any, rest: Iterable[bytes], coming: AsyncIterable[bytes], failure: Exception | None
) -> AsyncIterator[bytes]:
    for piece in rest:
        yield piece
    try:
        if failure is not None:
            raise failure
        async for piece in coming:
            response._num_bytes_downloaded += len(piece)
            yield piece
    except Exception as error:
        name_request(error, response)
        raise
    finally:
        await response.aclose()


class _Resuming:
    """openai's decoder, reading other bytes than those of the response that it was opened for."""

    def __init__(self, decoder: Any, left: Any) -> None:
        self._decoder = decoder
        self._remaining_bytes = left

    def iter_bytes(self, iterator: object) -> Any:
        return self._decoder.iter_bytes(self._remaining_bytes)

    def aiter_bytes(self, iterator: object) -> Any:
        return self._decoder.aiter_bytes(self._remaining_bytes)


def _decoder_for(stream: Any, stream_cls: Any, observer: Observer) -> Callable[[bytes], Any] | None:
    """Return the decoder of events, if a stream can be read without openai's code; None otherwise.

    Called by the stream's constructor, for its iterator. Checked for each stream, as a class may be patched any time.
    """
    origin = getattr(stream_cls, "__origin__", None)
    if origin is not openai.Stream and origin is not openai.AsyncStream:
        return None  # a subclass of the application
    asynchronous = origin is openai.AsyncStream
    if asynchronous and not is_asyncio():  # trio warns of generators that are garbage-collected, as ours may be
        return None
    client, response, options = stream._client, stream.response, stream._options
    kind: Any = type(client)
    if (
        client._strict_response_validation is not False
        or not _is_data_alone(options)
        or not _GIVEN_TO_CLIENTS.isdisjoint(client.__dict__)
        or not _methods(kind, _OF_CLIENTS).are_own
        or not _is_plain(response, observer, asynchronous=asynchronous)
        or not _methods(origin, _OF_STREAMS).are_own
        or type(stream._decoder) is not SSEDecoder
        or not _methods(SSEDecoder, _OF_DECODERS).are_own
        or not holds(f"openai.{origin.__name__}", partial(_reads_as_expected, origin))
    ):
        return None
    return event_decoder(stream._cast_to)


@lru_cache(maxsize=64)  # an application's classes come and go
def _methods(owner: Any, names: tuple[str, ...]) -> OwnMethods:
    return OwnMethods((owner, names))


def _is_data_alone(options: Any) -> bool:
    """Return whether the stream yields the data of events alone, and not whole events."""
    if options is None:
        return True
    return not options.synthesize_event_and_data and getattr(options, "stream_mode", "legacy") == "legacy"


def _is_plain(response: Any, observer: Observer, *, asynchronous: bool) -> bool:
    """Return whether a response is the library's own class, with an unread, uncompressed and observed body."""
    body = response.stream
    kind: Any = type(response)
    library = kind.__module__.partition(".")[0]
    return (
        isinstance(body, AsyncResponseBody if asynchronous else SyncResponseBody)
        and body.observer is observer
        and library in ("httpx2", "httpx")
        and kind is getattr(sys.modules.get(library), "Response", None)
        and _GIVEN_TO_RESPONSES.isdisjoint(response.__dict__)
        and "_num_bytes_downloaded" in response.__dict__
        and response.is_stream_consumed is response.is_closed is False
        and response.headers.get("content-encoding", "identity") == "identity"
        and _methods(kind, _OF_RESPONSES).are_own
    )


# The probe: checks once that openai's own code reads these forms of events as assumed here.

_PROBE = (
    b'data: {"n": 1}\n\n: a\n\nevent: name\nda',
    b'ta:{"n": 2}\n\n: b\n: c\n\ndata: {"n": 3}\n\n',
    b"data: [DONE]\n\ndata: none\n\n",
)
_PROBED = [{"n": 1}, {"n": 2}, {"n": 3}]


class _ProbeResponse:
    """A fake response with what a stream uses of it."""

    http_version = "HTTP/2"
    request = None

    def __init__(self) -> None:
        self.is_closed = False

    def iter_bytes(self) -> Iterator[bytes]:
        yield b"data: these bytes must not be read\n\n"

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        yield b"data: these bytes must not be read\n\n"

    def close(self) -> None:
        self.is_closed = True

    async def aclose(self) -> None:
        self.is_closed = True


def _reads_as_expected(origin: Any) -> bool:
    client = SimpleNamespace(_make_sse_decoder=SSEDecoder, _process_response_data=lambda *, data, **_: data)
    response = _ProbeResponse()
    stream = origin(cast_to=dict, response=response, client=client, options=None)
    if origin is openai.Stream:
        stream._decoder = _Resuming(stream._decoder, iter(_PROBE))
        found = list(stream._iterator)
    else:
        stream._decoder = _Resuming(stream._decoder, _one_by_one())
        # Without hooks, the event loop does not close or report the generator that openai leaves unfinished.
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(None, None)
        try:
            found = list(_without_waiting(stream._iterator))
        finally:
            sys.set_asyncgen_hooks(*hooks)
    return found == _PROBED and response.is_closed


async def _one_by_one() -> AsyncIterator[bytes]:
    for piece in _PROBE:
        yield piece


def _without_waiting(items: Any) -> Iterator[Any]:
    """Yield the items of an async iterator that never waits."""
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
