"""Where one write of a client ended and the next began, as far as the proxy's kernel and TLS tell."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterator

# struct tcp_info of Linux 4.6 and later: the number of segments with data that have come in.
_TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)
_DATA_SEGMENTS_IN = slice(152, 156)
_TLS_CONTENT_TYPES = range(20, 24)
_RECORD_HEADER_BYTES = 5


class Writes:
    """Tells writes apart that the proxy reads together, which a client with TCP_NODELAY sends as packets of their own.

    On loopback a write is a segment, and the kernel counts segments. If as many have come as there are TLS records,
    every record was a write. What cannot be told stays one write: without TLS, and anywhere but on Linux.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._socket = transport.get_extra_info("socket") if _TCP_INFO is not None else None
        self._segments = 0
        self._head = b""  # the beginning of a record's header that a read has cut off
        self._missing = 0  # bytes of the last record that have yet to come

    def split(self, data: bytes) -> list[bytes]:
        """Cut what was read into what was written."""
        if self._socket is None:
            return [data]
        begun = bool(self._head or self._missing)
        try:
            ends = list(self._ends(data))
        except ValueError:
            self._socket = None
            return [data]
        before, self._segments = self._segments, self._count()
        # The segment of a record that had begun before was counted then.
        if len(ends) < 2 or self._segments - before < len(ends) - begun:
            return [data]
        return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def _ends(self, data: bytes) -> Iterator[int]:
        """Where the records in it end; its own end is one too. Raises ValueError for what is not TLS."""
        known = self._head + data
        at = self._missing
        while at < len(known):
            if known[at] not in _TLS_CONTENT_TYPES:
                raise ValueError("not a TLS record")
            if at > len(self._head):
                yield at - len(self._head)
            if at + _RECORD_HEADER_BYTES > len(known):
                break
            at += _RECORD_HEADER_BYTES + int.from_bytes(known[at + 3 : at + _RECORD_HEADER_BYTES], "big")
        self._head = known[at:]
        self._missing = max(0, at - len(known))
        yield len(data)

    def _count(self) -> int:
        assert self._socket is not None
        try:
            info = self._socket.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _DATA_SEGMENTS_IN.stop)
        except OSError:  # the connection has just gone
            return 0
        return int.from_bytes(info[_DATA_SEGMENTS_IN], sys.byteorder) if len(info) == _DATA_SEGMENTS_IN.stop else 0
