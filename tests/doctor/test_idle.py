from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fastlane.doctor._findings import ProviderFinding
from fastlane.doctor._network import begin_idle, http_client, judge_idle
from fastlane.doctor._session import DoctorSession, DoctorSettings, target_of

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


@pytest.mark.parametrize(
    ("outcomes", "seen", "state"),
    [
        ({2: "ConnectTimeout"}, "could not be tried (ConnectTimeout)", "failed"),
        ({2: "ConnectTimeout", 5: "kept"}, "at least 5 s", "seen"),
    ],
)
def test_idle_probe_that_failed_is_no_verdict(outcomes: dict[float, str], seen: str, state: str) -> None:
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


def looked_at(url: str, idle_s: float, timeout_s: float = 10) -> ProviderFinding:
    settings = DoctorSettings(target=target_of(url), idle_s=idle_s, timeout_s=timeout_s)
    with http_client(10) as http:
        return begin_idle(DoctorSession(settings=settings, http=http))()


@pytest.mark.parametrize(
    ("behaviour", "idle_s", "seen", "value"),
    [
        ({"closes_after_s": 0.5}, 3, "closed by the server within ", (0.3, 0.75, None)),
        ({"closes_after_s": None}, 0.2, "at least ", (0.2, None, None)),
        ({"closes_after_s": None, "answers_for_s": 0.5}, 3, "dead within ", (0.3, None, 0.75)),
    ],
    ids=["closed", "kept", "dead"],
)
def test_fate_of_idle_connections_is_found(
    behaviour: dict[str, Any], idle_s: float, seen: str, value: tuple[float | None, ...]
) -> None:
    with server(**behaviour) as url:
        finding = looked_at(url, idle_s, timeout_s=0.3 if "answers_for_s" in behaviour else 10)

    assert finding.seen.startswith(seen)
    assert (finding.state == "seen") is seen.startswith("at least")
    assert finding.value == dict(zip(("at_least_s", "closed_within_s", "dead_within_s"), value, strict=True))
