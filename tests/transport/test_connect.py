"""A host's addresses are raced, and no attempt is left behind: from a thread and on event loops alike."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import importlib.util
import os
import socket
import sys
from collections.abc import Callable, Iterator
from time import perf_counter_ns as now_ns
from typing import Any

import httpx2
import pytest

from fastlane.transport import PATIENCE, PHASES, Patience, Phases
from tests.transport.faces import FACES, AsyncFace
from tests.transport.peer import HANG_S
from tests.transport.peer_h1 import PeerH1
from tests.transport.resources import descriptors
from tests.waiting import comes_true, until

HOUR_NS = 3_600_000_000_000
REFUSED = f"[Errno {errno.ECONNREFUSED}] {os.strerror(errno.ECONNREFUSED)}"
IMPATIENT = httpx2.Timeout(HANG_S, connect=0.3)

WITH_UVLOOP = dict(FACES)
if importlib.util.find_spec("uvloop"):  # nothing needs it; where it is, it must do
    import uvloop

    class Loop(uvloop.Loop):
        """Looks names up where a test can say what is found: uvloop's own resolver is out of reach."""

        async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
            return await self.run_in_executor(None, lambda: socket.getaddrinfo(host, port, **options))

    class UvloopFace(AsyncFace):
        """The asynchronous client on uvloop."""

        new_loop = staticmethod(Loop)

    WITH_UVLOOP["uvloop"] = UvloopFace


@pytest.fixture(params=WITH_UVLOOP)
def make_face(request: pytest.FixtureRequest) -> Any:
    return WITH_UVLOOP[request.param]


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


@pytest.fixture
def nothing_left(make_face: Any) -> Iterator[None]:
    """No descriptor may be left when the test is over."""
    make_face().close()  # uvloop's first loop opens descriptors that stay
    before = descriptors()
    yield
    gc.collect()
    assert comes_true(lambda: len(descriptors()) <= len(before)), descriptors() - before


def option(sock: socket.socket, name: str) -> int:
    return sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_connection_has_timestamps_addresses_and_options(make_face: Any, host: str) -> None:
    phases, before_ns = Phases(), now_ns()
    with PeerH1() as peer, make_face() as face:
        answer = face.open(f"http://{host}:{peer.port}/", extensions={PHASES: phases})
        sock = answer.response.extensions["network_stream"].get_extra_info("socket")
        opening = phases.opening
        assert opening is not None

        looked_up = [opening.dns_started_ns, opening.dns_ended_ns] if host == "localhost" else []
        moments = [before_ns, *looked_up, opening.connect_started_ns, opening.connect_ended_ns, now_ns()]
        assert moments == sorted(moments, key=lambda moment: moment or 0)
        assert looked_up or (opening.dns_started_ns, opening.dns_ended_ns) == (None, None)
        assert opening.peer_address == f"127.0.0.1:{peer.port}"
        assert opening.local_address == "{}:{}".format(*sock.getsockname())
        assert option(sock, "TCP_NODELAY")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if sys.platform == "linux":
            assert [option(sock, f"TCP_KEEP{name}") for name in ("IDLE", "INTVL", "CNT")] == [60, 10, 3]
            assert option(sock, "TCP_USER_TIMEOUT") == 90_000
        answer.close()


