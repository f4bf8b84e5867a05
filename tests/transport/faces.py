"""httpx2's synchronous and asynchronous clients on our transports behind one face, driven from a test's own thread."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

import httpx2
import pytest

from fastlane.transport import AsyncTransport, Transport
from tests.transport.peer import HANG_S, trusting

Piece = bytes | threading.Event


class Pending:
    """A call that goes on beside the test."""

    def __init__(self, future: Future[Any]) -> None:
        self.future = future

    def result(self) -> Any:
        return self.future.result(HANG_S)

    def error(self) -> BaseException | None:
        return self.future.exception(HANG_S)

    def cancel(self) -> None:
        """Cancel the task (asynchronous only)."""
        self.future.cancel()


class SyncAnswer:
    """An answer that is being read."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self.pieces = response.iter_raw()

    def piece(self) -> bytes:
        return next(self.pieces)

    def rest(self) -> bytes:
        return b"".join(self.pieces)

    def begin_rest(self) -> Pending:
        return in_a_thread(self.rest)

    def close(self) -> None:
        self.response.close()


def in_a_thread(work: Callable[..., Any], *args: Any, **options: Any) -> Pending:
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(work(*args, **options))
        except BaseException as error:  # noqa: BLE001 - the waiting call raises it
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return Pending(future)


class Face:
    """What both have."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def request(self, method: str, url: str, **options: Any) -> httpx2.Response:
        raise NotImplementedError

    def get(self, url: str = "/", **options: Any) -> httpx2.Response:
        return self.request("GET", url, **options)

    def post(self, url: str = "/", **options: Any) -> httpx2.Response:
        return self.request("POST", url, **options)

    def close(self) -> None:
        raise NotImplementedError


class SyncFace(Face):
    """`httpx2.Client` on `Transport`, at once in threads."""

    asynchronous = False

    def __init__(self, url: str = "", *, timeout: Any = HANG_S, **options: Any):
        options.setdefault("verify", trusting())
        self.transport: Any = Transport(**options)
        self.client = httpx2.Client(transport=self.transport, base_url=url, timeout=timeout)

    def request(self, method: str, url: str, **options: Any) -> httpx2.Response:
        return self.client.request(method, url, **options)

    def begin(self, url: str = "/", method: str = "GET", **options: Any) -> Pending:
        return in_a_thread(self.request, method, url, **options)

    def open(self, url: str = "/", method: str = "GET", **options: Any) -> SyncAnswer:
        """Send a request and leave the answer's body unread."""
        parts = {name: options.pop(name) for name in ("extensions", "timeout", "content", "headers") if name in options}
        request = self.client.build_request(method, url, **parts)
        return SyncAnswer(self.client.send(request, stream=True))

    def together(self, *urls: str, **options: Any) -> list[Any]:
        """Several requests at once; what each gave or raised."""

        def one(url: str) -> Any:
            try:
                return self.get(url, **options)
            except Exception as error:  # noqa: BLE001 - the test looks at it
                return error

        with ThreadPoolExecutor(len(urls)) as threads:
            return list(threads.map(one, urls))

    def upload(self, pieces: Iterable[Piece]) -> Any:
        """A body that is made while it is sent, and waits for events."""

        def parts() -> Iterator[bytes]:
            for piece in pieces:
                if isinstance(piece, bytes):
                    yield piece
                else:
                    assert piece.wait(HANG_S)

        return parts()

    def forget(self, url: str, pieces: int) -> None:
        """Begin to read an answer and lose every reference to it."""
        answer = self.open(url)
        for _ in range(pieces):
            answer.piece()
        del answer
        gc.collect()

    def close(self) -> None:
        self.client.close()


class AsyncAnswer:
    """An answer that is being read."""

    def __init__(self, face: AsyncFace, response: httpx2.Response) -> None:
        self.face = face
        self.response = response
        self.pieces = response.aiter_raw()

    def piece(self) -> bytes:
        return bytes(self.face.run(anext(self.pieces)))

    async def _rest(self) -> bytes:
        return b"".join([piece async for piece in self.pieces])

    def rest(self) -> bytes:
        return bytes(self.face.run(self._rest()))

    def begin_rest(self) -> Pending:
        return self.face.submit(self._rest())

    def close(self) -> None:
        self.face.run(self.response.aclose())


class AsyncFace(Face):
    """`httpx2.AsyncClient` on `AsyncTransport`, on an event loop in a thread of its own."""

    asynchronous = True
    new_loop = staticmethod(asyncio.new_event_loop)

    def __init__(self, url: str = "", *, timeout: Any = HANG_S, **options: Any):
        options.setdefault("verify", trusting())
        self.transport: Any = AsyncTransport(**options)
        self.client = httpx2.AsyncClient(transport=self.transport, base_url=url, timeout=timeout)
        self.loop: asyncio.AbstractEventLoop = self.new_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def submit(self, work: Coroutine[Any, Any, Any]) -> Pending:
        return Pending(asyncio.run_coroutine_threadsafe(work, self.loop))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.submit(work).result()

    def request(self, method: str, url: str, **options: Any) -> httpx2.Response:
        response: httpx2.Response = self.run(self.client.request(method, url, **options))
        return response

    def begin(self, url: str = "/", method: str = "GET", **options: Any) -> Pending:
        return self.submit(self.client.request(method, url, **options))

    async def _open(self, url: str, method: str, **options: Any) -> AsyncAnswer:
        request = self.client.build_request(method, url, **options)
        return AsyncAnswer(self, await self.client.send(request, stream=True))

    def open(self, url: str = "/", method: str = "GET", **options: Any) -> AsyncAnswer:
        """Send a request and leave the answer's body unread."""
        answer: AsyncAnswer = self.run(self._open(url, method, **options))
        return answer

    def together(self, *urls: str, **options: Any) -> list[Any]:
        """Several requests at once; what each gave or raised."""

        async def all_of_them() -> list[Any]:
            calls = [self.client.get(url, **options) for url in urls]
            return await asyncio.gather(*calls, return_exceptions=True)

        results: list[Any] = self.run(all_of_them())
        return results

    def upload(self, pieces: Iterable[Piece]) -> Any:
        """A body that is made while it is sent, and waits for events."""

        async def parts() -> AsyncIterator[bytes]:
            for piece in pieces:
                if isinstance(piece, bytes):
                    yield piece
                else:
                    while not piece.is_set():  # noqa: ASYNC110 - the event belongs to another thread
                        await asyncio.sleep(0.01)

        return parts()

    def forget(self, url: str, pieces: int) -> None:
        """Begin to read an answer and lose every reference to it."""

        async def begin() -> None:
            response = (await self._open(url, "GET")).response
            reading = response.aiter_raw()
            for _ in range(pieces):
                await anext(reading)

        async def lose() -> None:
            await begin()
            gc.collect()

        self.run(lose())

    def close(self) -> None:
        if self.loop.is_closed():
            return
        try:
            self.run(self.client.aclose())
            self.run(self._finish())
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(HANG_S)
            self.loop.close()

    async def _finish(self) -> None:
        # Only a test that has failed leaves calls behind.
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.loop.shutdown_asyncgens()


FACES: dict[str, Any] = {"sync": SyncFace, "async": AsyncFace}
both_faces = pytest.mark.parametrize("make_face", list(FACES.values()), ids=list(FACES))
