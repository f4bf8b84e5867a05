"""End an answer's body so that its connection can be used again, or is closed where it cannot."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import anyio.lowlevel

from .._clock import now_ns
from ._pool import CONNECTION

# After `data: [DONE]` the end of the body is in the same packet or right behind it. A server that takes longer than
# this costs the next call a new connection, as every synchronous stream over HTTP/1.1 does with the stock client.
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
        # HTTP/1.1 underneath closes a connection whose answer was left half-read; HTTP/2 goes on with it.
        self._stays_open = response.extensions.get("http_version") == b"HTTP/2"
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
        # Dropped without being closed. A finaliser may run while its thread holds the pool's lock, so it must not
        # touch the pool: the server is told at once that nobody listens any more, the pool by somebody else.
        if getattr(self, "_closed", True) or self._is_inherited():
            return
        with contextlib.suppress(Exception):  # closed already, or no socket at all
            self._network_stream.get_extra_info("socket").shutdown(2)
        abandoned = _Abandoned(self._connection, self._inner)
        try:
            self._hand_over(abandoned)
        except Exception:  # noqa: BLE001 - no thread to be had, or the loop has ended: the pool's next call does it
            self._abandoned.append(abandoned)

    def _hand_over(self, abandoned: _Abandoned) -> None:
        raise NotImplementedError


class _Abandoned:
    """What is left of a body that was dropped: closing it gives the pool its place back."""

    def __init__(self, connection: Any, inner: Any) -> None:
        self._connection = connection
        self._inner = inner

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection.release()
        self._inner.close()

    async def aclose(self) -> None:
        if self._connection is not None:
            await self._connection.aclose()
            self._connection.release()
        await self._inner.aclose()


def _quietly(close: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):  # the connection is gone as it should be
        close()


# A loop keeps no task alive.
_closing: set[Any] = set()


def _close_soon(loop: Any, abandoned: _Abandoned) -> None:
    async def close() -> None:
        with contextlib.suppress(Exception):  # the connection is gone as it should be
            await abandoned.aclose()

    task = loop.create_task(close())
    _closing.add(task)
    task.add_done_callback(_closing.discard)


def _running_loop() -> Any:
    """The running asyncio loop; None elsewhere, where the pool's next call closes what was dropped."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class SyncBody(_Body):
    """The body of a synchronous answer."""

    def _hand_over(self, abandoned: _Abandoned) -> None:
        # A bare thread: starting one of `threading` takes a lock that the interrupted code may hold.
        _thread.start_new_thread(_quietly, (abandoned.close,))

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
        finally:
            # Also when the reader is interrupted here: what is half-read must not carry another call. Closing the
            # inner body makes the pool hand the connection to a call that waits: it must be free by then.
            try:
                if self._stays_open and self._connection is not None and not self._ended:
                    self._connection.close()
            finally:
                if self._connection is not None:
                    self._connection.release()
                self._inner.close()

    def _drain(self) -> None:
        stream = self._network_stream
        deadline_ns = now_ns() + int(_DRAIN_S * 1e9)
        read = stream.read

        def read_until_deadline(max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG001
            return bytes(read(max_bytes, timeout=max(0.0, (deadline_ns - now_ns()) / 1e9)))

        try:
            stream.read = read_until_deadline
            for _ in self._iterator or self:
                if now_ns() > deadline_ns:
                    return
        except Exception:  # noqa: BLE001 - a time-out or a broken connection: it is closed, and the answer was complete
            pass
        finally:
            vars(stream).pop("read", None)


class AsyncBody(_Body):
    """The body of an asynchronous answer."""

    def __init__(self, response: Any, abandoned: deque[Any]) -> None:
        super().__init__(response, abandoned)
        self._loop = _running_loop()

    def _hand_over(self, abandoned: _Abandoned) -> None:
        self._loop.call_soon_threadsafe(_close_soon, self._loop, abandoned)

    # No generator: the event loop would finalise it by itself when the answer is dropped, at the same time as those
    # around it do.
    def __aiter__(self) -> AsyncIterator[bytes]:
        if self._iterator is None:
            self._iterator = aiter(self._inner)
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk: bytes = await anext(self._iterator)
        except StopAsyncIteration:
            self._ended = True
            raise
        self._passed(chunk)
        return chunk

    async def aclose(self) -> None:
        """End the body; if it was left half-read, its connection is closed, so that the server stops."""
        if self._closed or self._is_inherited():
            return
        self._closed = True
        with anyio.CancelScope(shield=True):
            try:
                if self._worth_draining():
                    await self._drain()
            finally:
                # A native cancellation passes the shield.
                try:
                    if self._stays_open and self._connection is not None and not self._ended:
                        await self._connection.aclose()
                finally:
                    if self._connection is not None:
                        self._connection.release()
                    await self._inner.aclose()

    async def _drain(self) -> None:
        try:
            with anyio.move_on_after(_DRAIN_S):
                async for _ in self:
                    await anyio.lowlevel.checkpoint()  # the deadline also holds for what is buffered already
        except Exception:  # noqa: BLE001 - a broken connection: it is closed, and the answer was complete
            pass