def test_missing_socket_options_are_skipped(make_face: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    options = (("TCP_NO_SUCH", 9), ("TCP_USER_TIMEOUT", -1))
    monkeypatch.setattr("fastlane.transport.drivers.connect._OPTIONS", options)
    with PeerH1() as peer, make_face(peer.url) as face:
        assert face.get().content == b"ok"


# --- several addresses


def test_refused_address_falls_back_to_the_next_at_once(
    make_face: Any,
    refusing: tuple[str, int],
    resolve: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    nothing_left: None,
) -> None:
    monkeypatch.setattr("fastlane.transport.drivers.connect.ATTEMPT_DELAY_NS", HOUR_NS)
    with PeerH1() as peer, make_face("http://name.test") as face:
        resolve(refusing, ("127.0.0.1", peer.port))
        assert face.get().content == b"ok"


def test_silent_address_falls_back_to_the_next(
    make_face: Any, silent: tuple[str, int], resolve: Callable[..., None], nothing_left: None
) -> None:
    phases = Phases()
    with PeerH1() as peer, make_face("http://name.test") as face:
        resolve(silent, ("127.0.0.1", peer.port))
        assert face.get(extensions={PHASES: phases}).content == b"ok"
    assert phases.opening is not None
    assert phases.opening.connect_ended_ns - phases.opening.connect_started_ns >= 250_000_000


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_address_of_the_other_family_is_tried_second(
    make_face: Any,
    refusing: tuple[str, int],
    silent: tuple[str, int],
    resolve: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fastlane.transport.drivers.connect.ATTEMPT_DELAY_NS", HOUR_NS)
    with PeerH1(host="::1") as peer, make_face("http://name.test") as face:
        resolve(refusing, silent, ("::1", peer.port, 0, 0))
        assert face.get().content == b"ok"


def test_simultaneous_connects_leave_one_socket(
    make_face: Any, resolve: Callable[..., None], monkeypatch: pytest.MonkeyPatch, nothing_left: None
) -> None:
    monkeypatch.setattr("fastlane.transport.drivers.connect.ATTEMPT_DELAY_NS", 0)
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(PeerH1()) for _ in range(5)]
        resolve(*(("127.0.0.1", peer.port) for peer in peers))
        for _ in range(20):
            with make_face("http://name.test") as face:
                assert face.get().content == b"ok"
                until(lambda: sum(peer.connections - peer.left._value for peer in peers) == 1)


# --- failures


def test_missing_descriptor_is_a_connect_error(
    make_face: Any, resolve: Callable[..., None], monkeypatch: pytest.MonkeyPatch, nothing_left: None
) -> None:
    def no_file(*args: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with make_face("http://name.test") as face:
        resolve(("127.0.0.1", 9))
        monkeypatch.setattr("fastlane.transport.drivers.connect.prepare", no_file)
        with pytest.raises(httpx2.ConnectError) as raised:
            face.get()
        monkeypatch.undo()
    assert str(raised.value) == f"[Errno {errno.EMFILE}] {os.strerror(errno.EMFILE)}"


@pytest.mark.parametrize("times", [0, 1, 3])
def test_refusal_by_every_address_is_a_connect_error(
    make_face: Any, refusing: tuple[str, int], resolve: Callable[..., None], times: int, nothing_left: None
) -> None:
    resolve(*[refusing] * times)
    with make_face("http://name.test") as face, pytest.raises(httpx2.ConnectError) as raised:
        face.get()
    assert not times or str(raised.value) == REFUSED


@pytest.mark.parametrize("host", ["two..dots", "x" * 70, "[fe80::1%25nowhere]"])
def test_invalid_host_name_is_a_connect_error(make_face: Any, host: str) -> None:
    with make_face() as face, pytest.raises(httpx2.ConnectError):
        face.get(f"http://{host}/")


# --- the call is abandoned


@pytest.mark.parametrize("end", ["given up", "timeout", "close"])
def test_abandoned_connect_leaves_no_socket(
    make_face: Any, silent: tuple[str, int], resolve: Callable[..., None], end: str, nothing_left: None
) -> None:
    resolve(silent, ("127.0.0.1", silent[1]))
    patience = Patience()
    with make_face("http://name.test") as face:
        phases = Phases()
        timeout = IMPATIENT if end == "timeout" else HANG_S
        call = face.begin(timeout=timeout, extensions={PATIENCE: patience, PHASES: phases})
        until(lambda: phases.connection_wait_started_ns is not None)
        if end == "given up":
            patience.give_up()
        elif end == "close":
            face.close()
        expected = {"given up": httpx2.ReadError, "timeout": httpx2.ConnectTimeout, "close": httpx2.TransportError}
        assert isinstance(call.error(), expected[end])


@pytest.mark.parametrize("make_face", [name for name in WITH_UVLOOP if name != "sync"], indirect=True)
@pytest.mark.parametrize("closes", [False, True], ids=["left", "closed"])
def test_task_cancelled_at_any_moment_leaves_no_socket(
    make_face: Any,
    silent: tuple[str, int],
    resolve: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    closes: bool,
    nothing_left: None,
) -> None:
    monkeypatch.setattr("fastlane.transport.drivers.connect.ATTEMPT_DELAY_NS", 0)

    async def main(face: Any, steps: int) -> None:
        task = asyncio.create_task(face.client.get("/"))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        if closes:
            await face.client.aclose()

    with PeerH1() as peer:
        resolve(silent, ("127.0.0.1", peer.port), silent)
        for steps in range(0, 36, 3):
            with make_face("http://name.test") as face:
                face.run(main(face, steps))
