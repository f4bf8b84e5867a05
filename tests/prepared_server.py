"""A server without a network: a transport of the HTTP library that openai uses, with prepared pieces of a body."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai

# openai 3 is built on httpx2, openai 2 on httpx.
LIBRARY: Any = sys.modules[openai.DefaultHttpxClient.__mro__[1].__module__.partition(".")[0]]


class Reads(LIBRARY.SyncByteStream, LIBRARY.AsyncByteStream):  # type: ignore[misc]
    def __init__(self, reads: list[bytes], failure: str | None) -> None:
        self.reads = reads
        self.failure = failure

    def __iter__(self) -> Iterator[bytes]:
        yield from self.reads
        if self.failure is not None:
            raise getattr(LIBRARY, self.failure)("it broke")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece


class Server(LIBRARY.BaseTransport, LIBRARY.AsyncBaseTransport):  # type: ignore[misc]
    """Answers every call with the same reads, and breaks off after them if `failure` is set."""

    reads: list[bytes]
    failure: str | None = None

    def handle_request(self, request: Any) -> Any:
        headers = {"content-type": "text/event-stream"}
        return LIBRARY.Response(200, headers=headers, stream=Reads(self.reads, self.failure))

    async def handle_async_request(self, request: Any) -> Any:
        return self.handle_request(request)
