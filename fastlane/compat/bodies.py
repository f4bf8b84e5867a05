"""The body of an unread response: it can be peeked at, and reports when pieces arrive and how it ends."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from functools import cache
from typing import Any, NoReturn, Protocol, Self

from .._clock import now_ns
from ..decode.probes import holds
from ..protocol.events import EventReader
from ..protocol.fields import from_json
from ..transport.protocols.exchange import PHASES, Phases

# The most bytes kept of an undecoded answer to read its usage: more than any chat answer needs.
_MOST_KEPT_BYTES = 4 * 1024 * 1024

OBSERVER = "fastlane.observation"
"""The request extension with its observer: a stream may be read in another thread or task than it was opened in."""


class Observer(Protocol):
    """Gets what happens while a response is read; the engine's state of a call."""

    answer: Any
    decoded: bool
    """A decoding stream passes its events on: the bytes need not be parsed."""
    exhausted: bool
    pulling: bool
    """The decoding stream waits for the next piece."""
    received_bytes: int
    streaming: bool
    watchers: Any

    @property
    def finishes(self) -> bool:
        """Whether the answer ends with a finish reason."""

    def show(self, event: Any, /) -> bool:
        """Pass an event to the watchers. Returns whether the stream is to end after it."""

    def closing_events(self, typed: Callable[[Any], Any], /) -> list[Any]:
        """Return the events that end a stopped stream; `typed` makes each from its JSON."""

    def check_whole(self, request: Any, /) -> None:
        """Raise an error if the events have ended amid the answer, and a play continues broken streams."""

    def broken(self, error: BaseException, /) -> Callable[[], Any] | None:
        """Return a function that continues a broken stream; None to raise its error."""

    def note_raw_answer(self, body: bytes, /) -> None:
        """Record a whole body that the caller reads undecoded."""

    def done(self) -> None:
        """Record the end of the events (`data: [DONE]`)."""

    def failed(self, error: BaseException, /) -> None:
        """Record the error that ended the reading."""

    def finish(self) -> None:
        """Report the call."""

    def body_failed(self, error: BaseException, /) -> None:
        """Record that reading the body failed."""

    def body_closed(self) -> None:
        """Record that the body was closed."""

    def abandoned(self) -> None:
        """Record that the body was garbage-collected."""


def watch_body(response: Any, observer: Observer, *, asynchronous: bool) -> None:
    """Report the reading of a response's body to an observer."""
    observer.streaming = True
    body = body_around(response, asynchronous=asynchronous)
    body.observer, body.reader = observer, _reader_for(response, observer)


def body_around(response: Any, *, asynchronous: bool) -> SyncResponseBody | AsyncResponseBody:
    """Wrap the body of a response, unless it is wrapped already. Returns the wrapper."""
    inner, form = response.stream, AsyncResponseBody if asynchronous else SyncResponseBody
    if isinstance(inner, form):
        return inner
    phases = response.extensions.get(PHASES)
    body_class = _body_class(form, _family(type(inner), "AsyncByteStream" if asynchronous else "SyncByteStream"))
    body: SyncResponseBody | AsyncResponseBody = body_class(inner, phases if isinstance(phases, Phases) else Phases())
    response.stream = body
    return body


def _family(stream_type: type, name: str) -> type:
    """Return the stream base class of the response's library (httpx2, or legacy httpx)."""
    return next((base for base in stream_type.__mro__ if base.__name__ == name), object)


@cache
def _body_class(form: type[Any], base: type) -> type[Any]:
    return type(form.__name__, (form, base), {})


# The names in the code of a library's wrapper that only passes the pieces of a transport's body on.
_HANDS_ON = frozenset({"_stream", "__aiter__", "isinstance", "AsyncGenerator", "aclose"})


