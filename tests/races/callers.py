"""Calls from threads or from tasks, driven alike, and an upstream that answers when a test says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

import fastlane
from fastlane import Connection, Urgency
from tests.attempts.scripted import EVENTS, MESSAGES, Script, Upstream, chunk
from tests.transport.peer import Stream
from tests.waiting import HANG_S


def held(gate: threading.Event, then: Script) -> Script:
    """Answer once the test says."""

    def script(upstream: Upstream, stream: Stream, body: dict[str, Any]) -> None:
        upstream.silent.append(stream)
        stream.hold(gate)
        then(upstream, stream, body)

    return script


def two_pieces(upstream: Upstream, stream: Stream, body: dict[str, Any]) -> None:
    """Begin a stream, and say no more until the client leaves."""
    upstream.silent.append(stream)
    stream.head(200, (EVENTS,))
    for piece in ("One ", "two "):
        stream.data(chunk(body["model"], {"content": piece}))
    stream.hold_until_left()


class Party:
    """Callers of one upstream, in threads or in the tasks of one event loop."""

    def __init__(self, kind: str, upstream: Upstream, **settings: Any) -> None:
        self.kind = kind
        self.upstream = upstream
        self.plays = [Connection(), Urgency(**settings)]
        self.client = self.new_client()
        self._pool = ThreadPoolExecutor(64)
        self._loop: Any = None
        if kind == "async":
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever)
            self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.upstream.may_break.set()
        self._pool.shutdown(wait=True)
        if self._loop is not None:
            self.run(self.client.close).result(HANG_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def new_client(self, **options: Any) -> Any:
        """One more client with these plays."""
        kind: Any = fastlane.OpenAI if self.kind == "sync" else fastlane.AsyncOpenAI
        return kind(**{"api_key": "sk-test", "base_url": self.upstream.url, "only_plays": self.plays, **options})

    def run(self, call: Callable[[], Any]) -> Future[Any]:
        """Make a call of a client in a thread, or in a task."""

        async def task() -> Any:
            return await call()

        return self._pool.submit(call) if self._loop is None else asyncio.run_coroutine_threadsafe(task(), self._loop)

    def ask(self, client: Any = None, **body: Any) -> Future[Any]:
        """A call; its answer, or the stream."""
        body = {"model": "m", "messages": MESSAGES, "temperature": 0, **body}
        create = (self.client if client is None else client).chat.completions.create
        return self.run(lambda: create(**body))
