"""Streams read with as little as Python allows, as a reference: a program of its own, for any interpreter.

Stamps what comes and parses it when all is over. Prints one line of JSON for each request: its tag, when it was issued,
and when each chunk with content came.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

_CONTENT = b'"content":" w'
_PORTION = 0.02

Got = list[tuple[int, bytes]]


class _Protocol(asyncio.Protocol):
    def __init__(self) -> None:
        self.transport: Any = None
        self.got: Got = []
        self.done: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got.append((time.perf_counter_ns(), data))
        if data.endswith(b"0\r\n\r\n") and self.done is not None:
            self.done.set_result(None)


def _body(tag: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Is water wet?"}]
    return {"model": "truth", "messages": messages, "stream": True, "user": tag}


Read = Callable[[str], Awaitable[tuple[int, Got]]]


async def _protocol_reader(port: int) -> Read:
    loop = asyncio.get_running_loop()
    _, protocol = await loop.create_connection(_Protocol, "127.0.0.1", port)

    async def read(tag: str) -> tuple[int, Got]:
        protocol.got, protocol.done = [], loop.create_future()
        issued = time.perf_counter_ns()
        body = json.dumps(_body(tag)).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: truth\r\ncontent-length: %d\r\n\r\n" % len(body)
        protocol.transport.write(head + body)
        await protocol.done
        return issued, protocol.got

    return read


async def _aiohttp_reader(port: int, session: Any) -> Read:
    url = f"http://127.0.0.1:{port}/v1/chat/completions"

    async def read(tag: str) -> tuple[int, Got]:
        got: Got = []
        issued = time.perf_counter_ns()
        async with session.post(url, json=_body(tag)) as response:
            async for data in response.content.iter_any():
                got.append((time.perf_counter_ns(), data))
        return issued, got

    return read


async def _lane(read: Read, lane: int, lanes: int, requests: int, answer_s: float) -> list[tuple[str, int, Got]]:
    await read(f"warm-up/{lane}")
    await asyncio.sleep(0.5 + answer_s * lane / lanes)
    done = []
    for number in range(requests):
        tag = f"bare/{lane}/{number}"
        issued, got = await read(tag)
        done.append((tag, issued, got))
        await asyncio.sleep(random.uniform(0, _PORTION))
    return done


async def _main(kind: str, port: int, lanes: int, requests: int, answer_s: float) -> None:
    session: Any = None
    if kind == "aiohttp":
        import aiohttp  # type: ignore[import-not-found,unused-ignore]

        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        readers = [await _aiohttp_reader(port, session) for _ in range(lanes)]
    else:
        readers = [await _protocol_reader(port) for _ in range(lanes)]
    running = [_lane(read, lane, lanes, requests, answer_s) for lane, read in enumerate(readers)]
    for lane in await asyncio.gather(*running):
        for tag, issued, got in lane:
            stamps = [stamp for stamp, data in got for _ in range(data.count(_CONTENT))]
            print(json.dumps({"tag": tag, "issued": issued, "stamps": stamps}))
    if session is not None:
        await session.close()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])))
