"""One request as its caller sees it: the same stamps, at the same places, for every arm."""

from __future__ import annotations

import contextlib
from typing import Any

from ..._clock import now_ns
from ._messages import ScheduledRequest
from ._reading import StreamReader


def read(client: Any, job: ScheduledRequest) -> StreamReader:
    """Send one streamed chat request, and read its answer. An error becomes part of it; nothing is raised."""
    reading = StreamReader()
    options = {"extra_headers": job.headers} if job.headers else {}
    stream: Any = None
    reading.issued_ns = now_ns()
    try:
        stream = client.chat.completions.create(**job.body, stream=True, **options)
        reading.response_ns = now_ns()
        reading.opened(stream)
        for chunk in stream:
            reading.take(chunk, now_ns())
    # Whatever a client raises, an exit or a cancellation too, is its arm's result: it must neither end the run nor
    # vanish from it, and a request that nobody tells of is waited for for ever.
    except BaseException as raised:  # noqa: BLE001
        reading.error = raised
    reading.ended_ns = now_ns()
    if hasattr(stream, "close"):
        with contextlib.suppress(BaseException):
            stream.close()
    return reading


async def read_async(client: Any, job: ScheduledRequest) -> StreamReader:
    """Do what `read` does with an asynchronous client: the same stamps, taken in the event loop."""
    reading = StreamReader()
    options = {"extra_headers": job.headers} if job.headers else {}
    stream: Any = None
    reading.issued_ns = now_ns()
    try:
        stream = await client.chat.completions.create(**job.body, stream=True, **options)
        reading.response_ns = now_ns()
        reading.opened(stream)
        async for chunk in stream:
            reading.take(chunk, now_ns())
    except BaseException as raised:  # noqa: BLE001 - as in `read`
        reading.error = raised
    reading.ended_ns = now_ns()
    close = getattr(stream, "close", None) or getattr(stream, "aclose", None)
    if close is not None:
        with contextlib.suppress(BaseException):
            await close()
    return reading
