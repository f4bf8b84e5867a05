"""A provider without a network: a transport that answers every request with prepared bytes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2

MODEL = "prepared"


def _encoded(data: dict[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()


def event_of(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
    """One event of a streamed chat completion."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": [choice]}
    return b"data: " + _encoded(chunk) + b"\n\n"


ANSWER = _encoded(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "Yes."}, "logprobs": None, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
    }
)


def stream_of(chunks: int) -> tuple[bytes, ...]:
    """The reads of a streamed answer: one event each, a role and a finish around the content."""
    return (
        event_of({"role": "assistant", "content": ""}),
        *(event_of({"content": f" word{number % 10}"}) for number in range(chunks)),
        event_of({}, "stop") + b"data: [DONE]\n\n",
    )


class Reads(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """The body of an answer."""

    def __init__(self, reads: tuple[bytes, ...]) -> None:
        self.reads = reads

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.reads)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for read in self.reads:
            yield read


class Prepared(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """Answers every request at once with the same reads."""

    def __init__(self, content_type: str, reads: tuple[bytes, ...]) -> None:
        self.headers = {"content-type": content_type}
        self.reads = reads

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a synchronous client."""
        return httpx2.Response(200, headers=self.headers, stream=Reads(self.reads))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer an asynchronous client."""
        return httpx2.Response(200, headers=self.headers, stream=Reads(self.reads))