def unwrapped(inner: Any, own: str) -> Any:
    """Return the body of fastlane's transport without the HTTP client's timing wrapper; any other body unchanged."""
    # Looked up, not imported: the import takes time, and is not needed if no client uses the transport.
    bodies = sys.modules.get("fastlane.transport.drivers.engines")
    wrapped = getattr(inner, "__dict__", {}).get("_stream")
    kind = type(inner)
    if bodies is None or not isinstance(wrapped, getattr(bodies, own)) or not kind.__module__.startswith("httpx"):
        return inner
    read: Any = kind.__aiter__ if own == "AsyncBody" else kind.__iter__
    return (
        wrapped
        if holds(f"{kind.__module__}.{kind.__name__}", lambda: _HANDS_ON.issuperset(read.__code__.co_names))
        else inner
    )


class PeekedPieces:
    """The pieces of a body that was peeked at: first those that were read, each with its time of arrival."""

    def __init__(self, rest: Any, phases: Phases) -> None:
        self.rest = rest
        """An iterator over the pieces that were not read yet, sync or async as the client; None if reading failed."""
        self._phases = phases
        self._held: deque[tuple[bytes, int]] = deque()
        self._error: Exception | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        if self._held:
            return self._next_held()
        if self.rest is None:
            self._failed(StopIteration())
        self._phases.chunk_ns = 0  # only fastlane's transport sets it for the next piece
        piece: bytes = next(self.rest)
        return piece

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[bytes]:
        if self._held or self.rest is None:
            return self._later()
        self._phases.chunk_ns = 0
        following: Awaitable[bytes] = self.rest.__anext__()
        return following

    def hold(self, piece: bytes) -> None:
        """Keep a piece that was read, for the reader of the body."""
        self._held.append((piece, self._phases.chunk_ns or now_ns()))
        self._phases.chunk_ns = 0

    def fail(self, error: Exception) -> None:
        """Raise this error once, after the pieces that were read."""
        # `_failed` drops the traceback, which refers to the response and so to this object.
        self._error, self.rest = error, None

    def forget(self) -> None:
        """Drop the kept pieces, because the body is closed."""
        self._held.clear()
        self._error = None

    def _next_held(self) -> bytes:
        piece, self._phases.chunk_ns = self._held.popleft()
        return piece

    async def _later(self) -> bytes:
        return self._next_held() if self._held else self._failed(StopAsyncIteration())

    def _failed(self, end: Exception) -> NoReturn:
        error, self._error = self._error or end, None
        try:
            raise error.with_traceback(None)
        finally:
            del error, end


class _Body:
    """The code shared by the sync and the async body."""

    def __init__(self, inner: Any, phases: Phases) -> None:
        self._inner = inner
        self.phases = phases
        """Where fastlane's transport records when each piece arrived. Another transport records nothing."""
        self.observer: Any = None
        """The `Observer`; None without one."""
        self.reader: _UndecodedReader | None = None
        self.peeked: PeekedPieces | None = None
        """The peeked pieces; None if the body was not peeked at."""
        self.following: Any = None
        """The response that continues this one, and is closed with it; None without one."""

    @property
    def elapsed(self) -> Any:
        """The elapsed time that the HTTP client measured; read by `response.elapsed`."""
        return getattr(self._inner, "elapsed", None)

    def peek(self) -> PeekedPieces:
        """Begin to read pieces before the reader of the body does."""
        self.peeked = PeekedPieces(self.bare(), self.phases)
        return self.peeked

    def bare(self) -> Any:
        """Return the pieces unobserved, for a stream that reports to the observer itself."""
        raise NotImplementedError

    def _undecoded(self) -> _UndecodedReader | None:
        """Return the parser of undecoded bytes; None if a decoding stream passes the events on."""
        return None if self.observer.decoded else self.reader

    def _ended(self) -> None:
        observer = self.observer
        observer.exhausted = True
        reader = self._undecoded()
        if reader is not None:
            reader.finish()

    def _closing(self) -> None:
        if self.peeked is not None:
            self.peeked.forget()

    def _closed(self) -> None:
        if self.observer is not None:
            self.observer.body_closed()

    def __del__(self) -> None:
        if getattr(self, "observer", None) is not None:
            self.observer.abandoned()


