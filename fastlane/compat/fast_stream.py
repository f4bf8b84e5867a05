"""Read a stream's events straight from the bytes of its answer, and leave to openai's own code what is unusual."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

from .._clock import now_ns
from ..engine.body import AsyncObservedBody, SyncObservedBody
from ..engine.observation import Observation
from ..protocol.events import EventSplitter
from .stopped_stream import closing_events


@dataclass(frozen=True, slots=True, kw_only=True)
class FastWay:
    """What it takes to read a stream without openai's code, and to give the rest of it back to that."""

    decode: Callable[[bytes], Any]
    """The typed event out of its data; None where openai's code has to decide."""
    begin: Callable[[], Any]
    """openai's own iterator over all of the answer."""
    resume: Callable[[Any], Any]
    """openai's own iterator over what these bytes are."""


def events(
    observation: Observation, response: Any, way: FastWay | None, source: Any, cast_to: Any
) -> Generator[Any, None, None]:
    """All events of a stream, shown to its observation: by the fast way, or out of openai's own iterator `source`.

    `cast_to` is the type of the events.

    A generator, as openai's own is, because instrumentations look at what kind of iterator a stream has; it knows
    nothing of the stream that it belongs to, so that a dropped one is gone at once.
    """
    observation.decoded = True
    see, watched = observation.answer.event, bool(observation.watchers)
    try:
        if way is not None and (response.is_closed or response.is_stream_consumed):
            source = way.begin()  # which knows what to say to that
        elif way is not None:
            body: SyncObservedBody = response.stream
            answer, phases, decode = observation.answer, body.phases, way.decode
            splitter = EventSplitter()
            feed = splitter.feed
            response.is_stream_consumed = True
            response._num_bytes_downloaded = 0
            pieces = body.bare()
            failure = None
            left = None
            while left is None:
                observation.pulling = True
                try:
                    piece = next(pieces)
                except StopIteration:
                    left = splitter.unended()
                    break
                except Exception as error:  # noqa: BLE001 - openai's code makes of it what the application gets
                    observation.body_failed(error)
                    left, failure = splitter.unended(), error
                    break
                except BaseException as error:
                    observation.body_failed(error)
                    raise
                observation.pulling = False
                answer.arrived_ns = phases.chunk_ns or now_ns()
                size = len(piece)
                observation.received_bytes += size
                response._num_bytes_downloaded += size
                index = 0
                for data in feed(piece):
                    if data is not None:
                        event = decode(data)
                        if event is None:
                            left = splitter.left(index)
                            break
                        see(event)
                        if watched and observation.shown(event):
                            yield event
                            for closing in closing_events(observation, cast_to):
                                yield closing
                            return
                        yield event
                    index += 1  # noqa: SIM113 - nearly every piece brings one event, for which enumerate() is the dearer
                else:
                    if splitter.stopped:
                        left = splitter.left(index)
            source = way.resume(_rest(response, left, body.observed(pieces), failure))
        # While the source is asked for its next event it may close the body, at the end or because of an error:
        # how the call ended is known only when control is back here.
        observation.pulling = True
        for event in source:
            observation.pulling = False
            see(event)
            stop = watched and observation.shown(event)
            yield event
            observation.pulling = True
            if stop:
                for closing in closing_events(observation, cast_to):
                    yield closing
                break
        else:
            if not observation.exhausted:
                observation.done()
    except BaseException as error:
        observation.failed(error)
        raise
    finally:
        observation.pulling = True
        try:
            if source is None:
                response.close()
            else:
                source.close()
        finally:
            observation.pulling = False
            observation.finish()


async def async_events(
    observation: Observation, response: Any, way: FastWay | None, source: Any, cast_to: Any
) -> AsyncGenerator[Any, None]:
    """`events` of an asynchronous stream."""
    observation.decoded = True
    see, watched = observation.answer.event, bool(observation.watchers)
    dropped = False
    try:
        if way is not None and (response.is_closed or response.is_stream_consumed):
            source = way.begin()  # which knows what to say to that
        elif way is not None:
            body: AsyncObservedBody = response.stream
            answer, phases, decode = observation.answer, body.phases, way.decode
            splitter = EventSplitter()
            feed = splitter.feed
            response.is_stream_consumed = True
            response._num_bytes_downloaded = 0
            pieces = body.bare()
            pull = pieces.__anext__
            failure = None
            left = None
            while left is None:
                observation.pulling = True
                try:
                    piece = await pull()
                except StopAsyncIteration:
                    left = splitter.unended()
                    break
                except Exception as error:  # noqa: BLE001 - openai's code makes of it what the application gets
                    observation.body_failed(error)
                    left, failure = splitter.unended(), error
                    break
                except BaseException as error:
                    observation.body_failed(error)
                    raise
                observation.pulling = False
                answer.arrived_ns = phases.chunk_ns or now_ns()
                size = len(piece)
                observation.received_bytes += size
                response._num_bytes_downloaded += size
                index = 0
                for data in feed(piece):
                    if data is not None:
                        event = decode(data)
                        if event is None:
                            left = splitter.left(index)
                            break
                        see(event)
                        if watched and observation.shown(event):
                            yield event
                            for closing in closing_events(observation, cast_to):
                                yield closing
                            return
                        yield event
                    index += 1  # noqa: SIM113 - nearly every piece brings one event, for which enumerate() is the dearer
                else:
                    if splitter.stopped:
                        left = splitter.left(index)
            source = way.resume(_async_rest(response, left, body.observed(pieces), failure))
        observation.pulling = True
        async for event in source:
            observation.pulling = False
            see(event)
            stop = watched and observation.shown(event)
            yield event
            observation.pulling = True
            if stop:
                for closing in closing_events(observation, cast_to):
                    yield closing
                break
        else:
            if not observation.exhausted:
                observation.done()
    except GeneratorExit as error:
        dropped = True
        observation.failed(error)
        raise
    except BaseException as error:
        observation.failed(error)
        raise
    finally:
        observation.pulling = True
        try:
            # The event loop closes every generator of a dropped stream itself, this source too, and no generator can
            # be closed twice at once. With the answer closed first, none of them waits.
            await (response.aclose() if dropped or source is None else source.aclose())
        finally:
            observation.pulling = False
            observation.finish()


# Whether an iterator is one of ours.
CODES: frozenset[CodeType] = frozenset({events.__code__, async_events.__code__})


def _rest(response: Any, left: Iterable[bytes], pieces: Iterable[bytes], failure: Exception | None) -> Iterator[bytes]:
    """What `response.iter_bytes()` would still give: what is left of what came, and what is still to come."""
    yield from left
    try:
        if failure is not None:
            raise failure
        for piece in pieces:
            response._num_bytes_downloaded += len(piece)
            yield piece
    except Exception as error:
        name_request(error, response)
        raise
    finally:
        response.close()


async def _async_rest(
    response: Any, left: Iterable[bytes], pieces: AsyncIterable[bytes], failure: Exception | None
) -> AsyncIterator[bytes]:
    for piece in left:
        yield piece
    try:
        if failure is not None:
            raise failure
        async for piece in pieces:
            response._num_bytes_downloaded += len(piece)
            yield piece
    except Exception as error:
        name_request(error, response)
        raise
    finally:
        await response.aclose()


def name_request(error: Any, response: Any) -> None:
    """As the library does with its own errors where a body is read."""
    if getattr(error, "_request", error) is None:
        error.request = response.request
