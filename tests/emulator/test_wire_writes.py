from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any, Self, cast

import pytest

from fastlane.emulator.wire import Writes


def record(size: int) -> bytes:
    return b"\x17\x03\x03" + size.to_bytes(2, "big") + bytes(size)


class Reading:
    """One end of a connection on loopback, as the proxy has it: what was written is read as late as the test likes."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.writer = socket.create_connection(listener.getsockname())
            self.reader, _ = listener.accept()
        self.writer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.writes = Writes(cast(asyncio.Transport, self))

    def get_extra_info(self, _: str) -> Any:
        return self.reader

    def read(self, size: int) -> list[int]:
        data = b""
        while len(data) < size:
            data += self.reader.recv(size - len(data))
        return [len(part) for part in self.writes.split(data)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.writer.close()
        self.reader.close()


linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux counts segments with data")


@linux_only
def test_records_written_one_by_one_are_told_apart() -> None:
    with Reading() as end:
        for size in (100, 12_000, 9):
            end.writer.sendall(record(size))

        assert end.read(12_124) == [105, 12_005, 14]


def test_records_of_one_write_stay_together() -> None:
    with Reading() as end:
        end.writer.sendall(record(100) + record(12_000) + record(9))

        assert end.read(12_124) == [12_124]


@linux_only
def test_records_that_reads_cut_anywhere_are_followed() -> None:
    with Reading() as end:
        end.writer.sendall(record(100))
        end.writer.sendall(record(200))
        assert end.read(108) == [105, 3]

        end.writer.sendall(record(300))
        assert end.read(202 + 305) == [202, 305]


def test_what_is_not_tls_stays_as_it_was_read() -> None:
    with Reading() as end:
        end.writer.sendall(b"GET / HTTP/1.1\r\n")
        end.writer.sendall(b"\r\n")

        assert end.read(18) == [18]
