"""One asynchronous transport on several event loops, one after the other and at once."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Coroutine
from typing import Any

import httpx2
import pytest

from fastlane.transport import AsyncTransport
from tests.transport.faces import in_a_thread
from tests.transport.peer import HANG_S, Peer, by_path, one_piece, silent, trusting
from tests.transport.peer_h1 import SlowAnswer
from tests.waiting import until


def client_of(peer: Peer) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=AsyncTransport(verify=trusting()), base_url=peer.url, timeout=HANG_S)


async def ask(client: httpx2.AsyncClient, calls: int = 2) -> None:
    for _ in range(calls):
        assert (await client.get("/")).content == b"ok"


# Python itself says that the task was left, and that such a loop's transports were not closed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("path", ["/silent", "/stalls"])
def test_closed_loop_with_a_waiting_task_harms_no_other_loop(path: str) -> None:
    with Peer(by_path(silent=silent, stalls=one_piece)) as peer:
        client = client_of(peer)
        loop = asyncio.new_event_loop()
        task = loop.create_task(client.get(path))
        came = asyncio.to_thread(until, lambda: bool(peer.requests))
        loop.run_until_complete(came)
        loop.run_until_complete(asyncio.sleep(0.1))
        assert not task.done()
        loop.close()
        asyncio.run(ask(client))
        asyncio.run(client.aclose())
        del task
        gc.collect()

        assert [stream.connection.number for stream in peer.requests] == [1, 2, 2]


def test_reopened_transport_keeps_its_new_connections() -> None:
    slow = SlowAnswer()

    async def work(url: str) -> None:
        # With so short an idle time, connections look after what has become of their transport every 50 ms.
        transport = AsyncTransport(verify=trusting(), idle_s=0.2)
        async with httpx2.AsyncClient(transport=transport, base_url=url, timeout=HANG_S) as client:
            await ask(client)
            await transport.aclose()
            response = await client.send(client.build_request("GET", "/slow"), stream=True)
            pieces = response.aiter_raw()
            assert await anext(pieces) == b"first "
            gc.collect()  # what the first connections have left behind must not take the new ones along
            await asyncio.sleep(0.3)
            await ask(client)
            slow.release.set()
            assert [piece async for piece in pieces] == [b"last"]

    with Peer(by_path(slow=slow.h2)) as peer:
        asyncio.run(work(peer.url))

        assert [stream.connection.number for stream in peer.requests] == [1, 1, 2, 2, 2]


def test_closing_on_one_loop_leaves_anothers_connections_alone() -> None:
    closed = threading.Event()
    with Peer() as peer:
        transport = AsyncTransport(verify=trusting())

        async def stays() -> None:
            async with httpx2.AsyncClient(transport=transport, base_url=peer.url, timeout=HANG_S) as client:
                await ask(client)
                assert await asyncio.to_thread(closed.wait, HANG_S)
                await ask(client)

        async def leaves() -> None:
            async with httpx2.AsyncClient(transport=transport, base_url=peer.url, timeout=HANG_S) as client:
                await ask(client)

        staying = in_a_thread(asyncio.run, stays())
        until(lambda: len(peer.requests) == 2)
        asyncio.run(leaves())
        closed.set()
        staying.result()

        assert [stream.connection.number for stream in peer.requests] == [1, 1, 2, 2, 1, 1]


@pytest.mark.parametrize("debug", [False, True], ids=["plain", "debug"])
def test_debug_event_loop_logs_nothing(debug: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def work(url: str) -> Any:
        async with httpx2.AsyncClient(transport=AsyncTransport(verify=trusting()), base_url=url) as client:
            await asyncio.gather(*(ask(client) for _ in range(5)))

    with Peer() as peer:
        run: Coroutine[Any, Any, Any] = work(peer.url)
        asyncio.run(run, debug=debug)

    logged = [record.getMessage() for record in caplog.records if record.name == "asyncio"]
    assert [text for text in logged if not text.startswith(("Using selector", "Executing", "poll"))] == []
