"""Streams that show every decoded event to the observation of their call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import lru_cache
from typing import Any

import openai

from ._fast_stream import async_events, events
from ._observation import EXTENSION, Observation
from ._stock_stream import fast_way, is_only_iterated


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


# Where a stream has our iterator still, and not one that an instrumentation has put in its place, the application is
# given just that: openai's own generator around it does nothing but cost.
_SYNC_CODE, _ASYNC_CODE = events.__code__, async_events.__code__


def _observing_sync(stream_cls: Any) -> Any:
    # `stream_cls` has to be the only base: openai reads the type of the events from `__orig_bases__`.
    class ObservedStream(stream_cls):  # type: ignore[misc]
        def __stream__(self) -> Iterator[Any]:
            observation = _observation_of(self)
            if observation is None:
                return super().__stream__()  # type: ignore[no-any-return]
            way = fast_way(self, stream_cls, observation)
            return events(observation, self.response, way, super().__stream__() if way is None else None)

        def __iter__(self) -> Iterator[Any]:
            iterator = self._iterator
            if getattr(iterator, "gi_code", None) is _SYNC_CODE and is_only_iterated(stream_cls):
                return iterator  # type: ignore[no-any-return]
            return super().__iter__()  # type: ignore[no-any-return]

    return ObservedStream


def _observing_async(stream_cls: Any) -> Any:
    class ObservedAsyncStream(stream_cls):  # type: ignore[misc]
        def __stream__(self) -> AsyncIterator[Any]:
            observation = _observation_of(self)
            if observation is None:
                return super().__stream__()  # type: ignore[no-any-return]
            way = fast_way(self, stream_cls, observation)
            return async_events(observation, self.response, way, super().__stream__() if way is None else None)

        def __aiter__(self) -> AsyncIterator[Any]:
            iterator = self._iterator
            if getattr(iterator, "ag_code", None) is _ASYNC_CODE and is_only_iterated(stream_cls):
                return iterator  # type: ignore[no-any-return]
            return super().__aiter__()  # type: ignore[no-any-return]

    return ObservedAsyncStream
