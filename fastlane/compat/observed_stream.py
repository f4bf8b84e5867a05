"""Streams that show every decoded event to the observation of their call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import lru_cache
from typing import Any

import openai

from ..engine.observation import EXTENSION, Observation
from .fast_stream import async_events, events
from .stock_stream import fast_way


@lru_cache(maxsize=256)  # an application's classes come and go
def observing(stream_cls: Any) -> Any:
    """The observing subclass of a stream class such as `Stream[ChatCompletionChunk]`, which it remembers."""
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
            observation = _observation_of(self)
            if observation is None:
                return super().__stream__()  # type: ignore[no-any-return]
            way = fast_way(self, stream_cls, observation)
            source = super().__stream__() if way is None else None
            return events(observation, self.response, way, source, self._cast_to)

    return ObservedStream


def _observing_async(stream_cls: Any) -> Any:
    class ObservedAsyncStream(stream_cls):  # type: ignore[misc]
        def __stream__(self) -> AsyncIterator[Any]:
            observation = _observation_of(self)
            if observation is None:
                return super().__stream__()  # type: ignore[no-any-return]
            way = fast_way(self, stream_cls, observation)
            source = super().__stream__() if way is None else None
            return async_events(observation, self.response, way, source, self._cast_to)

    return ObservedAsyncStream
