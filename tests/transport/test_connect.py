"""A host's addresses are raced, and no attempt is left behind: from a thread and on an event loop alike."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib
import importlib.util
import itertools
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter_ns as now_ns
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane.transport import Opening
from fastlane.transport.drivers import connect as _connect
from fastlane.transport.drivers.connect import (
    Address,
    address_text,
    connect_asyncio,
    connect_sync,
    interleave,
)
from fastlane.transport.protocols.exchange import TransportError

HOUR_NS = 3_600_000_000_000
HANG_S = 40.0

REFUSED = f"[Errno {errno.ECONNREFUSED}] {os.strerror(errno.ECONNREFUSED)}"

Connected = tuple[socket.socket, Opening]
Connect = Callable[..., Connected]


def new_loop(base: type[Any]) -> Any:
    """A loop that looks names up where a test can say what is found: uvloop's own resolver is out of reach."""

    async def getaddrinfo(self: Any, host: str, port: int, **options: Any) -> Any:
        return await self.run_in_executor(None, lambda: socket.getaddrinfo(host, port, **options))

    return type("Loop", (base,), {"getaddrinfo": getaddrinfo})()


def on_loop(base: type[Any]) -> Connect:
    def connect(host: str, port: int) -> Connected:
        with asyncio.Runner(loop_factory=lambda: new_loop(base)) as runner:
            return runner.run(connect_asyncio(host, port))

    return connect


def from_thread(host: str, port: int) -> Connected:
    return connect_sync(host, port)


LOOPS: dict[str, type[Any]] = {"asyncio": asyncio.SelectorEventLoop}
if importlib.util.find_spec("uvloop"):  # nothing needs it; where it is, it must do
    LOOPS["uvloop"] = importlib.import_module("uvloop").Loop
DRIVERS: dict[str, Connect] = {"sync": from_thread, **{name: on_loop(base) for name, base in LOOPS.items()}}


@pytest.fixture(params=DRIVERS)
def connect(request: pytest.FixtureRequest) -> Connect:
    return DRIVERS[request.param]


@pytest.fixture(params=LOOPS)
def loop_base(request: pytest.FixtureRequest) -> type[Any]:
    return LOOPS[request.param]


@pytest.fixture
def listening() -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()


@pytest.fixture
def refusing() -> Iterator[tuple[str, int]]:
    with socket.socket() as bound:  # and not listening
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()


@pytest.fixture
def silent() -> Iterator[tuple[str, int]]:
    """An address that does not answer: a listener whose queue is full drops what comes."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield server.getsockname()


@pytest.fixture
def resolve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Say which addresses every name has."""

    def say(*addresses: tuple[Any, ...]) -> None:
        found = [
            (socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_STREAM, 6, "", address)
            for address in addresses
        ]
        real = socket.getaddrinfo

        def getaddrinfo(host: str, *args: Any, **options: Any) -> Any:
            # uvloop asks for addresses too.
            return found if host == "name.test" else real(host, *args, **options)

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    return say


def descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """No descriptor and no thread may be left when the test is over."""
    importlib.import_module("encodings.idna")
    for base in LOOPS.values():
        base().close()  # uvloop's first loop opens descriptors that stay
    before = descriptors()
    yield
    for _ in range(int(HANG_S * 100)):
        if descriptors() == before:
            return
        time.sleep(0.01)
    assert descriptors() == before
    raise AssertionError(f"left: {threading.enumerate()}")


# --- one address


def test_connection_has_timestamps_addresses_and_options(connect: Connect, listening: tuple[str, int]) -> None:
    before = now_ns()
    sock, opening = connect(*listening)
    with sock:
        assert opening.dns_started_ns is None
        assert opening.dns_ended_ns is None
        assert before <= opening.connect_started_ns <= opening.connect_ended_ns == opening.ended_ns <= now_ns()
        assert opening.peer_address == address_text(listening)
        assert opening.local_address == address_text(sock.getsockname())
        assert not sock.getblocking()
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_host_name_lookup_precedes_connect(connect: Connect, listening: tuple[str, int], nothing_left: None) -> None:
    before = now_ns()
    sock, opening = connect("localhost", listening[1])
    sock.close()
    assert opening.dns_started_ns is not None
    assert opening.dns_ended_ns is not None
    assert before <= opening.dns_started_ns <= opening.dns_ended_ns <= opening.connect_started_ns


# --- several addresses


def test_refused_address_falls_back_to_the_next_at_once(
    connect: Connect,
    listening: tuple[str, int],
    refusing: tuple[str, int],
    resolve: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    nothing_left: None,
) -> None:
    monkeypatch.setattr(_connect, "ATTEMPT_DELAY_NS", HOUR_NS)
    resolve(refusing, listening)
    sock, _ = connect("name.test", 443)
    with sock:
        assert sock.getpeername() == listening


def test_silent_address_falls_back_to_the_next(
    connect: Connect,
    listening: tuple[str, int],
    silent: tuple[str, int],
    resolve: Callable[..., None],
    nothing_left: None,
) -> None:
    resolve(silent, listening)
    sock, opening = connect("name.test", 443)
    with sock:
        assert sock.getpeername() == listening
    assert opening.connect_ended_ns - opening.connect_started_ns >= 250_000_000


