"""End an answer's body so that its connection can be used again, or is closed where it cannot."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import anyio.lowlevel

from .._clock import now_ns
from ._pool import CONNECTION

# After `data: [DONE]` the end of the body is in the same packet or right behind it. A server that takes longer than
# this costs a new connection on the next call, which is what it would have cost anyway.
_DRAIN_S = 0.05

_DONE = b"[DONE]"
# "data: [DONE]" and the line ends that may follow it.
_TAIL_BYTES = 16


class _Body:
    """The part that is the same in both forms."""

    def __init__(self, response: Any, abandoned: deque[Any]) -> None:
        self._inner = response.stream
        self._connection = response.extensions.get(CONNECTION)
        self._network_stream = response.extensions.get("network_stream")
        self._refused = response.status_code >= 400
        self._abandoned = abandoned
        self._iterator: Any = None
        self._tail = b""
        self._ended = False
        self._closed = False
        self._process = os.getpid()

    def _is_inherited(self) -> bool:
        """Whether this process got the body by a fork: what goes over its connection is its parent's business."""
        return self._process != os.getpid()

    def _passed(self, chunk: bytes) -> None:
        self._tail = chunk if len(chunk) >= _TAIL_BYTES else (self._tail + chunk)[-_TAIL_BYTES:]

    def _worth_draining(self) -> bool:
        # Without a network stream nothing bounds the wait: a transport that somebody put in the pool's place.
        if self._network_stream is None or self._ended:
            return False
        # openai closes a refusal unread before it tries again: its body is short, and the connection as good as new.
        return self._refused or (self._iterator is not None and _DONE in self._tail[-_TAIL_BYTES:])

    def __del__(self) -> None:
        # Dropped without being closed. A finaliser may run while its thread holds the pool's lock, so the pool is
        # told later; the server is told now, that nobody listens any more.
        if getattr(self, "_closed", True) or self._is_inherited():
            return
        try:
            self._network_stream.get_extra_info("socket").shutdown(2)
        except Exception:  # noqa: BLE001 - closed already, or no socket at all
            pass
        self._abandoned.append(_Abandoned(self._connection, self._inner))


class _Abandoned:
    """What is left of a body that was dropped: its connection is closed with the pool's next call."""

    def __init__(self, connection: Any, inner: Any) -> None:
        self._connection = connection
        self._inner = inner

    def close_abandoned(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection.release()
        self._inner.close()

    async def aclose_abandoned(self) -> None:
        if self._connection is not None:
            await self._connection.aclose()
            self._connection.release()
        await self._inner.aclose()


class SyncBody(_Body):
    """The body of a synchronous answer."""

    def __iter__(self) -> Iterator[bytes]:
        self._iterator = self._chunks()
        return self._iterator  # type: ignore[no-any-return]

    def _chunks(self) -> Iterator[bytes]:
        for chunk in self._inner:
            self._passed(chunk)
            yield chunk
        self._ended = True

    def close(self) -> None:
        """End the body; if it was left half-read, its connection is closed, so that the server stops."""
        if self._closed or self._is_inherited():
            return
        self._closed = True
        try:
            if self._worth_draining():
                self._drain()
            if self._connection is not None and not self._ended:
                self._connection.close()
        finally:
            # Closing the inner body makes the pool hand the connection to a call that waits: it must be free by then.
            if self._connection is not None:
                self._connection.release()
            self._inner.close()

    def _drain(self) -> None:
        stream = self._network_stream
        deadline_ns = now_ns() + int(_DRAIN_S * 1e9)
        read = stream.read

        def read_until_deadline(max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG001
            return bytes(read(max_bytes, timeout=max(0.0, (deadline_ns - now_ns()) / 1e9)))

        stream.read = read_until_deadline
        try:
            for _ in self._iterator or self:
                if now_ns() > deadline_ns:
                    return
        except Exception:  # noqa: BLE001 - a time-out or a broken connection: it is closed, and the answer was complete
            pass
        finally:
            del stream.read


class AsyncBody(_Body):
    """The body of an asynchronous answer."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        self._iterator = self._chunks()
        return self._iterator  # type: ignore[no-any-return]

    async def _chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self._passed(chunk)
            yield chunk
        self._ended = True

    async def aclose(self) -> None:
        """End the body; if it was left half-read, its connection is closed, so that the server stops."""
        if self._closed or self._is_inherited():
            return
        self._closed = True
        with anyio.CancelScope(shield=True):
            try:
                if self._worth_draining():
                    await self._drain()
                if self._connection is not None and not self._ended:
                    await self._connection.aclose()
            finally:
                if self._connection is not None:
                    self._connection.release()
                await self._inner.aclose()

    async def _drain(self) -> None:
        try:
            with anyio.move_on_after(_DRAIN_S):
                async for _ in self._iterator or self:
                    await anyio.lowlevel.checkpoint()  # the deadline also holds for what is buffered already
        except Exception:  # noqa: BLE001 - a broken connection: it is closed, and the answer was complete
            pass
