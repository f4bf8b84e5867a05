from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fastlane.doctor._network import begin_idle, http_client, judge_idle
from fastlane.doctor._session import DoctorSession, DoctorSettings, target_of

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


@pytest.mark.parametrize(
    ("outcomes", "seen", "state"),
    [
        ({5: "kept", 20: "kept"}, "at least 20 s", "seen"),
        ({2: "kept", 20: "closed"}, "closed by the server within 20 s without a call, kept for 2 s", "notable"),
        ({2: "kept", 5: "dead", 20: "dead"}, "dead within 5 s, and the server did not say so", "notable"),
        ({2: "ConnectTimeout"}, "could not be tried (ConnectTimeout)", "failed"),
        ({2: "ConnectTimeout", 5: "kept"}, "at least 5 s", "seen"),
    ],
)
def test_idle_connections_are_judged(outcomes: dict[float, str], seen: str, state: str) -> None:
    finding = judge_idle(outcomes)

    assert finding.seen.startswith(seen)
    assert finding.state == state


@contextmanager
def server(*, closes_after_s: float | None, answers_for_s: float = 60) -> Iterator[str]:
    """Answers every request over HTTP/1.1, and closes a connection that was idle for so long."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def serve(connection: socket.socket) -> None:
        with connection:
            connection.settimeout(closes_after_s or 30)
            try:
                opened = time.monotonic()
                while connection.recv(65_536):
                    if time.monotonic() - opened < answers_for_s:
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


def looked_at(url: str, idle_s: float, timeout_s: float = 10) -> object:
    settings = DoctorSettings(target=target_of(url), idle_s=idle_s, timeout_s=timeout_s)
    with http_client(10) as http:
        return begin_idle(DoctorSession(settings=settings, http=http))().value


def test_closed_idle_connections_are_detected() -> None:
    with server(closes_after_s=0.5) as url:
        value = looked_at(url, 3)

    assert value == {"at_least_s": 0.3, "closed_within_s": 0.75, "dead_within_s": None}


def test_server_keeping_connections_is_tried_to_longest_pause() -> None:
    with server(closes_after_s=None) as url:
        value = looked_at(url, 0.2)

    assert value == {"at_least_s": 0.2, "closed_within_s": None, "dead_within_s": None}


def test_connection_that_no_longer_answers_is_dead() -> None:
    with server(closes_after_s=None, answers_for_s=0.5) as url:
        value = looked_at(url, 3, timeout_s=0.3)

    assert value == {"at_least_s": 0.3, "closed_within_s": None, "dead_within_s": 0.75}
