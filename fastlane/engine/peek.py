"""Read a response until it is known how its answer begins, and give it back as if nobody had read anything of it."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Iterator
from functools import cache
from typing import Any, Self

from .._clock import now_ns
from ..compat.bodies import family, name_request, unwrapped
from ..protocol.first_content import FirstContent, Verdict
from ..transport.protocols.exchange import PHASES, Phases
from .collecting import is_event_stream
from .effects import Close, Flow, Next

_Held = deque[tuple[bytes, int]]
"""Pieces of a body, each with its arrival."""


def peek(
    response: Any,
    endpoint: str,
    *,
    asynchronous: bool,
    first: FirstContent | None = None,
    until_ns: int | None = None,
) -> Flow:
    """Read a response until its first content. Returns a Verdict.

    Its `stream` then gives every piece again, with the time of its arrival, and goes on with the rest. A response that
    is no event stream, or compressed, is not read: "unknown". Raises what reading raises; the `stream` then gives what
    had come, and raises the same error. `first` can be asked about an error afterwards. `until_ns`: see `Send`.
    """
    if not _can_be_read(response):
        return "unknown"
    inner = response.stream
    pieces: Any
    if asynchronous:
        pieces = aiter(unwrapped(inner, "AsyncBody"))
        body_class = _body_class(AsyncBegunBody, family(type(inner), "AsyncByteStream"))
    else:
        pieces = iter(unwrapped(inner, "SyncBody"))
        body_class = _body_class(SyncBegunBody, family(type(inner), "SyncByteStream"))
    phases, held = _phases(response), _Held()
    first = first if first is not None else FirstContent(endpoint)
    verdict: Verdict | None = None
    try:
        while verdict is None:
            piece = yield Next(pieces, until_ns)
            if piece is None:
                verdict = first.ended()
            else:
                held.append((piece, phases.chunk_ns or now_ns()))
                verdict = first.feed(piece)
    except Exception as error:
        name_request(error, response)
        pieces = _Broken(error)
        raise
    except GeneratorExit:
        raise
    except BaseException:
        yield Close(response)
        raise
    finally:
        response.stream = body_class(inner, pieces, phases, held)
    return verdict


class _Broken:
    """The rest of a body of which reading has raised: raises the same once, unless the body is closed before.

    The error's traceback leads to the response, and the response to this: only without the error is that no cycle.
    """

    def __init__(self, error: Exception) -> None:
        self.error: Exception | None = error

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        error, self.error = self.error, None
        if error is None:
            raise StopIteration
        try:
            raise error.with_traceback(None)
        finally:
            del error

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            return next(self)
        except StopIteration:
            raise StopAsyncIteration from None


def _can_be_read(response: Any) -> bool:
    if response.is_closed or response.is_stream_consumed or not is_event_stream(response):
        return False
    return response.headers.get("content-encoding", "identity") == "identity"  # type: ignore[no-any-return]


def _phases(response: Any) -> Phases:
    """Where those who read the body look for the arrival of each piece: with another transport than ours, new ones."""
    phases = response.extensions.get(PHASES)
    if not isinstance(phases, Phases):
        phases = Phases()
        response.extensions = {**response.extensions, PHASES: phases}
    return phases


class _Begun:
    """What both forms share: the pieces that were read already come first."""

    def __init__(self, inner: Any, rest: Any, phases: Phases, held: _Held) -> None:
        self._inner = inner
        self._rest = rest
        self._phases = phases
        self._held: _Held = held

    @property
    def elapsed(self) -> Any:
        """What the HTTP client took of the time; asked by the response, which says it to the application."""
        return getattr(self._inner, "elapsed", None)

    def _forget(self) -> None:
        self._held.clear()
        if isinstance(self._rest, _Broken):
            self._rest.error = None

    def _next_held(self) -> bytes:
        piece, self._phases.chunk_ns = self._held.popleft()
        return piece


class SyncBegunBody(_Begun):
    """The body of a synchronous answer of which something was read already."""

    _rest: Iterator[bytes]

    def __iter__(self) -> Iterator[bytes]:
        held = self._held
        while held:
            yield self._next_held()
        # Another transport than ours stamps nothing: these pieces arrive when they are read.
        self._phases.chunk_ns = 0
        yield from self._rest

    def close(self) -> None:
        """Close the body, and keep nothing of it."""
        self._forget()
        self._inner.close()


class AsyncBegunBody(_Begun):
    """The body of an asynchronous answer of which something was read already."""

    _rest: AsyncIterator[bytes]

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[bytes]:
        if self._held:
            return _at_once(self._next_held())
        self._phases.chunk_ns = 0
        return self._rest.__anext__()

    async def aclose(self) -> None:
        """Close the body, and keep nothing of it."""
        self._forget()
        await self._inner.aclose()


async def _at_once(piece: bytes) -> bytes:
    return piece


@cache
def _body_class(form: type[Any], base: type) -> type[Any]:
    """The body as the response's own library knows its streams."""
    return type(form.__name__, (form, base), {})
