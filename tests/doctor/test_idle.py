from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import h2.config
import h2.connection
import pytest

from fastlane.doctor import _idle
from fastlane.doctor._idle import Spell, judge, pauses
from fastlane.doctor._line import Goodbye, Http1Line, Http2Line
from fastlane.doctor._session import DoctorSession, DoctorSettings
from fastlane.doctor._wire import walk
from fastlane.doctor.target import target_of

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


def test_pauses_grow_up_to_the_longest() -> None:
    assert pauses(20) == (2, 5, 10, 20)
    assert pauses(0) == ()


@pytest.mark.parametrize(
    ("spells", "seen", "state"),
    [
        ([Spell(pause_s=5, answered=True), Spell(pause_s=20, answered=True)], "at least 20 s", "seen"),
        (
            [Spell(pause_s=2, answered=True), Spell(pause_s=20, goodbye="goaway", after_s=5.04)],
            "closed by the server after 5.0 s without a call, with a GOAWAY",
            "notable",
        ),
        (
            [Spell(pause_s=2, answered=True), Spell(pause_s=5, answered=False), Spell(pause_s=20, answered=False)],
            "dead after 5 s without a word, after 2 s it still answered",
            "notable",
        ),
        ([Spell(pause_s=2, answered=False)], "dead after 2 s without a word, it never answered again", "notable"),
        ([Spell(pause_s=2, error="TimeoutError")], "could not be tried (TimeoutError)", "failed"),
        ([Spell(pause_s=2, error="TimeoutError"), Spell(pause_s=5, answered=True)], "at least 5 s", "seen"),
    ],
)
def test_idle_spells_are_put_into_words(spells: list[Spell], seen: str, state: str) -> None:
    finding = judge(spells)

    assert finding.seen.startswith(seen)
    assert finding.state == state


@contextmanager
def server(*, closes_after_s: float | None) -> Iterator[str]:
    """Answers every request over HTTP/1.1, and closes a connection that was idle for so long."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def serve(connection: socket.socket) -> None:
        with connection:
            connection.settimeout(closes_after_s or 30)
            try:
                while connection.recv(65_536):
                    connection.sendall(ANSWER)
            except OSError:
                pass

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=serve, args=(connection,), daemon=True))
            threads[-1].start()

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join()
        for thread in threads:
            thread.join()


def looked_at(url: str, idle_s: float) -> list[object]:
    session = DoctorSession(settings=DoctorSettings(target=target_of(url), idle_s=idle_s))
    assert all(finding.state != "failed" for finding in walk(session.target, session.steps, rounds=1, timeout_s=10))
    return [finding.value for finding in _idle.look(session)]


def test_a_server_that_closes_idle_connections_is_found_out_with_the_time() -> None:
    with server(closes_after_s=0.2) as url:
        (value,) = looked_at(url, 3)

    assert isinstance(value, dict)
    assert value["how"] == "closed"
    assert value["closed_after_s"] is not None


def test_a_server_that_closes_none_is_tried_to_the_longest_pause() -> None:
    with server(closes_after_s=None) as url:
        (value,) = looked_at(url, 0.2)

    assert value == {"closed_after_s": None, "how": None, "dropped_silently_within_s": None, "at_least_s": 0.2}


@contextmanager
def http2_pair() -> Iterator[tuple[Http2Line, socket.socket, h2.connection.H2Connection]]:
    """A line whose settings are exchanged, and the server's end of it."""
    ours, theirs = socket.socketpair()
    server_side = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    server_side.initiate_connection()
    theirs.sendall(server_side.data_to_send())

    def serve() -> None:
        with suppress(OSError):
            while data := theirs.recv(65_536):
                server_side.receive_data(data)
                theirs.sendall(server_side.data_to_send())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with theirs:
        with ours:
            line = Http2Line(ours, target_of("http://localhost/v1"))
            line.greet(10)
            yield line, theirs, server_side
        thread.join()


@pytest.mark.parametrize("goodbye", ["goaway", "closed", None])
def test_how_a_server_leaves_is_seen_over_http2(goodbye: Goodbye | None) -> None:
    with http2_pair() as (line, theirs, server_side):
        if goodbye == "goaway":
            server_side.close_connection()
            theirs.sendall(server_side.data_to_send())
        elif goodbye == "closed":
            theirs.shutdown(socket.SHUT_RDWR)

        assert line.goodbye_within(10 if goodbye else 0.05) == goodbye


def test_what_comes_unasked_over_http1_ends_the_connection() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        line = Http1Line(ours)

        assert line.goodbye_within(0.01) is None
        theirs.sendall(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        assert line.goodbye_within(10) == "closed"
