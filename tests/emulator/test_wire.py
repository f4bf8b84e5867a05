from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from fastlane.emulator.wire import ProxiedConnection, RunningWire, Wire, serve
from tests.waiting import happens

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

RTT_S = 0.04
# Longer than anything here takes on a busy machine: a test that waits for ever fails by it.
PATIENCE_S = 50

pytestmark = pytest.mark.asyncio


@contextlib.asynccontextmanager
async def far_server(wire: Wire, answer: Serve) -> AsyncIterator[RunningWire]:
    """A server behind a wire; whatever the test leaves open is closed."""
    answering: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def run() -> None:
            try:
                with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                    await answer(reader, writer)
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()
            finally:
                writer.transport.abort()

        answering.add(asyncio.get_running_loop().create_task(run()))

    server = await asyncio.start_server(accept, "127.0.0.1", 0, backlog=1_024)
    try:
        async with asyncio.timeout(PATIENCE_S), await serve(wire, "127.0.0.1", port_of(server)) as running:
            yield running
    finally:
        server.close()
        for task in answering:
            task.cancel()
        await asyncio.gather(*answering, return_exceptions=True)
        await asyncio.sleep(0)  # asyncio closes an aborted socket a turn later
        await server.wait_closed()


@contextlib.asynccontextmanager
async def connected(running: RunningWire) -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()


def port_of(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])


def reset(writer: asyncio.StreamWriter) -> None:
    """Close with a RST, as a process that dies does."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def test_every_byte_arrives_in_both_directions() -> None:
    body = bytes(range(256)) * 4_000

    async with (
        far_server(Wire(round_trip_time_s=0.002), echo) as running,
        connected(running) as (reader, writer),
    ):
        writer.write(body)
        writer.write_eof()
        received = await reader.read()

        assert received == body


async def test_new_connection_takes_two_round_trips_and_used_one() -> None:
    loop = asyncio.get_running_loop()

    async with far_server(Wire(round_trip_time_s=RTT_S), echo) as running:
        start = loop.time()
        async with connected(running) as (reader, writer):
            took = []
            for _ in range(2):
                writer.write(b"ping")
                await reader.readexactly(4)
                took.append(loop.time() - start)
                start = loop.time()

    # Only the lower bounds: how late a busy machine may be is no property of the wire.
    assert took[0] >= 2 * RTT_S
    assert took[1] >= RTT_S


async def test_reset_by_the_client_resets_the_server() -> None:
    seen: asyncio.Future[BaseException | bytes] = asyncio.get_running_loop().create_future()

    async def watch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(1))
        try:
            seen.set_result(await reader.read())
        except ConnectionError as error:
            seen.set_result(error)

    async with far_server(Wire(round_trip_time_s=0.002), watch) as running, connected(running) as (reader, writer):
        writer.write(b"x")
        await reader.readexactly(1)
        reset(writer)

        assert isinstance(await seen, ConnectionResetError)
        await happens(lambda: running.open_connections == 0)


async def test_reset_by_the_server_resets_the_client() -> None:
    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        reset(writer)

    async with far_server(Wire(round_trip_time_s=0.002), die) as running, connected(running) as (reader, writer):
        writer.write(b"x")

        with pytest.raises(ConnectionResetError):
            await reader.read()
        await happens(lambda: running.open_connections == 0)


async def test_reset_after_half_close_reaches_the_server() -> None:
    stopped = asyncio.Event()

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        try:
            while True:
                writer.write(b"token")
                await writer.drain()
                await asyncio.sleep(0.002)
        finally:
            stopped.set()

    async with far_server(Wire(round_trip_time_s=0.002), stream) as running, connected(running) as (reader, writer):
        writer.write_eof()
        await reader.readexactly(5)
        reset(writer)

        await stopped.wait()
        await happens(lambda: running.open_connections == 0)


async def test_reset_does_not_wait_for_a_client_that_does_not_read() -> None:
    flooded = asyncio.Event()

    async def flood_and_die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(20_000_000))
        await flooded.wait()
        reset(writer)

    async with far_server(Wire(round_trip_time_s=0.002), flood_and_die) as running:
        client = socket.create_connection(("127.0.0.1", running.port))
        try:
            await asyncio.sleep(0.2)
            flooded.set()

            await happens(lambda: running.open_connections == 0)
        finally:
            client.close()


async def test_sender_waits_for_a_receiver_that_does_not_read() -> None:
    size = 64_000_000
    read_on = asyncio.Event()
    received = 0

    async def read_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        await read_on.wait()
        while data := await reader.read(1_000_000):
            received += len(data)
        writer.write(b"done")

    async with (
        far_server(Wire(round_trip_time_s=0.002, slow_start=False), read_late) as running,
        connected(running) as (reader, writer),
    ):
        writer.write(bytes(size))
        await asyncio.sleep(0.3)
        held_back = writer.transport.get_write_buffer_size()
        read_on.set()
        writer.write_eof()

        assert await reader.read() == b"done"
        assert received == size
        # Some megabytes fit into the kernel's buffers; the rest must have waited at the sender.
        assert held_back > size // 4


async def test_refused_connection_resets_the_client() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = int(closed.getsockname()[1])

    async with await serve(Wire(round_trip_time_s=0.002), "127.0.0.1", port) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
        await happens(lambda: running.open_connections == 0)


async def test_client_reset_before_handshake_leaves_no_connection() -> None:
    async with far_server(Wire(round_trip_time_s=0.05), echo) as running:
        _, writer = await asyncio.open_connection("127.0.0.1", running.port)
        reset(writer)

        await happens(lambda: running.connections == 1 and running.open_connections == 0)


async def test_closed_wire_resets_connections_and_leaves_no_task() -> None:
    before = asyncio.all_tasks()

    async with await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0) as server:
        running = await serve(Wire(round_trip_time_s=30), "127.0.0.1", port_of(server))
        clients = [await asyncio.open_connection("127.0.0.1", running.port) for _ in range(5)]
        for _, writer in clients:
            writer.write(b"never arrives")
        await happens(lambda: running.open_connections == 5)
        await running.close()
        await running.close()

        for reader, writer in clients:
            with pytest.raises(ConnectionResetError):
                await reader.read()
            writer.close()
        await asyncio.sleep(0)
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", running.port)

    assert running.open_connections == 0
    assert asyncio.all_tasks() == before
    del clients, reader, writer
    gc.collect()
    assert not [link for link in gc.get_objects() if isinstance(link, ProxiedConnection)]
