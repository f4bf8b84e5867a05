"""Streams that something on the way holds back are not confused with slow readers, fast models and busy machines."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from fastlane import AsyncOpenAI, OpenAI
from fastlane.emulator import Emulator, ProviderModel, Server
from fastlane.records.bursts import bursts_of
from tests.virtual_time import in_virtual_time

MS = 1_000_000
TOKENS = 60


def paced(count: int, gap_ms: float, *, at_once: int = 1, from_ms: float = 100) -> list[int]:
    """Return the arrivals of events that come `at_once` together."""
    return [round((from_ms + gap_ms * (number // at_once)) * MS) for number in range(count)]


@pytest.mark.parametrize(
    ("arrived_ns", "bursts"),
    [
        pytest.param(paced(96, 400, at_once=32), 3, id="8 kB at a time, as nginx does"),
        pytest.param(paced(64, 0.05, from_ms=3_000), 1, id="whole answer after 3 s"),
        pytest.param(paced(64, 0.05, from_ms=300), None, id="answer of a cache, at once"),
        pytest.param(paced(64, 20), None, id="50 tokens/s"),
        pytest.param(paced(64, 0.5, from_ms=3_000), None, id="2,000 tokens/s after thinking for 3 s"),
        pytest.param([*paced(64, 0.5), *paced(64, 0.5, from_ms=600)], None, id="2,000 tokens/s with a stall"),
        pytest.param(paced(64, 160, at_once=8), None, id="provider sends 8 at a time, 6 times a second"),
        pytest.param(paced(16, 400, at_once=8), None, id="few events"),
        pytest.param([*paced(120, 3_000, at_once=40), *paced(12, 20, from_ms=9_500)], None, id="reasoning summaries"),
        pytest.param([*paced(40, 20), *paced(40, 0, from_ms=1_900)], None, id="one stall, then the rest at once"),
    ],
)
def test_shape_of_a_stream_says_whether_it_was_held_back(arrived_ns: list[int], bursts: int | None) -> None:
    assert bursts_of(arrived_ns, 0) == bursts


@asynccontextmanager
async def gateway(server_port: int, hold_s: float) -> AsyncIterator[int]:
    """Pass bytes on between clients and a server, and what the server sends every `hold_s` seconds. Yields its port."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", server_port)
        held = bytearray()

        async def pass_requests_on() -> None:
            while data := await reader.read(65_536):
                to_server.write(data)
            to_server.close()

        async def pass_answers_on() -> None:
            while not writer.is_closing():
                await asyncio.sleep(hold_s)
                writer.write(bytes(held))
                held.clear()

        tasks = [asyncio.create_task(pass_requests_on()), asyncio.create_task(pass_answers_on())]
        try:
            while data := await from_server.read(65_536):
                held.extend(data)
        finally:
            for task in tasks:
                task.cancel()
            writer.close()
            to_server.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


def block_loop() -> None:
    """Block the event loop for 0.3 s of virtual time."""
    loop: Any = asyncio.get_running_loop()
    loop.now_ns += 300 * MS


async def read_slowly() -> None:
    await asyncio.sleep(0.3)


ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Count."}], "max_tokens": TOKENS}


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "held back" in each.getMessage()]


@pytest.mark.parametrize(
    ("hold_s", "between", "token_s", "shape", "warned"),
    [
        pytest.param(0.4, None, 0.02, True, True, id="gateway with a small buffer"),
        pytest.param(2.0, None, 0.02, True, True, id="gateway that collects answers"),
        pytest.param(0.0, None, 0.02, False, False, id="no gateway"),
        pytest.param(0.0, None, 0.0005, False, False, id="fast model"),
        pytest.param(0.0, read_slowly, 0.02, False, False, id="slow reader"),
        pytest.param(0.0, block_loop, 0.02, True, False, id="blocked event loop"),
    ],
)
@in_virtual_time
async def test_stream_held_back_is_warned_of_once(
    hold_s: float,
    between: Any,
    token_s: float,
    shape: bool,
    warned: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with AsyncExitStack() as stack:
        model = ProviderModel(prefill_base_s=0.1, inter_token_s=token_s)
        server = await stack.enter_async_context(Server(model=model))
        authority = tmp_path / "authority.pem"
        authority.write_bytes(server.authority_pem or b"")
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        port = await stack.enter_async_context(gateway(server.port, hold_s)) if hold_s else server.port
        client = AsyncOpenAI(base_url=f"https://127.0.0.1:{port}/v1", api_key="sk-test")
        await stack.enter_async_context(client)
        for _ in range(4):
            count = 0
            async for _ in await client.chat.completions.create(**ASK, stream=True):
                count += 1
                if between is not None and count % 15 == 1:
                    await (between() or asyncio.sleep(0))
            await asyncio.sleep(1)
        records, report = client.calls, client.report()
    assert [record.bursts is not None for record in records] == [shape] * 4
    assert report.warnings.get("stream came in bursts", 0) == (4 if shape else 0)
    found = warnings_in(caplog)
    assert len(found) == warned
    assert all(f"127.0.0.1:{port}" in text and "proxy_buffering off" in text for text in found)


@pytest.fixture(scope="module")
def running_provider() -> Iterator[Emulator]:
    with Emulator(model=ProviderModel(prefill_base_s=0.1, inter_token_s=0.02), seed=0) as provider:
        yield provider


@pytest.mark.parametrize("case", ["gateway", "slow reader"])
def test_sync_stream_held_back_is_warned_of(case: str, provider: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    port = int(provider.base_url.rpartition(":")[2].partition("/")[0])
    with gateway_in_a_thread(port, 0.4) as through:
        port = through if case == "gateway" else port
        with OpenAI(base_url=f"https://127.0.0.1:{port}/v1", api_key="sk-test") as client:
            for _ in range(2):
                for number, _ in enumerate(client.chat.completions.create(**ASK, stream=True)):
                    if case == "slow reader" and number % 15 == 0:
                        time.sleep(0.3)
            bursts = [record.bursts is not None for record in client.calls]
    assert bursts == [case == "gateway"] * 2
    assert len(warnings_in(caplog)) == (case == "gateway")


@contextmanager
def gateway_in_a_thread(server_port: int, hold_s: float) -> Iterator[int]:
    ports: Queue[int] = Queue()
    ended = threading.Event()

    async def run() -> None:
        async with gateway(server_port, hold_s) as port:
            ports.put(port)
            await asyncio.to_thread(ended.wait)

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    try:
        yield ports.get(timeout=10)
    finally:
        ended.set()
        thread.join()