def test_simultaneous_connects_leave_one_socket(
    connect: Connect, resolve: Callable[..., None], monkeypatch: pytest.MonkeyPatch, nothing_left: None
) -> None:
    monkeypatch.setattr(_connect, "ATTEMPT_DELAY_NS", 0)
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(5)]
        resolve(*(server.getsockname() for server in servers))
        for _ in range(20):
            connect("name.test", 443)[0].close()


# --- failures


def test_refusal_by_every_address_is_a_connect_error(
    connect: Connect, refusing: tuple[str, int], resolve: Callable[..., None], nothing_left: None
) -> None:
    resolve(refusing, ("127.0.0.1", refusing[1]), refusing)
    for host in ("name.test", "127.0.0.1"):
        with pytest.raises(TransportError) as caught:
            connect(host, refusing[1])
        assert (caught.value.name, caught.value.message) == ("ConnectError", REFUSED)


def test_unknown_host_is_a_connect_error(connect: Connect, monkeypatch: pytest.MonkeyPatch, nothing_left: None) -> None:
    def unknown(*args: Any, **options: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(TransportError) as caught:
        connect("name.test", 443)
    assert (caught.value.name, caught.value.message) == ("ConnectError", "[Errno -2] Name or service not known")


@pytest.mark.parametrize("host", ["two..dots", "x" * 70, "a\0b", "fe80::1%nowhere"])
def test_invalid_host_name_is_a_connect_error(connect: Connect, host: str) -> None:
    with pytest.raises(TransportError) as caught:
        connect(host, 443)
    assert caught.value.name == "ConnectError"


def test_host_without_addresses_is_a_connect_error(connect: Connect, resolve: Callable[..., None]) -> None:
    resolve()
    with pytest.raises(TransportError) as caught:
        connect("name.test", 443)
    assert caught.value.name == "ConnectError"


def test_too_many_open_files_is_a_connect_error(
    connect: Connect, listening: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*args: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(_connect, "prepare", none)
    with pytest.raises(TransportError) as caught:
        connect(*listening)
    assert (caught.value.name, caught.value.message) == (
        "ConnectError",
        f"[Errno {errno.EMFILE}] {os.strerror(errno.EMFILE)}",
    )


# --- the call is abandoned


def test_cancelled_connect_in_a_thread_is_a_connect_error(
    silent: tuple[str, int], resolve: Callable[..., None], nothing_left: None
) -> None:
    resolve(silent, ("127.0.0.1", silent[1]))
    asked: list[int] = []

    def cancelled() -> bool:
        asked.append(1)
        return len(asked) > 5

    for host in ("127.0.0.1", "name.test"):
        asked.clear()
        with pytest.raises(TransportError) as caught:
            connect_sync(host, silent[1], cancelled=cancelled)
        assert caught.value.name == "ConnectError"


def test_interrupted_connect_in_a_thread_leaks_no_socket(silent: tuple[str, int], nothing_left: None) -> None:
    asked: list[int] = []

    def press() -> bool:
        asked.append(1)
        if len(asked) > 3:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        connect_sync(*silent, cancelled=press)


@pytest.mark.parametrize("steps", range(12))
def test_task_is_cancelled_at_any_moment(
    loop_base: type[Any],
    listening: tuple[str, int],
    silent: tuple[str, int],
    resolve: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    nothing_left: None,
    steps: int,
) -> None:
    monkeypatch.setattr(_connect, "ATTEMPT_DELAY_NS", 0)
    resolve(silent, listening, ("127.0.0.1", listening[1]))

    async def main(host: str) -> None:
        task = asyncio.create_task(connect_asyncio(host, silent[1]))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        try:
            sock, _ = await task
        except asyncio.CancelledError:
            return
        sock.close()

    with asyncio.Runner(loop_factory=lambda: new_loop(loop_base)) as runner:
        for host in ("127.0.0.1", "name.test"):
            runner.run(main(host))


def test_loop_that_ends_leaves_no_socket(loop_base: type[Any], silent: tuple[str, int], nothing_left: None) -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: None)
        connecting.append(asyncio.create_task(connect_asyncio(*silent)))
        await asyncio.sleep(0.01)

    connecting: list[Any] = []
    with asyncio.Runner(loop_factory=lambda: new_loop(loop_base)) as runner:
        runner.run(main())


# --- the order of addresses

addresses = st.lists(
    st.builds(
        Address,
        st.sampled_from([socket.AF_INET, socket.AF_INET6]),
        st.tuples(st.sampled_from(["a", "b", "c", "d", "e"]), st.integers(1, 3)),
    )
)


@given(addresses)
def test_address_families_alternate(given_addresses: list[Address]) -> None:
    ordered = interleave(given_addresses)
    once = list(dict.fromkeys(given_addresses))
    assert sorted(ordered) == sorted(once)
    assert ordered[:1] == once[:1]
    for family in (socket.AF_INET, socket.AF_INET6):
        assert [one for one in ordered if one.family == family] == [one for one in once if one.family == family]
    of_each = [sum(one.family == family for one in once) for family in (socket.AF_INET, socket.AF_INET6)]
    families = [one.family for one in ordered[: 2 * min(of_each)]]
    assert all(first != second for first, second in itertools.pairwise(families))
