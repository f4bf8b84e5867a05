"""A provider without a network: a transport that answers every request with prepared bytes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2

from benchmarks._provider import MODEL


def _prepared(kind: str, choice: dict[str, Any], finish_reason: str | None, **more: Any) -> bytes:
    choices = [{"index": 0, **choice, "logprobs": None, "finish_reason": finish_reason}]
    data = {"id": "chatcmpl-1", "object": kind, "created": 1, "model": MODEL, "choices": choices, **more}
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()


def event_of(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
    """Return one event of a streamed chat completion."""
    return b"data: " + _prepared("chat.completion.chunk", {"delta": delta}, finish_reason) + b"\n\n"


DONE = b"data: [DONE]\n\n"
ANSWER = _prepared(
    "chat.completion",
    {"message": {"role": "assistant", "content": "Yes."}},
    "stop",
    usage={"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
)


def stream_of(chunks: int) -> tuple[bytes, ...]:
    """Return the reads of a streamed answer: one event each, a role and a finish around the content."""
    return (
        event_of({"role": "assistant", "content": ""}),
        *(event_of({"content": f" word{number % 10}"}) for number in range(chunks)),
        event_of({}, "stop") + DONE,
    )


class Reads(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """The body of a response."""

    def __init__(self, reads: tuple[bytes, ...]) -> None:
        self.reads = reads

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.reads)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for read in self.reads:
            yield read


class Prepared(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """A transport that answers every request at once with the same reads."""

    def __init__(self, reads: tuple[bytes, ...] = (ANSWER,)) -> None:
        self.headers = {"content-type": "application/json" if reads == (ANSWER,) else "text/event-stream"}
        self.reads = reads

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a synchronous client."""
        return httpx2.Response(200, headers=self.headers, stream=Reads(self.reads))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer an asynchronous client."""
        return httpx2.Response(200, headers=self.headers, stream=Reads(self.reads))
