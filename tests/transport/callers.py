"""The synchronous and the asynchronous client behind one face, so that a promise of both is written down once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import fastlane
from fastlane import CallRecord
from fastlane._clock import now_ns


def request(**emulator: Any) -> dict[str, Any]:
    """A request that asks the embedded provider for something: `output_tokens=3` is `x-emulator-output-tokens: 3`."""
    headers = {f"x-emulator-{name.replace('_', '-')}": str(value) for name, value in emulator.items()}
    return {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "extra_headers": headers}


def text_of(chunks: Sequence[Any]) -> str:
    """What the chunks of a stream say."""
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


def open_connections(caller: Any) -> int:
    """How many connections the caller's client has, those that are being opened included."""
    engine = caller.client._client._transport._engine
    pools = engine._pools.values() if isinstance(caller, AsyncCaller) else [engine._pool]
    return sum(int(pool.pool._count) for pool in pools)


def sees(caller: Any, predicate: Callable[[], bool]) -> bool:
    """Whether it is so before it counts as hanging; the caller's event loop runs meanwhile."""
    for _ in range(1_500):
        if predicate():
            return True
        caller.sleep(0.02)
    return False


def loses_its_connections(caller: Any) -> bool:
    """Whether the client has no connection any more before that counts as hanging."""
    return sees(caller, lambda: not open_connections(caller))


@dataclass(frozen=True, slots=True)
class Done:
    """One of several calls at once: what it gave or raised, and when."""

    value: Any
    ended_ns: int

    @property
    def error(self) -> BaseException | None:
        return self.value if isinstance(self.value, BaseException) else None


class SyncCaller:
    """Calls with `fastlane.OpenAI`, at once in threads."""

    def __init__(self, library: Any = fastlane, **options: Any) -> None:
        self.client: Any = library.OpenAI(**options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        return tuple(self.client.calls)

    @property
    def last_call(self) -> CallRecord:
        return self.calls[-1]

    def close(self) -> None:
        self.client.close()

    def ask(self, **emulator: Any) -> Any:
        return self.client.chat.completions.create(**request(**emulator))

    def start(self, events: int = 0, **emulator: Any) -> Any:
        """Open a stream and read some of its events."""
        stream = self.client.chat.completions.create(**request(**emulator), stream=True)
        for _ in range(events):
            next(stream)
        return stream

    def read(self, **emulator: Any) -> list[Any]:
        return self.rest(self.start(**emulator))

    def rest(self, stream: Any) -> list[Any]:
        return list(stream)

    def close_stream(self, stream: Any) -> None:
        stream.close()

    def together(self, *wishes: dict[str, Any], stream: bool = False) -> list[Done]:
        def one(emulator: dict[str, Any]) -> Done:
            try:
                value = self.read(**emulator) if stream else self.ask(**emulator)
            except Exception as error:  # noqa: BLE001 - the test looks at it
                value = error
            return Done(value, now_ns())

        with ThreadPoolExecutor(len(wishes)) as threads:
            return list(threads.map(one, wishes))

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class AsyncCaller:
    """Calls with `fastlane.AsyncOpenAI` on an event loop of its own, at once in tasks."""

    def __init__(self, library: Any = fastlane, **options: Any) -> None:
        self.client: Any = library.AsyncOpenAI(**options)
        self.loop = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        return tuple(self.client.calls)

    @property
    def last_call(self) -> CallRecord:
        return self.calls[-1]

    def close(self) -> None:
        self.loop.run(self.client.close())
        self.loop.close()

    def ask(self, **emulator: Any) -> Any:
        return self.loop.run(self._ask(**emulator))

    async def _ask(self, **emulator: Any) -> Any:
        return await self.client.chat.completions.create(**request(**emulator))

    def start(self, events: int = 0, **emulator: Any) -> Any:
        """Open a stream and read some of its events."""
        return self.loop.run(self._start(events, **emulator))

    async def _start(self, events: int = 0, **emulator: Any) -> Any:
        stream = await self.client.chat.completions.create(**request(**emulator), stream=True)
        for _ in range(events):
            await anext(stream)
        return stream

    def read(self, **emulator: Any) -> list[Any]:
        return self.loop.run(self._read(**emulator))

    async def _read(self, **emulator: Any) -> list[Any]:
        return await self._rest(await self._start(**emulator))

    def rest(self, stream: Any) -> list[Any]:
        return self.loop.run(self._rest(stream))

    async def _rest(self, stream: Any) -> list[Any]:
        return [chunk async for chunk in stream]

    def close_stream(self, stream: Any) -> None:
        self.loop.run(self._close_stream(stream))

    async def _close_stream(self, stream: Any) -> None:
        await stream.close()

    def together(self, *wishes: dict[str, Any], stream: bool = False) -> list[Done]:
        async def one(emulator: dict[str, Any]) -> Done:
            try:
                value = await (self._read(**emulator) if stream else self._ask(**emulator))
            except Exception as error:  # noqa: BLE001 - the test looks at it
                value = error
            return Done(value, now_ns())

        async def all_of_them() -> list[Done]:
            return await asyncio.gather(*(one(emulator) for emulator in wishes))

        return self.loop.run(all_of_them())

    def sleep(self, seconds: float) -> None:
        self.loop.run(asyncio.sleep(seconds))


CALLERS: dict[str, Any] = {"sync": SyncCaller, "async": AsyncCaller}
