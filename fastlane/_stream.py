"""Streams that show every decoded event to the observation of their call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import cache
from typing import Any

import openai

from ._observation import EXTENSION, Observation


@cache
def observing(stream_cls: Any) -> Any:
    """The observing subclass of a stream class such as `Stream[ChatCompletionChunk]`; made once for each."""
    origin = getattr(stream_cls, "__origin__", stream_cls)
    make = _observing_async if issubclass(origin, openai.AsyncStream) else _observing_sync
    made = make(stream_cls)
    made.__name__ = origin.__name__
    made.__qualname__ = origin.__qualname__
    return made


def _observation_of(stream: Any) -> Observation | None:
    observation = stream.response.request.extensions.get(EXTENSION)
    return observation if isinstance(observation, Observation) else None


def _observing_sync(stream_cls: Any) -> Any:
    # `stream_cls` has to be the only base: openai reads the type of the events from `__orig_bases__`.
    class ObservedStream(stream_cls):  # type: ignore[misc]
        def __stream__(self) -> Iterator[Any]:
            source = super().__stream__()
            observation = _observation_of(self)
            if observation is None:
                yield from source
                return
            observation.decoded = True
            see, watched = observation.answer.event, bool(observation.watchers)
            # While the source is asked for its next event it may close the body, at the end or because of an error:
            # how the call ended is known only when control is back here.
            observation.pulling = True
            try:
                for event in source:
                    observation.pulling = False
                    see(event)
                    stop = watched and observation.shown(event)
                    yield event
                    observation.pulling = True
                    if stop:
                        break
                else:
                    if not observation.exhausted:
                        observation.done()
            except BaseException as error:
                observation.failed(error)
                raise
            finally:
                observation.pulling = True
                source.close()
                observation.pulling = False
                observation.finish()

    return ObservedStream


def _observing_async(stream_cls: Any) -> Any:
    class ObservedAsyncStream(stream_cls):  # type: ignore[misc]
        async def __stream__(self) -> AsyncIterator[Any]:
            source = super().__stream__()
            observation = _observation_of(self)
            if observation is None:
                async for event in source:
                    yield event
                return
            observation.decoded = True
            see, watched = observation.answer.event, bool(observation.watchers)
            observation.pulling = True
            dropped = False
            try:
                async for event in source:
                    observation.pulling = False
                    see(event)
                    stop = watched and observation.shown(event)
                    yield event
                    observation.pulling = True
                    if stop:
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
                    # The event loop closes every generator of a dropped stream itself, this source too, and no
                    # generator can be closed twice at once. With the answer closed first, none of them waits.
                    await (self.response.aclose() if dropped else source.aclose())
                finally:
                    observation.pulling = False
                    observation.finish()

    return ObservedAsyncStream
