from __future__ import annotations

import multiprocessing
import socket
from typing import Any

import pytest

from fastlane.bench import _arms
from fastlane.bench.running._calibration import CalibrationError, calibrate
from fastlane.bench.running._canned_server import STREAM_CHUNKS, canned_stream, serve


def a_client_that_breaks(base_url: str, api_key: str) -> Any:
    raise ValueError("no such client")


def test_a_client_takes_some_chunks_every_second() -> None:
    rate = calibrate(_arms.Arm(name="stock", client=_arms.stock), seconds=0.2)

    # Nobody's machine takes fewer than one answer in ten seconds, and none takes more than the sender can send.
    assert STREAM_CHUNKS / 10 < rate < 1e9


def test_an_asynchronous_client_is_awaited() -> None:
    assert calibrate(_arms.Arm(name="stock", client=_arms.stock_async), seconds=0.1) > STREAM_CHUNKS / 10


def test_what_a_client_raises_is_told() -> None:
    with pytest.raises(CalibrationError, match="ValueError: no such client"):
        calibrate(_arms.Arm(name="broken", client=a_client_that_breaks), seconds=0.1)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
        b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ],
    ids=["with a length", "in chunks"],
)
def test_the_server_answers_one_request_after_another_over_one_connection(request_bytes: bytes) -> None:
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    answer = canned_stream()
    with ours, socket.create_connection(("127.0.0.1", ours.recv())) as connection:
        for _ in range(2):
            connection.sendall(request_bytes)
            got = b""
            while len(got) < len(answer):
                got += connection.recv(1 << 20)
            assert got == answer
    process.join()

    assert process.exitcode == 0