class SyncResponseBody(_Body):
    """The wrapped body of a synchronous response."""

    def __iter__(self) -> Iterator[bytes]:
        return self.bare() if self.observer is None else self.observed(self.bare())

    def bare(self) -> Iterator[bytes]:
        """See `_Body`."""
        return self.peeked or iter(unwrapped(self._inner, "SyncBody"))

    def observed(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The pieces, or those that `bare()` has not given yet, with everything passed to the observer."""
        observer, reader, phases = self.observer, self._undecoded(), self.phases
        answer = observer.answer
        try:
            for chunk in pieces:
                answer.arrived_ns = phases.chunk_ns or now_ns()
                observer.received_bytes += len(chunk)
                if reader is not None:
                    reader.feed(chunk)
                yield chunk
        except GeneratorExit:
            raise  # the reader gave up; closing the body records how the call ended
        except BaseException as error:
            observer.body_failed(error)
            raise
        self._ended()

    def close(self) -> None:
        """Close the body, and report how it ended."""
        self._closing()
        try:
            self._inner.close()
        finally:
            self._closed()
            if self.following is not None:
                self.following.close()


class AsyncResponseBody(_Body):
    """The wrapped body of an asynchronous response."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.bare() if self.observer is None else self.observed(self.bare())

    def bare(self) -> AsyncIterator[bytes]:
        """See `_Body`."""
        return self.peeked or aiter(unwrapped(self._inner, "AsyncBody"))

    async def observed(self, pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        """The pieces, or those that `bare()` has not given yet, with everything passed to the observer."""
        observer, reader, phases = self.observer, self._undecoded(), self.phases
        answer = observer.answer
        try:
            async for chunk in pieces:
                answer.arrived_ns = phases.chunk_ns or now_ns()
                observer.received_bytes += len(chunk)
                if reader is not None:
                    reader.feed(chunk)
                yield chunk
        except GeneratorExit:
            raise  # the reader gave up; closing the body records how the call ended
        except BaseException as error:
            observer.body_failed(error)
            raise
        self._ended()

    async def aclose(self) -> None:
        """Close the body, and report how it ended."""
        self._closing()
        try:
            await self._inner.aclose()
        finally:
            self._closed()
            if self.following is not None:
                await self.following.aclose()


class _UndecodedReader:
    """Parses tokens and usage from bytes that the caller reads undecoded (`iter_lines()`, `iter_bytes()`)."""

    def __init__(self, observer: Observer, *, events: bool) -> None:
        self.observer = observer
        self._reader = EventReader() if events else None
        self._kept: list[bytes] = []
        self._kept_bytes = 0

    def feed(self, chunk: bytes) -> None:
        if self._kept_bytes > _MOST_KEPT_BYTES:
            return
        self._kept_bytes += len(chunk)
        if self._reader is None:
            self._kept.append(chunk)
        else:
            for data in self._reader.feed(chunk):
                self._kept_bytes = 0
                self._read(data)
        if self._kept_bytes > _MOST_KEPT_BYTES:
            self._reader = None
            self._kept.clear()

    def finish(self) -> None:
        if self._kept:
            self.observer.note_raw_answer(b"".join(self._kept))
            self._kept.clear()

    def _read(self, data: bytes) -> None:
        if data.startswith(b"[DONE]"):
            self.observer.done()
            return
        try:
            event = from_json(data)
        except ValueError:
            return  # the caller reads the invalid data itself
        self.observer.answer.event(event)


def _reader_for(response: Any, observer: Observer) -> _UndecodedReader | None:
    if not observer.finishes or response.status_code >= 400:
        return None
    headers = response.headers
    if headers.get("content-encoding", "identity") != "identity":
        return None  # compressed: the bytes seen here are not the text
    return _UndecodedReader(observer, events=headers.get("content-type", "").startswith("text/event-stream"))


def name_request(error: Any, response: Any) -> None:
    """Set the request of an error that reading a body raised, as the HTTP library does with its own errors."""
    if getattr(error, "_request", error) is None:
        error.request = response.request
