"""Memory while one long stream and one large answer are read, in a process of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from tests.programs import printed_by
from tests.transport.peer_h1 import HEAD, PeerH1, Request1

_CHUNKS = 200_000
_ANSWER_BYTES = 50_000_000


def _chunk(text: str) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    event = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def respond(request: Request1) -> None:
    """Send `max_tokens` chunks, or a whole answer with `max_tokens` characters."""
    asked = json.loads(request.body())
    size = asked["max_tokens"]
    if asked.get("stream"):
        thousand = _chunk("token ") * 1000
        request.send(HEAD + b"content-type: text/event-stream\r\n\r\n")
        for _ in range(size // 1000):
            request.send(thousand)
        request.send(b"data: [DONE]\n\n")
        request.close()
        return
    message = {"role": "assistant", "content": "x" * size}
    choices = [{"index": 0, "finish_reason": "stop", "message": message}]
    answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": choices}
    request.answer(json.dumps(answer).encode())


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with PeerH1(respond) as server:
        yield f"{server.url}/v1"


READS_STREAMS = """
import asyncio, resource, sys
import fastlane

base_url, chunks = sys.argv[1], int(sys.argv[2])
arguments = {"model": "m", "messages": [{"role": "user", "content": "Go on."}], "stream": True}
options = {"api_key": "none", "base_url": base_url, "max_retries": 0}

def sync(count):
    with fastlane.OpenAI(**options) as client:
        return sum(1 for _ in client.chat.completions.create(max_tokens=count, **arguments))

def asynchronous(count):
    async def read():
        async with fastlane.AsyncOpenAI(**options) as client:
            stream = await client.chat.completions.create(max_tokens=count, **arguments)
            return len([None async for _ in stream])
    return asyncio.run(read())

read = {"sync": sync, "async": asynchronous}[sys.argv[3]]
read(1_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert read(chunks) == chunks
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""

READS_ONE_ANSWER = """
import resource, sys
import fastlane

base_url, size = sys.argv[1], int(sys.argv[2])
client = fastlane.OpenAI(api_key="none", base_url=base_url, max_retries=0)
arguments = {"model": "m", "messages": [{"role": "user", "content": "Go on."}]}
client.chat.completions.create(max_tokens=10, **arguments)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
answer = client.chat.completions.create(max_tokens=size, **arguments)
assert len(answer.choices[0].message.content) == size
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


def growth_mib(script: str, *arguments: str) -> float:
    return float(printed_by("-c", script, *arguments))


@pytest.mark.skipif(sys.platform == "win32", reason="the resource module is missing on Windows")
@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.slow
def test_stream_of_200_000_chunks_keeps_memory_flat(base_url: str, kind: str) -> None:
    """A record keeps eight bytes for each token: 1.5 MiB. All chunks together have 35 MB on the wire."""
    assert growth_mib(READS_STREAMS, base_url, str(_CHUNKS), kind) < 12


@pytest.mark.skipif(sys.platform == "win32", reason="the resource module is missing on Windows")
def test_answer_of_50_mb_is_held_five_times_at_most(base_url: str) -> None:
    """The chunks read, the body, its text and the decoded content."""
    assert growth_mib(READS_ONE_ANSWER, base_url, str(_ANSWER_BYTES)) < 5 * _ANSWER_BYTES / 2**20
