"""Stand between an HTTP/2 connection and its socket: a request is one write, and a goodbye lets the call finish.

The HTTP/2 connection underneath writes the head of a request, each piece of its body and its end one by one, which
costs packets, and a round trip where they no longer fit the first flight. And it drops the answer it is reading when
the server announces, in good order, that it will not take further requests on this connection (RFC 9113, 6.8).
"""

from __future__ import annotations

from typing import Any

_HEAD_BYTES = 9
_GOAWAY = 0x7
# The largest frame that a peer may send unless it was told otherwise (RFC 9113, 6.5.2).
_LARGEST_FRAME_BYTES = 16_384
# More than a request that fits the first flights; a longer body is handed on as it comes.
_HELD_BYTES = 65_536
# What a server can say between two calls is there already when it is looked for.
_LOOK_BYTES = 65_536
_LOOK_S = 0.001
# An empty DATA frame with END_STREAM, without the stream's number.
_END_OF_REQUEST = b"\x00\x00\x00\x00\x01"


class Goodbyes:
    """Takes graceful GOAWAY frames out of what a server sends, and remembers that one came. Sans-IO."""

    def __init__(self) -> None:
        self.going_away = False
        """The server takes no further request on this connection."""
        self.stream_id = 0
        """The stream of the call that the connection carries."""
        self._held = b""
        self._passing = 0

    def feed(self, data: bytes) -> bytes:
        """What the connection may see of `data`; it may be empty, which is not the end of the stream."""
        if self._passing >= len(data) and not self._held:
            self._passing -= len(data)  # in the middle of a frame
            return data
        if self._held:
            data = self._held + data
            self._held = b""
        seen: list[bytes] = []
        start = at = 0
        while at < len(data):
            if self._passing:
                step = min(self._passing, len(data) - at)
                self._passing -= step
                at += step
                continue
            length = int.from_bytes(data[at : at + 3], "big")
            whole = _HEAD_BYTES + length
            left = len(data) - at
            goaway = left > 3 and data[at + 3] == _GOAWAY and 8 <= length <= _LARGEST_FRAME_BYTES
            if left < (whole if goaway else _HEAD_BYTES):
                self._held = data[at:]
                break
            if goaway:
                self.going_away = True
                if self._is_graceful(data[at + _HEAD_BYTES : at + _HEAD_BYTES + 8]):
                    seen.append(data[start:at])
                    start = at = at + whole
                    continue
            self._passing = whole
        seen.append(data[start:at])
        return b"".join(seen)

    def _is_graceful(self, payload: bytes) -> bool:
        last_stream_id = int.from_bytes(payload[:4], "big") & 0x7FFF_FFFF
        error_code = int.from_bytes(payload[4:], "big")
        return error_code == 0 and last_stream_id >= self.stream_id


class _Socket:
    """The part of the socket's side that is the same in both forms."""

    def __init__(self, inner: Any, goodbyes: Goodbyes) -> None:
        self._inner = inner
        self._goodbyes = goodbyes
        self._held = bytearray()
        self._unread = b""

    def _said(self, data: bytes) -> bool:
        """Keep what the server said between two calls for the next one to read; False if it was a goodbye."""
        self._unread += self._goodbyes.feed(data)
        return bool(data) and not self._goodbyes.going_away

    def _take_unread(self) -> bytes:
        unread, self._unread = self._unread, b""
        return unread

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

    def _is_to_be_sent(self, buffer: bytes) -> bool:
        """Hold a piece of a request; True when it is time to send what is held."""
        self._held += buffer
        return len(self._held) >= _HELD_BYTES or buffer[-_HEAD_BYTES : -_HEAD_BYTES + 5] == _END_OF_REQUEST

    def _take(self) -> bytes:
        held = bytes(self._held)
        self._held.clear()
        return held


class SyncSocket(_Socket):
    """The socket's side of a synchronous HTTP/2 connection."""

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if self._is_to_be_sent(buffer):
            self._inner.write(self._take(), timeout)

    def is_still_open(self) -> bool:
        """Look at what came while no call was going on: a goodbye, the end, or something to be answered later."""
        try:
            return self._said(self._inner.read(_LOOK_BYTES, _LOOK_S))
        except Exception as error:  # noqa: BLE001 - whichever library's
            return type(error).__name__ == "ReadTimeout"  # a piece of a TLS record, and nothing to be said of it yet

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._held:
            self._inner.write(self._take(), timeout)
        if self._unread:
            return self._take_unread()
        while True:
            data = self._inner.read(max_bytes, timeout)
            seen = self._goodbyes.feed(data)
            if seen or not data:
                return seen

    def close(self) -> None:
        self._inner.close()


class AsyncSocket(_Socket):
    """The socket's side of an asynchronous HTTP/2 connection."""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the interface
        if self._is_to_be_sent(buffer):
            await self._inner.write(self._take(), timeout)

    async def is_still_open(self) -> bool:
        """Look at what came while no call was going on: a goodbye, the end, or something to be answered later."""
        try:
            return self._said(await self._inner.read(_LOOK_BYTES, _LOOK_S))
        except Exception as error:  # noqa: BLE001 - whichever library's
            return type(error).__name__ == "ReadTimeout"  # a piece of a TLS record, and nothing to be said of it yet

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - the interface
        if self._held:
            await self._inner.write(self._take(), timeout)
        if self._unread:
            return self._take_unread()
        while True:
            data = await self._inner.read(max_bytes, timeout)
            seen = self._goodbyes.feed(data)
            if seen or not data:
                return seen

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Connecting:
    """A TCP connection on its way to TLS, which is when it turns out to speak HTTP/2 or not."""

    def __init__(self, inner: Any, goodbyes: Goodbyes) -> None:
        self._inner = inner
        self._goodbyes = goodbyes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _negotiated(self, stream: Any, socket_class: type[_Socket]) -> Any:
        tls = stream.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() == "h2":
            return socket_class(stream, self._goodbyes)
        return stream


class _SyncConnecting(_Connecting):
    def start_tls(self, *args: Any, **kwargs: Any) -> Any:
        return self._negotiated(self._inner.start_tls(*args, **kwargs), SyncSocket)


class _AsyncConnecting(_Connecting):
    async def start_tls(self, *args: Any, **kwargs: Any) -> Any:
        return self._negotiated(await self._inner.start_tls(*args, **kwargs), AsyncSocket)


class SyncBackend:
    """Opens the connection of one synchronous pool member."""

    def __init__(self, inner: Any, goodbyes: Goodbyes) -> None:
        self._inner = inner
        self._goodbyes = goodbyes

    def connect_tcp(self, *args: Any, **kwargs: Any) -> Any:
        return _SyncConnecting(self._inner.connect_tcp(*args, **kwargs), self._goodbyes)

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)


class AsyncBackend:
    """Opens the connection of one asynchronous pool member."""

    def __init__(self, inner: Any, goodbyes: Goodbyes) -> None:
        self._inner = inner
        self._goodbyes = goodbyes

    async def connect_tcp(self, *args: Any, **kwargs: Any) -> Any:
        return _AsyncConnecting(await self._inner.connect_tcp(*args, **kwargs), self._goodbyes)

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)
